// @ts-check
// The measures of collapse as the package defines them, of a point of a small model.

import { squareOf } from "./ufm.js";

/** @typedef {import("./ufm.js").Problem} Problem @typedef {import("./ufm.js").Point} Point */

/** Means of the classes (K, d), of all samples (d), and the counts. @param {Float64Array} H @param {Int32Array} labels
 * @param {number} count @param {number} dim */
export function meansOf(H, labels, count, dim) {
  const means = new Float64Array(count * dim);
  const sizes = new Float64Array(count);
  for (let i = 0; i < labels.length; i++) sizes[labels[i]] += 1;
  for (let i = 0; i < labels.length; i++) {
    for (let j = 0; j < dim; j++) means[labels[i] * dim + j] += H[i * dim + j] / sizes[labels[i]];
  }
  const centre = new Float64Array(dim);
  for (let k = 0; k < count; k++)
    for (let j = 0; j < dim; j++) centre[j] += (sizes[k] / labels.length) * means[k * dim + j];
  return { means, centre, sizes };
}

/** Eigenvalues (falling) and rows of eigenvectors of a symmetric matrix, by Jacobi's rotations.
 * @param {Float64Array} matrix @param {number} n */
export function eigen(matrix, n) {
  const a = matrix.slice();
  const v = new Float64Array(n * n);
  for (let i = 0; i < n; i++) v[i * n + i] = 1;
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    let size = 0;
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++) i === j ? (size += a[i * n + j] ** 2) : (off += a[i * n + j] ** 2);
    if (off <= 1e-34 * (size + off)) break;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        const between = a[p * n + q];
        if (between === 0) continue;
        const theta = (a[q * n + q] - a[p * n + p]) / (2 * between);
        const t = Math.sign(theta || 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(t * t + 1);
        const s = t * c;
        for (let i = 0; i < n; i++) {
          const [x, y] = [a[i * n + p], a[i * n + q]];
          a[i * n + p] = c * x - s * y;
          a[i * n + q] = s * x + c * y;
        }
        for (let i = 0; i < n; i++) {
          const [x, y] = [a[p * n + i], a[q * n + i]];
          a[p * n + i] = c * x - s * y;
          a[q * n + i] = s * x + c * y;
          const [f, g] = [v[p * n + i], v[q * n + i]];
          v[p * n + i] = c * f - s * g;
          v[q * n + i] = s * f + c * g;
        }
      }
    }
  }
  const order = Array.from({ length: n }, (_, i) => i).sort((i, j) => a[j * n + j] - a[i * n + i]);
  return {
    values: Float64Array.from(order, (i) => a[i * n + i]),
    vectors: Float64Array.from(order.flatMap((i) => Array.from(v.subarray(i * n, i * n + n)))),
  };
}

/** | A/|A|_F - (I - 11'/K)/sqrt(K-1) |_F for A = left right'. @param {Float64Array} left @param {Float64Array} right
 * @param {number} count @param {number} dim @returns {number | null} */
function gramDistance(left, right, count, dim) {
  const product = new Float64Array(count * count);
  for (let k = 0; k < count; k++) {
    for (let l = 0; l < count; l++) {
      for (let j = 0; j < dim; j++) product[k * count + l] += left[k * dim + j] * right[l * dim + j];
    }
  }
  const size = Math.sqrt(squareOf(product));
  if (size === 0) return null;
  let square = 0;
  for (let k = 0; k < count; k++) {
    for (let l = 0; l < count; l++) {
      const target = ((k === l ? 1 : 0) - 1 / count) / Math.sqrt(count - 1);
      square += (product[k * count + l] / size - target) ** 2;
    }
  }
  return Math.sqrt(square);
}

/**
 * nc1, nc2, nc3 and nc4_mismatch as the package defines them; null where one does not apply.
 * @param {Problem} problem @param {Point} point @param {Int32Array} labels
 */
export function collapse(problem, point, labels) {
  const { dim } = problem;
  const count = problem.counts.length;
  const { means, centre } = meansOf(point.H, labels, count, dim);
  const centred = means.map((entry, i) => entry - centre[i % dim]);
  const gram = new Float64Array(count * count);
  for (let k = 0; k < count; k++) {
    for (let l = 0; l < count; l++) {
      for (let j = 0; j < dim; j++) gram[k * count + l] += centred[k * dim + j] * centred[l * dim + j];
    }
  }
  // One sample a class has no spread; the eigenvectors would be the costly part of many classes.
  const alone = labels.length === count;
  const { values, vectors } = alone ? { values: new Float64Array(count), vectors: gram } : eigen(gram, count);
  let nc1 = 0;
  let used = alone ? 1 : 0;
  for (let i = 0; !alone && i < Math.min(count - 1, dim); i++) {
    // The means themselves carry float64's rounding: below it there is no direction.
    if (!(values[i] > 1e-26 * values[0]) || values[i] <= 0) break;
    const direction = new Float64Array(dim);
    for (let k = 0; k < count; k++)
      for (let j = 0; j < dim; j++) direction[j] += vectors[i * count + k] * centred[k * dim + j];
    const norm = Math.sqrt(squareOf(direction));
    let spread = 0;
    for (let s = 0; s < labels.length; s++) {
      let along = 0;
      for (let j = 0; j < dim; j++) along += (point.H[s * dim + j] - means[labels[s] * dim + j]) * direction[j];
      spread += (along / norm) ** 2 / labels.length;
    }
    // tr(S_W S_B^+)/K with S_B = (1/K) sum of centred means: the K's cancel.
    nc1 += spread / (norm * norm);
    used += 1;
  }
  let mismatches = 0;
  const scale = problem.model === "normalized" ? problem.temperature : 1;
  for (let s = 0; s < labels.length; s++) {
    let [best, near, top, least] = [0, 0, -Infinity, Infinity];
    for (let k = 0; k < count; k++) {
      let logit = point.b ? point.b[k] : 0;
      let distance = 0;
      for (let j = 0; j < dim; j++) {
        logit += scale * point.W[k * dim + j] * point.H[s * dim + j];
        distance += (point.H[s * dim + j] - means[k * dim + j]) ** 2;
      }
      if (logit > top) [best, top] = [k, logit];
      if (distance < least) [near, least] = [k, distance];
    }
    if (best !== near) mismatches += 1;
  }
  const room = dim >= count - 1;
  return {
    nc1: used ? nc1 : null,
    nc2: room ? gramDistance(point.W, point.W, count, dim) : null,
    nc3: room ? gramDistance(point.W, centred, count, dim) : null,
    nc4: mismatches / labels.length,
  };
}
