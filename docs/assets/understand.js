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

// What follows from that count for classes of so many samples.
/** @param {number} merges @param {number} perClass */
function whoMerges(merges, perClass) {
  if (merges >= perClass) return "all classes are that small, and nothing is learned";
  const largest = Math.floor(merges);
  if (largest < 1) return "no class is that small; turn the decay or the number of samples up";
  return largest === 1 ? "classes of a single sample merge" : `classes of at most ${largest} samples merge`;
}

/** A number as everywhere in the package: 0.0005 is 5×10⁻⁴. @param {number} number */
function shown(number) {
  const size = Math.abs(number),
    sign = number < 0 ? "−" : "";
  if (size === 0 || (size >= 1e-3 && size < 1e5)) return `${sign}${Number(size.toPrecision(4))}`;
  const [front, power] = size.toExponential(2).split("e");
  const raised = [...String(Number(power))].map((digit) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(digit)]).join("");
  return `${sign}${Number(front)}×10${raised}`;
}

/** @param {HTMLElement} essay */
function update(essay) {
  const read = (/** @type {string} */ name) =>
    Number(/** @type {HTMLInputElement} */ (essay.querySelector(`[name=${name}]`)).value);
  const classes = read("classes"),
    perClass = read("perClass"),
    decay = Number((10 ** read("decay")).toPrecision(2)),
    temperature = read("temperature");
  const best = optimum(classes, perClass, decay, decay);
  const merges = mergesBelow(classes * perClass, decay, decay);
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
    all: classes * perClass,
    merges,
    merging: whoMerges(merges, perClass),
    regime: best.learned ? "all classes are learned" : "nothing is learned: zero is best",
  };
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (essay.querySelectorAll("[data-number]"))) {
    const number = numbers[place.dataset.number ?? ""];
    place.textContent = typeof number === "number" ? shown(number) : number;
  }
}

if (typeof module !== "undefined") {
  module.exports = { optimum, onSpheres, mergesBelow, whoMerges, shown };
} else {
  const essay = /** @type {HTMLElement} */ (document.querySelector(".essay"));
  essay.addEventListener("input", () => update(essay));
  update(essay);
}
