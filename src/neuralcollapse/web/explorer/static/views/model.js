// @ts-check
// The model of the Optimum and Solve views: its fields, and what they say.

import * as state from "../page/state.js";
import * as controls from "../page/controls.js";
import { el } from "../page/dom.js";

/** @type {LossAnswer[]} */
let losses = [];
/** @type {Record<string, ModelField[]>} */
let models = {};

/** The form follows the models' own declaration of their fields; only a loss has controls of its own.
 * @param {About} about */
export function buildModel(about) {
  losses = about.losses;
  models = about.models;
  controls.lossDefaults("", losses);
  /** @type {Map<string, {field: ModelField, kinds: string[]}>} */
  const rows = new Map();
  for (const [kind, fields] of Object.entries(models)) {
    for (const field of fields.filter((one) => one.kind === "loss" || one.label)) {
      const row = rows.get(field.name) ?? { field, kinds: [] };
      rows.set(field.name, { ...row, kinds: [...row.kinds, kind] });
    }
  }
  return el(
    "fieldset",
    { id: "model" },
    el("legend", {}, "Model"),
    controls.select(
      "model",
      "Constraint",
      Object.keys(models).map((kind) => [kind, about.model_words[kind] ?? kind]),
    ),
    ...[...rows.values()].map(({ field, kinds }) => {
      const row = control(field);
      return kinds.length === Object.keys(models).length
        ? row
        : controls.only(() => kinds.includes(state.get("model")), row);
    }),
  );
}

/** @param {ModelField} field */
function control(field) {
  if (field.kind === "loss") return el("div", {}, controls.loss("", losses));
  if (field.optional) return el("div", {}, controls.optional("", field));
  state.setDefault(field.name, field.value ?? field.min);
  const label = field.label ?? field.name;
  if (field.kind === "choice")
    return controls.select(
      field.name,
      label,
      (field.choices ?? []).map((word) => [word, word]),
    );
  return controls.number(field.name, label, controls.rangeOf(field));
}

export function modelFields() {
  const kind = state.get("model");
  /** @type {Record<string, string | null>} */
  const fields = { model: kind };
  for (const field of models[kind]) {
    if (field.kind === "loss") fields.loss = controls.lossSpec("", losses);
    else if (field.optional) fields[field.name] = controls.optionalValue("", field.name);
    else if (field.label) fields[field.name] = state.get(field.name);
  }
  return fields;
}
