// The model of the Optimum and Solve views: its fields, and what they say.

import * as state from "./state.js";
import * as controls from "./controls.js";
import { el } from "./dom.js";

let losses = [];

export function buildModel(about) {
  losses = about.losses;
  controls.lossDefaults("", losses);
  const kind = (...names) => () => names.includes(state.get("model"));
  const { number, only } = controls;
  return el("fieldset", { id: "model" },
    el("legend", {}, "Model"),
    controls.select("model", "Constraint", [
      ["regularized", "weight decay (regularised)"], ["normalized", "unit norms (normalised)"], ["contrastive", "contrastive, no classifier"],
    ]),
    only(kind("regularized", "normalized"), el("div", {}, controls.loss("", losses))),
    number("classes", "classes K", { min: 2, max: 20 }),
    number("per_class", "samples a class n", { min: 1, max: 50 }),
    number("dim", "dimensions d", { min: 1, max: 40 }),
    only(kind("regularized"), el("div", {},
      number("weight_decay", "weight decay λW", { min: 1e-5, max: 1, log: true }),
      number("feature_decay", "feature decay λH", { min: 1e-5, max: 1, log: true }),
      controls.bias(""))),
    only(kind("normalized", "contrastive"), number("temperature", "temperature τ", { min: 0.1, max: 10, step: 0.1 })),
  );
}

export function modelFields() {
  const kind = state.get("model");
  const fields = { model: kind, classes: state.get("classes"), per_class: state.get("per_class"), dim: state.get("dim") };
  if (kind !== "contrastive") fields.loss = controls.lossSpec("", losses);
  if (kind === "regularized") {
    return { ...fields, weight_decay: state.get("weight_decay"), feature_decay: state.get("feature_decay"), bias_decay: controls.biasDecay("") };
  }
  return { ...fields, temperature: state.get("temperature") };
}
