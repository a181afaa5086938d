// @ts-check
// What the view depends on, kept in the address: only what differs from the defaults.

import { BASE } from "../collapse/scenes.js";

/** Those of a model's fields come with its declaration (views/model.js). @type {Record<string, string>} */
const defaults = {
  tab: "collapse",
  model: "regularized",
  loss: "cross-entropy",
  curve: "",
  gram: "weight",
  method: "lbfgs",
  seed: "0",
  max_iter: "500",
  "a.loss": "squared-error",
  "b.loss": "cross-entropy",
  "l.classes": "10",
  "l.reach": "3",
  "l.per_class": "100",
  "l.dim": "10",
  study: "",
  "c.scene": "",
  ...Object.fromEntries(Object.keys(BASE).map((name) => [`c.${name}`, ""])),
};

let values = { ...defaults };
/** @type {Set<(name: string | null) => void>} */
const listeners = new Set();

/** @param {string} name */
export const get = (name) => values[name] ?? "";
/** @param {(name: string | null) => void} listener called with the field, or null where all may have changed */
export const whenChanged = (listener) => listeners.add(listener);

/** @param {string} name @param {unknown} value */
export function setDefault(name, value) {
  defaults[name] = String(value);
  values[name] ??= defaults[name];
}

/** @param {string} name @param {unknown} value */
export function set(name, value) {
  if (values[name] === String(value)) return;
  values[name] = String(value);
  save(name === "tab" || name === "study");
  for (const listener of listeners) listener(name);
}

/** Several at once, without telling anyone: for a view that knows already.
 * @param {Record<string, string>} changed @param {boolean} [asNewEntry] */
export function setQuietly(changed, asNewEntry = false) {
  Object.assign(values, changed);
  save(asNewEntry);
}

/** Links of before the first tab was "Collapse" named the fields of "Optimum" alone. @param {Record<string, string>} given */
function tabOf(given) {
  // What "Your network" was called.
  if ("tab" in given) return given.tab === "data" ? "network" : given.tab;
  return Object.keys(given).some((name) => name in defaults && !name.startsWith("c.")) ? "optimum" : defaults.tab;
}

/** @param {boolean} asNewEntry */
function save(asNewEntry) {
  // The tab is always named beside other fields: an address without it is an old one.
  const differs = Object.entries(values).filter(([name, value]) => value !== defaults[name]);
  const changed = differs.length && values.tab === defaults.tab ? [["tab", values.tab], ...differs] : differs;
  const hash = new URLSearchParams(changed).toString();
  const address = hash ? `#${hash}` : location.pathname;
  if (asNewEntry) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

// Only names that are known, so that an address cannot bring in others.
export function load() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  values = { ...defaults };
  for (const name of Object.keys(defaults)) if (name in given) values[name] = given[name];
  values.tab = tabOf(given);
  for (const listener of listeners) listener(null);
}
