// Fields that write to the state and follow it.

import * as state from "./state.js";
import { el } from "./dom.js";

let count = 0;
const followers = [];
state.whenChanged((name) => followers.forEach((follow) => follow(name)));

function follow(name, update) {
  followers.push((changed) => (changed === null || changed === name) && update());
  update();
}

// A slider (perhaps of the logarithm) and a number that may lie beyond its range.
export function number(name, label, { min, max, step = 1, log = false, hint = null } = {}) {
  const id = `field-${++count}`;
  const box = el("input", { type: "number", id, step: "any", inputmode: "decimal" });
  const hasSlider = min !== undefined;
  const toSlider = (value) => (log ? Math.log10(value) : value);
  const fromSlider = (place) => (log ? Number((10 ** place).toPrecision(2)) : Number(place.toPrecision(10)));
  const slider = hasSlider
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
    if (slider && fromSlider(Number(slider.value)) !== Number(value)) slider.value = toSlider(Number(value));
    slider?.setAttribute("aria-valuetext", value);
  });
  const pair = slider ? el("div", { class: "pair" }, slider, box) : box;
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label, hint ? el("span", { class: "soft" }, hint) : null),
    pair,
  );
}

export function select(name, label, options) {
  const id = `field-${++count}`;
  const node = el("select", { id, onchange: () => state.set(name, node.value) });
  for (const [value, text] of options) node.append(el("option", { value }, text));
  follow(name, () => {
    node.value = state.get(name);
  });
  return el("div", { class: "field" }, el("label", { for: id }, label), node);
}

// Shown only while `when()` holds.
export function only(when, node) {
  const update = () => {
    node.hidden = !when();
  };
  followers.push(update);
  update();
  return node;
}

const greek = { alpha: "α", gamma: "γ", target: "target M" };

export function loss(prefix, losses) {
  const name = `${prefix}loss`;
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

export function lossDefaults(prefix, losses) {
  for (const one of losses) {
    for (const parameter of one.parameters) state.setDefault(`${prefix}${one.name}.${parameter.name}`, parameter.value);
  }
}

// The loss as the server reads it: name:key=value,...
export function lossSpec(prefix, losses) {
  const one = losses.find((entry) => entry.name === state.get(`${prefix}loss`));
  if (!one) throw new Error(`unknown loss ${state.get(`${prefix}loss`)}`);
  const values = one.parameters.map((p) => `${p.name}=${state.get(`${prefix}${one.name}.${p.name}`)}`);
  return values.length ? `${one.name}:${values.join(",")}` : one.name;
}

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

export function bias(prefix) {
  const name = `${prefix}bias`;
  return [
    select(name, "Bias", [
      ["none", "no bias"],
      ["free", "free bias"],
      ["decayed", "bias with decay"],
    ]),
    only(
      () => state.get(name) === "decayed",
      number(`${prefix}bias_decay`, "bias decay λb", { min: 1e-5, max: 1, log: true }),
    ),
  ];
}

export function biasDecay(prefix) {
  return (
    { none: null, free: "0" }[state.get(`${prefix}bias`)] ??
    (state.get(`${prefix}bias`) === "decayed" ? state.get(`${prefix}bias_decay`) : null)
  );
}
