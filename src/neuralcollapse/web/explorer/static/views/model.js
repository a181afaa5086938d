// @ts-check
// The model of the Optimum and Solve views: its fields, and what they say.

import * as state from "../page/state.js";
import * as controls from "../page/controls.js";
import { el } from "../page/dom.js";

/** @type {LossAnswer[]} */
let losses = [];
/** @type {Record<string, ModelField[]>} */
let models = {};

/** The form follows the models' own declaration of their fields; only a loss and a bias have controls of their own.
 * @param {About} about */
export function buildModel(about) {
  losses = about.losses;
  models = about.models;
  controls.lossDefaults("", losses);
  const { number, only } = controls;
  /** @type {Map<string, {field: ModelField, kinds: string[]}>} */
  const rows = new Map();
  for (const [kind, fields] of Object.entries(models)) {
    for (const field of fields.filter((one) => one.kind === "loss" || one.label)) {
      const row = rows.get(field.name) ?? { field, kinds: [] };
      rows.set(field.name, { ...row, kinds: [...row.kinds, kind] });
    }
  }
  const control = (/** @type {{field: ModelField, kinds: string[]}} */ { field, kinds }) => {
    const row =
      field.kind === "loss"
        ? el("div", {}, controls.loss("", losses))
        : field.optional
          ? el("div", {}, controls.bias(""))
          : plain(field);
    return kinds.length === Object.keys(models).length ? row : only(() => kinds.includes(state.get("model")), row);
  };
  const plain = (/** @type {ModelField} */ field) => {
    if (state.get(field.name) === undefined) state.setDefault(field.name, field.value ?? field.min);
    const { min, max, log, step } = field;
    return number(
      field.name,
      field.label ?? field.name,
      log ? { min, max, log } : step ? { min, max, step } : { min, max },
    );
  };
  return el(
    "fieldset",
    { id: "model" },
    el("legend", {}, "Model"),
    controls.select(
      "model",
      "Constraint",
      Object.keys(models).map((kind) => [kind, NAMES[kind] || kind]),
    ),
    ...[...rows.values()].map(control),
  );
}

/** @type {Record<string, string>} */
const NAMES = {
  regularized: "weight decay (regularised)",
  normalized: "unit norms (normalised)",
  contrastive: "contrastive, no classifier",
};

export function modelFields() {
  const kind = state.get("model");
  /** @type {Record<string, string | null>} */
  const fields = { model: kind };
  for (const field of models[kind]) {
    if (field.kind === "loss") fields.loss = controls.lossSpec("", losses);
    else if (field.label) fields[field.name] = field.optional ? controls.biasDecay("") : state.get(field.name);
  }
  return fields;
}
