// @ts-check
// Fields that write to the state and follow it.

import * as state from "./state.js";
import { el } from "./dom.js";

let count = 0;
/** @type {((name: string | null) => void)[]} */
const followers = [];
state.whenChanged((name) => followers.forEach((follower) => follower(name)));

/** @param {string} name @param {() => void} update */
function follow(name, update) {
  followers.push((changed) => {
    if (changed === null || changed === name) update();
  });
  update();
}

/** A slider (perhaps of the logarithm) and a number that may lie beyond its range; without `min` only the number.
 * @param {string} name @param {string} label @param {{min?: number, max?: number, step?: number, log?: boolean}} [range] */
export function number(name, label, { min, max, step = 1, log = false } = {}) {
  const id = `field-${++count}`;
  const box = el("input", { type: "number", id, step: "any", inputmode: "decimal" });
  const toSlider = (/** @type {number} */ value) => (log ? Math.log10(value) : value);
  const fromSlider = (/** @type {number} */ place) =>
    log ? Number((10 ** place).toPrecision(2)) : Number(place.toPrecision(10));
  const slider =
    min !== undefined && max !== undefined
      ? el("input", {
          type: "range",
          min: toSlider(min),
          max: toSlider(max),
          step: log ? 0.01 : step,
          "aria-label": label,
        })
      : null;
  box.addEventListener("input", () => box.value !== "" && state.set(name, box.value));
  slider?.addEventListener("input", () => state.set(name, fromSlider(Number(slider.value))));
  follow(name, () => {
    const value = state.get(name);
    if (Number(box.value) !== Number(value) || box.value === "") box.value = value;
    if (slider && fromSlider(Number(slider.value)) !== Number(value)) slider.value = String(toSlider(Number(value)));
    slider?.setAttribute("aria-valuetext", value);
  });
  const pair = slider ? el("div", { class: "pair" }, slider, box) : box;
  return el("div", { class: "field" }, el("label", { for: id }, label), pair);
}

/** @param {string} name @param {string} label @param {string[][]} options values and their words */
export function select(name, label, options) {
  const id = `field-${++count}`;
  const node = el("select", { id, onchange: () => state.set(name, node.value) });
  for (const [value, text] of options) node.append(el("option", { value }, text));
  follow(name, () => {
    node.value = state.get(name);
  });
  return el("div", { class: "field" }, el("label", { for: id }, label), node);
}

/** Shown only while `when()` holds. @template {HTMLElement} T @param {() => boolean} when @param {T} node */
export function only(when, node) {
  const update = () => {
    node.hidden = !when();
  };
  followers.push(update);
  update();
  return node;
}

/** @type {Record<string, string>} */
const greek = { alpha: "α", gamma: "γ", target: "target M" };

/** @param {string} prefix @param {LossAnswer[]} losses */
export function loss(prefix, losses) {
  const name = `${prefix}loss`;
  /** @type {HTMLElement[]} */
  const nodes = [
    select(
      name,
      "Loss",
      losses.map((one) => [one.name, one.name]),
    ),
  ];
  for (const one of losses) {
    const mine = () => state.get(name) === one.name;
    nodes.push(only(mine, el("p", { class: "caption" }, one.summary)));
    for (const parameter of one.parameters) {
      const key = `${prefix}${one.name}.${parameter.name}`;
      nodes.push(only(mine, number(key, greek[parameter.name] ?? parameter.name, parameter)));
    }
  }
  return nodes;
}

/** @param {string} prefix @param {LossAnswer[]} losses */
export function lossDefaults(prefix, losses) {
  for (const one of losses) {
    for (const parameter of one.parameters) state.setDefault(`${prefix}${one.name}.${parameter.name}`, parameter.value);
  }
}

/** The loss as the server reads it: name:key=value,... @param {string} prefix @param {LossAnswer[]} losses */
export function lossSpec(prefix, losses) {
  const one = losses.find((entry) => entry.name === state.get(`${prefix}loss`));
  if (!one) throw new Error(`unknown loss ${state.get(`${prefix}loss`)}`);
  const values = one.parameters.map((p) => `${p.name}=${state.get(`${prefix}${one.name}.${p.name}`)}`);
  return values.length ? `${one.name}:${values.join(",")}` : one.name;
}

/** @param {string} prefix @param {LossAnswer[]} losses */
export function lossName(prefix, losses) {
  const [name, values] = lossSpec(prefix, losses).split(":");
  const words = Object.entries({ alpha: "α", gamma: "γ", target: "M" });
  return values
    ? `${name}, ${words
        .reduce((text, [word, letter]) => text.replace(word, letter), values)
        .replaceAll("=", " = ")
        .replaceAll(",", ", ")}`
    : name;
}

/** Where the state keeps whether an optional field is given: "bias" for "bias_decay", so that links stay short.
 * @param {string} name */
const kindOf = (name) => (name.endsWith("_decay") ? name.slice(0, -"_decay".length) : `${name}.given`);

/** A number that may be left out: a choice whether, and the number. @param {string} prefix @param {ModelField} field */
export function optional(prefix, field) {
  const what = kindOf(field.name);
  const decay = field.name.endsWith("_decay");
  const options = [
    ["none", decay ? `no ${what}` : "not given"],
    ...(field.zero ? [["free", decay ? `free ${what}` : "zero"]] : []),
    ["decayed", decay ? `${what} with decay` : "given"],
  ];
  const label = decay ? what[0].toUpperCase() + what.slice(1) : (field.label ?? field.name);
  state.setDefault(prefix + what, "none");
  state.setDefault(prefix + field.name, field.value ?? field.min);
  return [
    select(prefix + what, label, options),
    only(
      () => state.get(prefix + what) === "decayed",
      number(prefix + field.name, field.label ?? field.name, rangeOf(field)),
    ),
  ];
}

/** What an optional field says: null where it is left out. @param {string} prefix @param {string} name */
export function optionalValue(prefix, name) {
  const kind = state.get(prefix + kindOf(name));
  return kind === "free" ? "0" : kind === "decayed" ? state.get(prefix + name) : null;
}

/** The slider of a declared field. @param {ModelField} field */
export function rangeOf({ min, max, log, step }) {
  return log ? { min, max, log } : step ? { min, max, step } : { min, max };
}
