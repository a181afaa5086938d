// @ts-check
// The fields that change the problem while it runs.

import { el } from "../page/dom.js";
import { show } from "../page/numbers.js";
import { CHOICES, SLIDERS, applies } from "./settings.js";

/** @typedef {{name: string, node: HTMLElement, set: (value: string) => void}} Field
 *  @typedef {(changed: import("./settings.js").Settings) => void} Change */

export class Form {
  /** @param {Change} change called when a field is changed by hand */
  constructor(change) {
    this.fields = [...CHOICES.map((one) => choice(one, change)), ...SLIDERS.map((one) => slider(one, change))];
    this.node = el(
      "form",
      { class: "collapse-controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      this.fields.map((field) => field.node),
    );
  }

  /** @param {import("./settings.js").Settings} settings */
  show(settings) {
    for (const field of this.fields) {
      field.set(settings[field.name]);
      field.node.hidden = !applies(field.name, settings);
    }
  }
}

/** @param {typeof CHOICES[number]} one @param {Change} change @returns {Field} */
function choice({ name, words, options }, change) {
  const select = el(
    "select",
    { name, onchange: () => change({ [name]: select.value }) },
    Object.entries(options).map(([value, text]) => el("option", { value }, text)),
  );
  return {
    name,
    node: el("label", {}, el("span", {}, words), select),
    set: (value) => {
      select.value = value;
    },
  };
}

/** @param {import("./settings.js").Slider} one @param {Change} change @returns {Field} */
function slider({ name, words, min, max, step, log }, change) {
  const [low, high] = log ? [Math.log10(min), Math.log10(max)] : [min, max];
  const output = el("output");
  const moved = () => {
    const place = Number(input.value);
    change({ [name]: String(Number((log ? 10 ** place : place).toPrecision(3))) });
  };
  const input = el("input", { type: "range", name, min: low, max: high, step: step ?? 0.01, oninput: moved });
  return {
    name,
    node: el("label", {}, el("span", {}, words), input, output),
    set: (value) => {
      input.value = String(log ? Math.log10(Number(value)) : value);
      output.textContent = show(Number(value), 3);
      input.setAttribute("aria-valuetext", output.textContent);
    },
  };
}
