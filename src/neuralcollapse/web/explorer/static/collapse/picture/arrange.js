// @ts-check
// Where everything of a point lies in the picture: samples, means, classifier rows, and the simplex that they go to.

import { meansOf } from "../model/measures.js";
import { dot, pictureOf } from "./space3.js";

/** @typedef {import("../model/ufm.js").Problem} Problem @typedef {import("../model/ufm.js").Point} Point */

/** Drawn classifier rows are shorter by this factor: at a minimum lw |w|^2 = n lh |h|^2, so arrows reach their means.
 * @param {Problem} problem */
export function rowScaleOf(problem) {
  if (problem.model === "normalized") return 1;
  const n = problem.counts.reduce((sum, each) => sum + each, 0) / problem.counts.length;
  return Math.sqrt((n * problem.featureDecay) / problem.weightDecay);
}

/**
 * @param {Problem} problem @param {Int32Array} labels @param {Point} point
 * @param {number[]} chosen the classes that the picture is turned to @param {number[][]} before the last basis
 * @param {number | null} margin of the closed form, where it is known
 */
export function arrange(problem, labels, point, chosen, before, margin) {
  const { dim } = problem;
  const count = problem.counts.length;
  const { W, H } = point;
  const { means, centre } = meansOf(H, labels, count, dim);
  const rowScale = rowScaleOf(problem);
  const row = (/** @type {Float64Array} */ rows, /** @type {number} */ index) =>
    Array.from(rows.subarray(index * dim, index * dim + dim));
  const directions = chosen.map((label) =>
    row(W, label).map((entry, j) => entry / rowScale + means[label * dim + j] - centre[j]),
  );
  const middle = directions[0].map((_, j) => directions.reduce((sum, entry) => sum + entry[j], 0) / directions.length);
  const centred = directions.map((entry) => entry.map((part, j) => part - middle[j]));
  const { basis, target } = pictureOf(centred, dim, before);
  const place = (/** @type {number[]} */ vector) => basis.map((axis) => dot(axis, vector));
  const shown = new Set(dim <= 3 ? problem.counts.keys() : chosen);
  /** @type {import("./stage.js").Item[]} */
  const items = [];
  labels.forEach((label, index) => {
    if (shown.has(label)) items.push({ kind: "sample", index, label, at: place(row(H, index)) });
  });
  for (const label of shown) {
    items.push({ kind: "row", index: label, label, at: place(row(W, label).map((entry) => entry / rowScale)) });
    items.push({ kind: "mean", index: label, label, at: place(row(means, label)) });
  }
  const spheres = problem.model === "normalized";
  const theory = spheres ? 1 : margin ? Math.sqrt((margin * (count - 1)) / (count * rowScale)) : 0;
  const reach = (/** @type {boolean} */ samples) =>
    items.reduce(
      (most, item) => ((item.kind === "sample") === samples ? Math.max(most, Math.hypot(...item.at)) : most),
      0,
    );
  const meanNorm = chosen.reduce((sum, label) => sum + Math.hypot(...row(means, label)), 0) / chosen.length;
  const even = problem.counts.every((each) => each === problem.counts[0]);
  const ghost = even && dim >= count - 1 ? theory || meanNorm : 0;
  // The chosen rows of a larger simplex are a smaller simplex about another centre.
  const part = Math.sqrt((count * (chosen.length - 1)) / ((count - 1) * chosen.length));
  const shift = dim > 3 ? place(middle.map((entry) => entry / 2)) : [0, 0, 0];
  return {
    basis,
    items,
    target: ghost ? target.map((corner) => corner.map((entry, axis) => ghost * part * entry + shift[axis])) : [],
    radius: spheres ? 1 : Math.max(reach(false), 0.75 * reach(true), theory),
    /** The samples of a class about their mean, in the picture's coordinates. @param {number} label */
    offsets: (label) =>
      Array.from(labels.keys())
        .filter((i) => labels[i] === label)
        .map((i) => place(row(H, i).map((entry, j) => entry - means[label * dim + j]))),
    /** Cosines between the centred class means. */
    cosines: () => {
      const unit = Array.from({ length: count }, (_, k) => {
        const vector = row(means, k).map((entry, j) => entry - centre[j]);
        const norm = Math.hypot(...vector) || 1;
        return vector.map((entry) => entry / norm);
      });
      return unit.map((a) => unit.map((b) => dot(a, b)));
    },
  };
}
