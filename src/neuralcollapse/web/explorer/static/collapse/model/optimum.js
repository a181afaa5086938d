// @ts-check
// The closed form of the least value, where it is known here.

import { sampleLoss } from "./ufm.js";

/** @typedef {import("./ufm.js").Problem} Problem @typedef {import("./ufm.js").Loss} Loss */

/** The loss of a sample whose own logit leads all others by `margin`. @param {Loss} loss @param {number} margin
 * @param {number} count */
function marginLoss(loss, margin, count) {
  const logits = new Float64Array(count);
  logits[0] = margin;
  return sampleLoss(loss, logits, 0, new Float64Array(count));
}

/**
 * The least value of a balanced problem with room for a simplex (d >= K-1), where it is known here: the minimum over
 * margins a >= 0 of loss(a) + (K-1) sqrt(n lw lh) a, or of loss(a) up to K tau/(K-1) on spheres. Null elsewhere (a bias can
 * break the symmetry).
 * @param {Problem} problem @returns {{value: number, margin: number} | null}
 */
export function leastValue(problem) {
  const count = problem.counts.length;
  const each = problem.counts[0];
  if (
    problem.loss.kind === "mse" ||
    problem.biasDecay !== null ||
    problem.counts.some((other) => other !== each) ||
    problem.dim < count - 1
  )
    return null;
  const strength =
    problem.model === "normalized" ? 0 : (count - 1) * Math.sqrt(each * problem.weightDecay * problem.featureDecay);
  const reach = problem.model === "normalized" ? (count * problem.temperature) / (count - 1) : 60;
  if (problem.model === "regularized" && strength === 0) return null;
  const cost = (/** @type {number} */ a) => marginLoss(problem.loss, a, count) + strength * a;
  let best = 0;
  const cells = 600;
  for (let i = 0; i <= cells; i++) if (cost((reach * i) / cells) < cost((reach * best) / cells)) best = i;
  let [low, high] = [(reach * Math.max(0, best - 1)) / cells, (reach * Math.min(cells, best + 1)) / cells];
  const golden = (Math.sqrt(5) - 1) / 2;
  for (let i = 0; i < 90; i++) {
    const [a, b] = [high - golden * (high - low), low + golden * (high - low)];
    if (cost(a) <= cost(b)) high = b;
    else low = a;
  }
  const candidates = [(low + high) / 2, 0, reach];
  const margin = candidates.reduce((one, other) => (cost(other) < cost(one) ? other : one));
  return { value: cost(margin), margin };
}
