// @ts-check
// Directions for a picture of many dimensions: three orthonormal rows in which a few classes show their simplex.

import { eigen } from "../model/measures.js";

/** Rows of a regular simplex of `count` <= 4 unit vectors in three dimensions. @param {number} count */
export function simplex(count) {
  const whole = [
    [1, 1, 1],
    [1, -1, -1],
    [-1, 1, -1],
    [-1, -1, 1],
  ].map((row) => row.map((entry) => entry / Math.sqrt(3)));
  if (count === 4) return whole;
  return Array.from({ length: count }, (_, k) => {
    const angle = Math.PI / 2 + (2 * Math.PI * k) / count;
    return [Math.cos(angle), Math.sin(angle), 0];
  });
}

/** The orthonormal rows nearest to those of a matrix (its polar factor); zero rows stay zero.
 * @param {number[][]} rows */
function polar(rows) {
  const n = rows.length;
  const gram = Float64Array.from(rows.flatMap((a) => rows.map((b) => dot(a, b))));
  const { values, vectors } = eigen(gram, n);
  return rows.map((_, i) =>
    rows[0].map((__, column) => {
      let sum = 0;
      for (let e = 0; e < n; e++) {
        if (!(values[e] > 1e-24 * values[0])) continue;
        let along = 0;
        for (let j = 0; j < n; j++) along += vectors[e * n + j] * rows[j][column];
        sum += (vectors[e * n + i] * along) / Math.sqrt(values[e]);
      }
      return sum;
    }),
  );
}

/** @param {number[]} a @param {number[]} b */
export const dot = (a, b) => a.reduce((sum, entry, i) => sum + entry * b[i], 0);

/** Three orthonormal rows in R^d: `rows` first, then what of `spare` is left after them.
 * @param {number[][]} rows @param {number[][]} spare @param {number} dim */
function completed(rows, spare, dim) {
  const basis = [];
  const units = Array.from({ length: dim }, (_, i) => Array.from({ length: dim }, (__, j) => (i === j ? 1 : 0)));
  for (const row of [...rows, ...spare, ...units]) {
    if (basis.length === Math.min(3, dim)) break;
    const left = row.slice();
    for (const other of basis) {
      const along = dot(left, other);
      for (let j = 0; j < dim; j++) left[j] -= along * other[j];
    }
    const norm = Math.sqrt(dot(left, left));
    if (norm > 1e-6) basis.push(left.map((entry) => entry / norm));
  }
  while (basis.length < 3) basis.push(Array(dim).fill(0));
  return basis;
}

/**
 * The basis of the picture and the simplex that the chosen classes go to, in the picture's coordinates.
 * In up to three dimensions the picture is the space itself; beyond, it is the span of the chosen classes.
 * @param {number[][]} rows centred vectors of the chosen classes @param {number} dim @param {number[][]} before
 * @returns {{basis: number[][], target: number[][]}}
 */
export function pictureOf(rows, dim, before) {
  const corners = simplex(rows.length);
  const pulled = [0, 1, 2].map((axis) =>
    Array.from({ length: dim }, (_, j) => rows.reduce((sum, row, k) => sum + corners[k][axis] * row[j], 0)),
  );
  const known = pulled.some((row) => dot(row, row) > 0);
  const turned = known ? polar(pulled) : pulled;
  if (dim <= 3) {
    const basis = completed([], [], dim);
    return {
      basis,
      target: corners.map((corner) =>
        [0, 1, 2].map((axis) =>
          axis < dim
            ? dot(
                corner,
                turned.map((row) => row[axis]),
              )
            : 0,
        ),
      ),
    };
  }
  return {
    basis: completed(
      turned.filter((row) => dot(row, row) > 0.5),
      before,
      dim,
    ),
    target: corners,
  };
}
