// What the view depends on, kept in the address: only what differs from the defaults.

const defaults = {
  tab: "optimum", model: "regularized", loss: "cross-entropy", classes: "4", per_class: "10", dim: "8",
  weight_decay: "0.005", feature_decay: "0.005", bias: "none", bias_decay: "0.01", temperature: "2",
  curve: "", gram: "weight", method: "lbfgs", seed: "0", max_iter: "500",
  "a.loss": "squared-error", "b.loss": "cross-entropy", "l.classes": "10", "l.reach": "3", "l.per_class": "100",
  "l.dim": "10", "l.bias": "none", "l.bias_decay": "0.01", study: "",
};

let values = { ...defaults };
const listeners = new Set();

export const get = (name) => values[name] ?? "";
export const whenChanged = (listener) => listeners.add(listener);

export function setDefault(name, value) {
  defaults[name] = String(value);
  values[name] ??= defaults[name];
}

export function set(name, value) {
  if (values[name] === String(value)) return;
  values[name] = String(value);
  save(name === "tab" || name === "study");
  for (const listener of listeners) listener(name);
}

function save(asNewEntry) {
  const changed = Object.entries(values).filter(([name, value]) => value !== defaults[name]);
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
  for (const listener of listeners) listener(null);
}
