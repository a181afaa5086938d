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

// A number with so many significant digits, as the package writes it everywhere: plain from 0.001 to 99,999, beyond it as
// a multiple of a power of ten.
export function show(number, digits = 6) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (typeof number !== "number") return String(number);
  const size = Math.abs(number);
  const sign = number < 0 ? "−" : "";
  if (size === Infinity) return `${sign}∞`;
  const grouped = (text) => text.replace(/^\d{5,}/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
  if (size === 0 || (Number.isInteger(size) && size < 1e5)) return `${sign}${grouped(String(size))}`;
  if (size >= 1e-3 && size < 1e5) {
    if (size >= 10 ** digits) return `${sign}${grouped(size.toFixed(0))}`;
    const text = size.toPrecision(digits);
    if (text.includes("e")) return `${sign}${grouped(String(Number(text)))}`;
    return `${sign}${grouped(text.includes(".") ? text.replace(/\.?0+$/, "") : text)}`;
  }
  const [front, power] = size.toExponential(digits - 1).split("e");
  const raised = [...power.replace("+", "")].map((letter) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(letter)]).join("");
  return `${sign}${front.includes(".") ? front.replace(/\.?0+$/, "") : front}×10${raised}`;
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
  return el("details", { class: "more" }, el("summary", {}, "The same on the command line"), el("pre", { class: "wrap" }, text));
}

export function notice(id, text) {
  $(id).textContent = text ?? "";
  $(id).hidden = !text;
}

export function body(id) {
  return $(id).querySelector(".body");
}
