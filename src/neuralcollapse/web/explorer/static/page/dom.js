// @ts-check
// Elements from plain values. Text is always text: nothing from the server is ever parsed as HTML.

/** An element of the page itself. @param {string} id @returns {HTMLElement} */
export const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @typedef {string | Node | null | undefined} Child */

/** @template {keyof HTMLElementTagNameMap} T @param {T} tag
 * @param {Record<string, any>} [attributes] those that are null or false are left out; functions under "on..." listen
 * @param {...(Child | Child[])} children @returns {HTMLElementTagNameMap[T]} */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") node.append(child);
  return node;
}

/** @param {string} text */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

/** Long values stand below their names where there is little room.
 * @param {[string, Child][]} pairs @param {boolean} [long] */
export function facts(pairs, long = false) {
  const list = el("dl", { class: long ? "long" : null });
  for (const [name, value] of pairs) {
    if (value !== null && value !== undefined && value !== "") list.append(el("dt", {}, name), el("dd", {}, value));
  }
  return list;
}

/** @param {string} text */
export function command(text) {
  return el(
    "details",
    { class: "more" },
    el("summary", {}, "The same on the command line"),
    el("pre", { class: "wrap" }, text),
  );
}

/** @param {string} id @param {string | null} [text] */
export function notice(id, text) {
  $(id).textContent = text ?? "";
  $(id).hidden = !text;
}

/** What an error says. @param {unknown} error */
export const message = (error) => (error instanceof Error ? error.message : String(error));

/** @param {string} id */
export function body(id) {
  return /** @type {HTMLElement} */ ($(id).querySelector(".body"));
}
