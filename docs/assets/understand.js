// @ts-check
// The numbers of the essay "Understand it": closed forms of cross-entropy, as in docs/theory.md, while sliders move.
"use strict";

// Global minimum of the regularised model without bias, balanced classes, d >= K - 1.
/** @param {number} classes @param {number} perClass @param {number} weightDecay @param {number} featureDecay */
function optimum(classes, perClass, weightDecay, featureDecay) {
  const s = Math.sqrt(perClass * weightDecay * featureDecay);
  if (s >= 1 / classes) {
    return { learned: false, margin: 0, right: 1 / classes, value: Math.log(classes), weight: 0, feature: 0 };
  }
  const margin = Math.log(1 / s - classes + 1);
  const right = 1 - (classes - 1) * s;
  const value = -right * Math.log(right) - (classes - 1) * s * Math.log(s);
  const share = (margin * (classes - 1)) / classes;
  const balance = Math.sqrt((perClass * featureDecay) / weightDecay);
  return {
    learned: true,
    margin,
    right,
    value,
    weight: Math.sqrt(share * balance),
    feature: Math.sqrt(share / balance),
  };
}

// Global minimum on spheres, cross-entropy, d >= K - 1.
/** @param {number} classes @param {number} temperature */
function onSpheres(classes, temperature) {
  return Math.log1p((classes - 1) * Math.exp((-classes * temperature) / (classes - 1)));
}

// Classes of at most so many samples merge, in cross-entropy with N samples in all.
/** @param {number} samples @param {number} weightDecay @param {number} featureDecay */
function mergesBelow(samples, weightDecay, featureDecay) {
  return samples ** 2 * weightDecay * featureDecay;
}

/** @param {number} number */
function shown(number) {
  if (number === 0) return "0";
  return Math.abs(number) < 1e-3 || Math.abs(number) >= 1e5
    ? number.toExponential(2)
    : String(Number(number.toPrecision(4)));
}

/** @param {HTMLElement} essay */
function update(essay) {
  const read = (/** @type {string} */ name) =>
    Number(/** @type {HTMLInputElement} */ (essay.querySelector(`[name=${name}]`)).value);
  const classes = read("classes"),
    perClass = read("perClass"),
    decay = 10 ** read("decay"),
    temperature = read("temperature");
  const best = optimum(classes, perClass, decay, decay);
  /** @type {Record<string, number | string>} */
  const numbers = {
    classes,
    perClass,
    decay,
    temperature,
    value: best.value,
    margin: best.margin,
    weight: best.weight,
    feature: best.feature,
    right: `${shown(100 * best.right)} %`,
    cosine: -1 / (classes - 1),
    angle: (Math.acos(-1 / (classes - 1)) * 180) / Math.PI,
    chance: Math.log(classes),
    largest: 1 / (classes * Math.sqrt(perClass)),
    sphere: onSpheres(classes, temperature),
    merges: mergesBelow(classes * perClass, decay, decay),
    regime: best.learned ? "all classes are learned" : "nothing is learned: zero is best",
  };
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (essay.querySelectorAll("[data-number]"))) {
    const number = numbers[place.dataset.number ?? ""];
    place.textContent = typeof number === "number" ? shown(number) : number;
  }
}

if (typeof module !== "undefined") {
  module.exports = { optimum, onSpheres, mergesBelow };
} else {
  const essay = /** @type {HTMLElement} */ (document.querySelector(".essay"));
  essay.addEventListener("input", () => update(essay));
  update(essay);
}
