// Requests to the server that served this page. An error is an Error with the server's one line.

async function read(response) {
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`the server's answer cannot be read (status ${response.status})`);
  }
  if (!response.ok) throw new Error(answer.error ?? `status ${response.status}`);
  return answer;
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer: is neuralcollapse explore still running?");
  }
  return read(response);
}

export function get(path, fields = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
  return send(`api/${path}?${query}`, { signal });
}

export function post(path, fields) {
  return send(`api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) });
}

export function upload(path, file) {
  const options = { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file };
  return send(`api/${path}?${new URLSearchParams({ name: file.name })}`, options);
}

// One request at a time for each kind: a newer one makes an older one stop.
const running = new Map();

export async function latest(kind, ask) {
  running.get(kind)?.abort();
  const control = new AbortController();
  running.set(kind, control);
  try {
    return await ask(control.signal);
  } catch (error) {
    if (error.name === "AbortError") return null;
    throw error;
  } finally {
    if (running.get(kind) === control) running.delete(kind);
  }
}
