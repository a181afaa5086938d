// Elements from plain values. Text is always text: nothing from the server is ever parsed as HTML.

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

// Long values stand below their names where there is little room.
export function facts(pairs, long = false) {
  const list = el("dl", { class: long ? "long" : null });
  for (const [name, value] of pairs) {
    if (value !== null && value !== undefined && value !== "") list.append(el("dt", {}, name), el("dd", {}, value));
  }
  return list;
}

export function command(text) {
  return el(
    "details",
    { class: "more" },
    el("summary", {}, "The same on the command line"),
    el("pre", { class: "wrap" }, text),
  );
}

export function notice(id, text) {
  $(id).textContent = text ?? "";
  $(id).hidden = !text;
}

export function body(id) {
  return $(id).querySelector(".body");
}
