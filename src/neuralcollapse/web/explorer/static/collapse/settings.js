// @ts-check
// What the view can be set to, and the problem that this stands for.

import { BASE, SCENES } from "./scenes.js";

/** @typedef {import("./model/ufm.js").Problem} Problem @typedef {Record<string, string>} Settings */

const LIMITS = { classes: 100, samples: 400, dim: 100 };

/** Fields that begin a new run; the others change while it goes on. */
export const SIZES = ["model", "classes", "per_class", "dim", "minority", "bias"];

/** @typedef {{name: string, words: string, min: number, max: number, step?: number, log?: boolean}} Slider @type {Slider[]} */
export const SLIDERS = [
  { name: "classes", words: "classes K", min: 2, max: 12, step: 1 },
  { name: "per_class", words: "samples a class n", min: 1, max: 40, step: 1 },
  { name: "dim", words: "dimensions d", min: 1, max: 12, step: 1 },
  { name: "minority", words: "minority's share", min: 0.02, max: 1, log: true },
  { name: "weight_decay", words: "weight decay λW", min: 1e-4, max: 1, log: true },
  { name: "feature_decay", words: "feature decay λH", min: 1e-4, max: 1, log: true },
  { name: "temperature", words: "temperature τ", min: 0.1, max: 30, log: true },
  { name: "gamma", words: "focal γ", min: 0, max: 8, step: 0.1 },
  { name: "alpha", words: "smoothing α", min: 0.01, max: 0.9, log: true },
  { name: "target", words: "target M", min: 0.5, max: 20, log: true },
];

/** @type {{name: string, words: string, options: Settings}[]} */
export const CHOICES = [
  { name: "model", words: "model", options: { regularized: "weight decay", normalized: "spheres" } },
  {
    name: "loss",
    words: "loss",
    options: { ce: "cross-entropy", focal: "focal", ls: "label smoothing", mse: "squared error" },
  },
  { name: "bias", words: "bias", options: { none: "none", free: "free" } },
];

/** Whether a field says anything under these settings. @param {string} name @param {Settings} settings */
export function applies(name, settings) {
  const spheres = settings.model === "normalized";
  if (["weight_decay", "feature_decay", "bias"].includes(name)) return !spheres;
  if (name === "temperature") return spheres;
  const own = /** @type {Settings} */ ({ gamma: "focal", alpha: "ls", target: "mse" })[name];
  return own === undefined || own === settings.loss;
}

/** All settings: the scene's, where the address says nothing else. @param {Settings} given @returns {Settings} */
export function settingsOf(given) {
  return { ...BASE, ...SCENES.find((entry) => entry.id === given.scene)?.settings, ...given };
}

/** @param {string} text @param {number} low @param {number} high */
const bounded = (text, low, high) => Math.max(low, Math.min(high, Math.round(Number(text)) || low));

/** Counts of the classes: the second half of them may be a minority. @param {Settings} settings */
function countsOf(settings) {
  const count = bounded(settings.classes, 2, LIMITS.classes);
  const each = bounded(settings.per_class, 1, Math.floor(LIMITS.samples / count));
  const small = Math.max(1, Math.round(each * Number(settings.minority)));
  return Array.from({ length: count }, (_, k) => (k < Math.ceil(count / 2) ? each : Math.min(each, small)));
}

/** @param {Settings} settings @returns {Problem} */
export function problemOf(settings) {
  const positive = (/** @type {string} */ name) => Math.max(0, Number(settings[name])) || Number(BASE[name]);
  /** @type {Record<string, import("./model/ufm.js").Loss>} */
  const losses = {
    focal: { kind: "focal", gamma: Math.max(0, Number(settings.gamma) || 0) },
    ls: { kind: "ls", alpha: Math.min(0.99, positive("alpha")) },
    mse: { kind: "mse", alpha: 1, target: positive("target") },
  };
  return {
    model: settings.model === "normalized" ? "normalized" : "regularized",
    loss: losses[settings.loss] ?? { kind: "ce" },
    counts: countsOf(settings),
    dim: bounded(settings.dim, 1, LIMITS.dim),
    weightDecay: positive("weight_decay"),
    featureDecay: positive("feature_decay"),
    biasDecay: settings.bias === "free" ? 0 : null,
    temperature: positive("temperature"),
  };
}
