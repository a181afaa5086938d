// @ts-check
// Requests to the server that served this page. An error is an Error with the server's one line.

/** @param {Response} response */
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

/** @param {string} path @param {RequestInit} [options] */
async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer: is neuralcollapse explore still running?");
  }
  return read(response);
}

/** @param {string} path @param {Record<string, unknown>} [fields] those that are null are left out @returns {Promise<any>} */
export function get(path, fields = {}) {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return send(`api/${path}?${query}`);
}

/** @param {string} path @param {object} fields @returns {Promise<any>} */
export function post(path, fields) {
  return send(`api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields),
  });
}

/** Files one after another in one body; their names and sizes are in the address.
 * @param {string} path @param {File[]} files @returns {Promise<any>} */
export function upload(path, files) {
  const options = { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: new Blob(files) };
  const parts = files.flatMap((file) => [
    ["name", file.name],
    ["size", String(file.size)],
  ]);
  return send(`api/${path}?${new URLSearchParams(parts)}`, options);
}

// One request at a time for each kind, and of those that wait only the newest; the others resolve to null. So a moving
// slider does not pile up work, and answers come in the order of the questions.
/** @typedef {{ask: () => Promise<any>, resolve: (answer: any) => void, reject: (error: any) => void}} Waiting
 *  @typedef {{busy: boolean, next: Waiting | null}} Queue @type {Map<string, Queue>} */
const queues = new Map();

/** @template T @param {string} kind @param {() => Promise<T>} ask @returns {Promise<T | null>} */
export function latest(kind, ask) {
  /** @type {Queue} */
  const queue = queues.get(kind) ?? { busy: false, next: null };
  queues.set(kind, queue);
  return new Promise((resolve, reject) => {
    queue.next?.resolve(null);
    queue.next = { ask, resolve, reject };
    if (!queue.busy) work(queue);
  });
}

/** @param {Queue} queue */
async function work(queue) {
  queue.busy = true;
  while (queue.next) {
    const { ask, resolve, reject } = queue.next;
    queue.next = null;
    await ask().then(resolve, reject);
  }
  queue.busy = false;
}
