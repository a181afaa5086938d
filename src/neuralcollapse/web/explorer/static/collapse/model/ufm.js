// @ts-check
// Small unconstrained feature models: value, gradient, a descent step, and the measures of collapse. No page in here, so
// that node can test it against the package.
//
// K classes, N samples of d dimensions; rows of W (K, d) and H (N, d) lie one after another in flat arrays.
//   regularized: (1/N) sum of loss(W h_i + b, y_i) + lw/2 |W|^2 + lh/2 |H|^2 + lb/2 |b|^2
//   normalized:  (1/N) sum of loss(tau W h_i, y_i), all rows of unit norm

/**
 * @typedef {{kind: "ce"} | {kind: "focal", gamma: number} | {kind: "ls", alpha: number} |
 *   {kind: "mse", alpha: number, target: number}} Loss
 * @typedef {{model: "regularized" | "normalized", loss: Loss, counts: number[], dim: number, weightDecay: number,
 *   featureDecay: number, biasDecay: number | null, temperature: number}} Problem
 * @typedef {{W: Float64Array, H: Float64Array, b: Float64Array | null}} Point
 */

/** @param {Problem} problem @returns {Int32Array} the class of every sample */
export function labelsOf(problem) {
  return Int32Array.from(problem.counts.flatMap((count, label) => Array(count).fill(label)));
}

/** A stream of uniform numbers in [0, 1) from a seed (mulberry32). @param {number} seed */
function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Standard normal numbers from a seed (Box and Muller). @param {number} seed */
export function normal(seed) {
  const next = uniform(seed);
  return () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

/** @param {Problem} problem @param {number} seed @param {number} [scale] @returns {Point} */
export function randomPoint(problem, seed, scale = 1) {
  const draw = normal(seed);
  const size = scale / Math.sqrt(problem.dim);
  const samples = problem.counts.reduce((sum, count) => sum + count, 0);
  const fill = (/** @type {number} */ length) => Float64Array.from({ length }, () => size * draw());
  const bias = problem.model === "regularized" && problem.biasDecay !== null;
  const point = {
    W: fill(problem.counts.length * problem.dim),
    H: fill(samples * problem.dim),
    b: bias ? new Float64Array(problem.counts.length) : null,
  };
  return problem.model === "normalized" ? onSphere(point, problem.dim) : point;
}

/** All rows at unit norm, in place. @param {Point} point @param {number} dim */
function onSphere(point, dim) {
  for (const rows of [point.W, point.H]) {
    for (let start = 0; start < rows.length; start += dim) {
      let square = 0;
      for (let i = 0; i < dim; i++) square += rows[start + i] ** 2;
      const norm = Math.sqrt(square) || 1;
      for (let i = 0; i < dim; i++) rows[start + i] /= norm;
    }
  }
  return point;
}

/**
 * The loss of one sample, and its gradient into `out`.
 * @param {Loss} loss @param {Float64Array} logits @param {number} label @param {Float64Array} out
 */
export function sampleLoss(loss, logits, label, out) {
  const count = logits.length;
  if (loss.kind === "mse") {
    let value = 0;
    for (let k = 0; k < count; k++) {
      const weight = k === label ? loss.alpha : 1;
      const difference = logits[k] - (k === label ? loss.target : 0);
      out[k] = weight * difference;
      value += 0.5 * weight * difference * difference;
    }
    return value;
  }
  let largest = -Infinity;
  for (let k = 0; k < count; k++) largest = Math.max(largest, logits[k]);
  let total = 0;
  let others = 0;
  for (let k = 0; k < count; k++) {
    const part = Math.exp(logits[k] - largest);
    total += part;
    if (k !== label) others += part;
    out[k] = part;
  }
  const lead = logits[label] - largest;
  // log(1 + x) keeps the digits of a loss near zero.
  const minusLog = lead === 0 ? Math.log1p(others) : Math.log(total) - lead;
  for (let k = 0; k < count; k++) out[k] /= total;
  if (loss.kind === "focal") {
    const wrong = others / total;
    const own = out[label];
    const power = wrong ** loss.gamma;
    // d/dz of (1-p)^gamma (-log p): -(gamma (1-p)^(gamma-1) (-log p) p + (1-p)^gamma) (e_y - softmax)
    const slope =
      loss.gamma === 0 ? 1 : power + (wrong > 0 ? loss.gamma * wrong ** (loss.gamma - 1) * minusLog * own : 0);
    for (let k = 0; k < count; k++) out[k] = k === label ? -slope * wrong : slope * out[k];
    return power * minusLog;
  }
  if (loss.kind === "ls") {
    let mean = 0;
    for (let k = 0; k < count; k++) mean += (largest - logits[k]) / count;
    const logTotal = Math.log(total);
    const own = out[label];
    for (let k = 0; k < count; k++) out[k] -= loss.alpha / count;
    out[label] = own - (1 - loss.alpha) - loss.alpha / count;
    return (1 - loss.alpha) * minusLog + loss.alpha * (logTotal + mean);
  }
  out[label] = -others / total;
  return minusLog;
}

/**
 * Value and gradient (on spheres the Riemannian one).
 * @param {Problem} problem @param {Point} point @param {Int32Array} labels
 * @returns {{value: number, gradient: Point, correct: number}}
 */
export function evaluate(problem, point, labels) {
  const { dim } = problem;
  const count = problem.counts.length;
  const samples = labels.length;
  const scale = problem.model === "normalized" ? problem.temperature : 1;
  const gradient = {
    W: new Float64Array(point.W.length),
    H: new Float64Array(point.H.length),
    b: point.b ? new Float64Array(count) : null,
  };
  const logits = new Float64Array(count);
  const slope = new Float64Array(count);
  let value = 0;
  let correct = 0;
  for (let i = 0; i < samples; i++) {
    const row = i * dim;
    let best = 0;
    for (let k = 0; k < count; k++) {
      let product = 0;
      for (let j = 0; j < dim; j++) product += point.W[k * dim + j] * point.H[row + j];
      logits[k] = scale * product + (point.b ? point.b[k] : 0);
      if (logits[k] > logits[best]) best = k;
    }
    if (best === labels[i]) correct += 1;
    value += sampleLoss(problem.loss, logits, labels[i], slope) / samples;
    for (let k = 0; k < count; k++) {
      const factor = (scale * slope[k]) / samples;
      for (let j = 0; j < dim; j++) {
        gradient.W[k * dim + j] += factor * point.H[row + j];
        gradient.H[row + j] += factor * point.W[k * dim + j];
      }
      if (gradient.b) gradient.b[k] += slope[k] / samples;
    }
  }
  if (problem.model === "normalized") {
    tangent(point.W, gradient.W, dim);
    tangent(point.H, gradient.H, dim);
  } else {
    value += decay(problem.weightDecay, point.W, gradient.W) + decay(problem.featureDecay, point.H, gradient.H);
    if (point.b && gradient.b) value += decay(problem.biasDecay ?? 0, point.b, gradient.b);
  }
  return { value, gradient, correct: correct / samples };
}

/** @param {number} strength @param {Float64Array} entries @param {Float64Array} slope */
function decay(strength, entries, slope) {
  let square = 0;
  for (let i = 0; i < entries.length; i++) {
    square += entries[i] * entries[i];
    slope[i] += strength * entries[i];
  }
  return 0.5 * strength * square;
}

/** @param {Float64Array} rows @param {Float64Array} slope @param {number} dim */
function tangent(rows, slope, dim) {
  for (let start = 0; start < rows.length; start += dim) {
    let product = 0;
    for (let j = 0; j < dim; j++) product += rows[start + j] * slope[start + j];
    for (let j = 0; j < dim; j++) slope[start + j] -= product * rows[start + j];
  }
}

/** @param {Point} point @returns {Point} */
export function copyOf(point) {
  return { W: point.W.slice(), H: point.H.slice(), b: point.b ? point.b.slice() : null };
}

/** point + size * direction, the features' part `stretch` times longer. @param {Point} point @param {Point} direction
 * @param {number} size @param {number} stretch @returns {Point} */
function moved(point, direction, size, stretch) {
  return {
    W: point.W.map((entry, i) => entry + size * direction.W[i]),
    H: point.H.map((entry, i) => entry + size * stretch * direction.H[i]),
    b:
      point.b && direction.b
        ? point.b.map((entry, i) => entry + size * /** @type {Float64Array} */ (direction.b)[i])
        : null,
  };
}

/** @param {Float64Array} a */
export const squareOf = (a) => a.reduce((sum, entry) => sum + entry * entry, 0);

/** Gradient descent with a step that is halved until the value falls (Armijo) and grows again. A feature's gradient is of
 * the size 1/N, a classifier row's of 1/K: the features take steps N/K times as long, so that both move. */
export class Descent {
  /** @param {Problem} problem @param {Point} point */
  constructor(problem, point) {
    this.size = 1;
    /** No step is longer, so that what is seen is close to the gradient flow. */
    this.longest = Infinity;
    this.time = 0;
    this.problem = problem;
    this.labels = labelsOf(problem);
    this.point = point;
    this.now = this.#at(problem, point);
  }

  /** Go on with another problem of the same sizes, or from another point. @param {Problem} problem @param {Point} point */
  set(problem, point) {
    this.problem = problem;
    this.labels = labelsOf(problem);
    this.now = this.#at(problem, point);
  }

  /** @param {Problem} problem @param {Point} point */
  #at(problem, point) {
    this.point = problem.model === "normalized" ? onSphere(copyOf(point), problem.dim) : copyOf(point);
    return evaluate(problem, this.point, this.labels);
  }

  /** @returns {boolean} whether a step was possible */
  step() {
    const { problem, now } = this;
    const stretch = this.labels.length / problem.counts.length;
    const slope =
      squareOf(now.gradient.W) + stretch * squareOf(now.gradient.H) + (now.gradient.b ? squareOf(now.gradient.b) : 0);
    if (!(slope > 1e-25)) return false;
    this.size = Math.min(this.size, this.longest);
    for (let tries = 0; tries < 50; tries++) {
      let next = moved(this.point, now.gradient, -this.size, stretch);
      if (problem.model === "normalized") next = onSphere(next, problem.dim);
      const there = evaluate(problem, next, this.labels);
      // Near the minimum the fall is below the rounding of the value: a smaller gradient counts there.
      const close =
        Math.abs(there.value - now.value) <= 4e-15 * Math.abs(now.value) &&
        gradientSquare(there.gradient) < gradientSquare(now.gradient);
      if (there.value <= now.value - 1e-4 * this.size * slope || close) {
        this.time += this.size;
        this.point = next;
        this.now = there;
        this.size *= 1.25;
        return true;
      }
      this.size *= 0.5;
    }
    return false;
  }
}

/** @param {Point} gradient */
export function gradientSquare(gradient) {
  return squareOf(gradient.W) + squareOf(gradient.H) + (gradient.b ? squareOf(gradient.b) : 0);
}
