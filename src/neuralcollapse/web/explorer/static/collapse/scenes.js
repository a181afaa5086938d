// @ts-check
// Places to begin, each with two sentences. A scene names only what differs from the first.

/** @typedef {{id: string, title: string, words: string, start: "random" | "zero" | "small", settings: Record<string, string>}} Scene */

/** Settings of the view and what they are at the beginning. @type {Record<string, string>} */
export const BASE = {
  model: "regularized",
  loss: "ce",
  gamma: "3",
  alpha: "0.1",
  target: "1",
  classes: "4",
  per_class: "12",
  dim: "3",
  minority: "1",
  weight_decay: "0.005",
  feature_decay: "0.005",
  bias: "none",
  temperature: "3",
  seed: "1",
};

/** @type {Scene[]} */
export const SCENES = [
  {
    id: "tetrahedron",
    title: "Four clouds, one tetrahedron",
    start: "random",
    settings: {},
    words:
      "Forty-eight free features and four classifier rows, all random, roll downhill under cross-entropy with weight decay. " +
      "Each cloud shrinks to a point (NC1), the points spread to a tetrahedron (NC2), and the arrows turn to them (NC3).",
  },
  {
    id: "decay",
    title: "Decay too strong",
    start: "random",
    settings: { weight_decay: "0.2", feature_decay: "0.2" },
    words:
      "With decays this strong no margin is worth its price, and everything shrinks to zero. " +
      "Lower a decay while it runs: at a sharp threshold the classes come apart again.",
  },
  {
    id: "focal",
    title: "Focal's jump",
    start: "small",
    settings: {
      loss: "focal",
      classes: "100",
      per_class: "1",
      dim: "99",
      weight_decay: "0.0114",
      feature_decay: "0.0114",
      seed: "2",
    },
    words:
      "A hundred classes under the focal loss at a decay where zero and collapse are both local minima: a small start ends at zero, " +
      "though collapse is lower. Press “Kick” a few times, or lower a decay, to get over the ridge.",
  },
  {
    id: "smoothing",
    title: "Label smoothing, too hot",
    start: "random",
    settings: { model: "normalized", loss: "ls", temperature: "6" },
    words:
      "On spheres, above its critical temperature, label smoothing wants a smaller margin than the simplex gives. " +
      "The clouds need not shrink any more: lower the temperature below 2.6 and they do.",
  },
  {
    id: "codes",
    title: "More classes than dimensions",
    start: "random",
    settings: { model: "normalized", classes: "7", dim: "2", per_class: "8", temperature: "6" },
    words:
      "Seven classes on a circle have no room for a simplex, so the classes settle at equal angles. " +
      "Drag a class past its neighbour and watch them share the circle anew.",
  },
  {
    id: "saddle",
    title: "The origin is a saddle",
    start: "zero",
    settings: {},
    words:
      "At zero the gradient vanishes, so descent stays there for ever; the certificate knows better. " +
      "Pause: it names a direction that goes down, and “Escape” takes it.",
  },
  {
    id: "minority",
    title: "Minority collapse",
    start: "random",
    settings: { per_class: "40", minority: "0.05", weight_decay: "0.018", feature_decay: "0.018" },
    words:
      "Two large classes and two small ones: below a count of N² λW λH the small classes share one point, and the classifier cannot tell them apart. " +
      "Lower a decay or raise the minority's share, and they separate.",
  },
];
