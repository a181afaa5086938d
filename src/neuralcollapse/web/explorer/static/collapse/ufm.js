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
export function uniform(seed) {
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
export function onSphere(point, dim) {
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
const squareOf = (a) => a.reduce((sum, entry) => sum + entry * entry, 0);

/** Gradient descent with a step that is halved until the value falls (Armijo) and grows again. A feature's gradient is of
 * the size 1/N, a classifier row's of 1/K: the features take steps N/K times as long, so that both move. */
export class Descent {
  /** @param {Problem} problem @param {Point} point */
  constructor(problem, point) {
    this.size = 1;
    /** No step is longer, so that what is seen is close to the gradient flow. */
    this.longest = Infinity;
    this.time = 0;
    this.set(problem, point);
  }

  /** Go on with another problem of the same sizes, or from another point. @param {Problem} problem @param {Point} point */
  set(problem, point) {
    this.problem = problem;
    this.labels = labelsOf(problem);
    this.point = problem.model === "normalized" ? onSphere(copyOf(point), problem.dim) : copyOf(point);
    this.now = evaluate(problem, this.point, this.labels);
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

/** The loss of a sample whose own logit leads all others by `margin`. @param {Loss} loss @param {number} margin
 * @param {number} count */
export function marginLoss(loss, margin, count) {
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
