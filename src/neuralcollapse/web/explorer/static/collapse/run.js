// @ts-check
// What rolls downhill, without a picture: a model, where it is, what a hand holds of it, and what was measured.

import { collapse } from "./model/measures.js";
import { leastValue } from "./model/optimum.js";
import { Descent, copyOf, gradientSquare, labelsOf, normal, randomPoint } from "./model/ufm.js";
import { rowScaleOf } from "./picture/arrange.js";
import { History } from "./picture/timeline.js";
import { problemOf } from "./settings.js";

/** @typedef {import("./model/ufm.js").Problem} Problem @typedef {import("./model/ufm.js").Point} Point
 *  @typedef {import("./picture/stage.js").Item} Item @typedef {import("./settings.js").Settings} Settings */

/** How far from zero a start is, in words. */
const STARTS = { zero: 0, small: 0.3, random: 1.2 };

/** Milliseconds of a frame that may go into steps. */
const BUDGET = 11;

export class Run {
  /** @param {Settings} settings */
  constructor(settings) {
    this.history = new History();
    this.problem = problemOf(settings);
    this.labels = labelsOf(this.problem);
    this.descent = new Descent(this.problem, randomPoint(this.problem, 0));
    /** @type {{rows: Map<number, Float64Array>, block: "W" | "H"} | null} what a hand holds */
    this.held = null;
    /** @type {number | null} the least value, where it is known */
    this.least = null;
    /** @type {number | null} */
    this.margin = null;
    /** @type {Record<string, number | null>} */
    this.now = {};
    this.startRadius = 1;
    this.steps = this.debt = this.still = 0;
  }

  /** Begin again. @param {Settings} settings @param {keyof typeof STARTS} start */
  begin(settings, start) {
    this.problem = problemOf(settings);
    this.labels = labelsOf(this.problem);
    const spheres = this.problem.model === "normalized";
    const scale = STARTS[start];
    const point = randomPoint(this.problem, Number(settings.seed) || 0, spheres ? 1 : scale);
    this.descent = new Descent(this.problem, point);
    this.startRadius = spheres ? 1 : Math.max(scale, 0.5);
    this.steps = this.debt = this.still = 0;
    this.history.clear();
    this.#aim();
    this.record();
  }

  /** Another problem of the same sizes, from where it is. @param {Settings} settings */
  change(settings) {
    this.problem = problemOf(settings);
    this.descent.set(this.problem, this.descent.point);
    this.still = 0;
    this.#aim();
    this.record();
  }

  /** What the theory says of the end, where it can be said here. */
  #aim() {
    const known = leastValue(this.problem);
    this.least = known?.value ?? null;
    this.margin = known?.margin ?? null;
  }

  // steps --------------------------------------------------------------------------------------------------------------

  /** So many steps at once. @param {number} steps @param {number} speed */
  advance(steps, speed) {
    this.#pace(speed);
    for (let step = 0; step < steps && this.descent.step(); step++) this.steps += 1;
    this.record();
  }

  /** The steps of one frame; whether it went anywhere. @param {number} speed */
  roll(speed) {
    const until = performance.now() + BUDGET;
    this.#pace(speed);
    this.debt += speed * (this.problem.counts.length > 20 ? 0.5 : 1);
    let went = false;
    while (this.debt >= 1 && performance.now() < until) {
      this.debt -= 1;
      const stepped = this.descent.step();
      if (this.held) this.#keepHeld();
      if (!stepped) {
        this.still += 1;
        break;
      }
      this.steps += 1;
      went = true;
    }
    this.debt = Math.min(this.debt, 4 * speed);
    return went;
  }

  /** Close to the flow at first, where there is something to see; longer steps on the long way to the last digit.
   * @param {number} speed */
  #pace(speed) {
    this.descent.longest = 0.25 * Math.max(1, speed) * 1.01 ** Math.min(this.steps, 600);
  }

  record() {
    const { value, correct, gradient } = this.descent.now;
    this.now = {
      step: this.steps,
      value,
      accuracy: correct,
      gap: this.least === null ? null : Math.max(0, value - this.least),
      ...collapse(this.problem, this.descent.point, this.labels),
      gradient: Math.sqrt(gradientSquare(gradient)),
    };
    this.history.add(this.now);
  }

  // touching it --------------------------------------------------------------------------------------------------------

  /** @param {Point} point */
  #put(point) {
    this.descent.set(this.problem, point);
    this.descent.size = Math.min(this.descent.size, 1);
    this.still = 0;
    this.record();
  }

  /** Push everything in a random direction. @param {number} radius of the picture */
  kick(radius) {
    const draw = normal(this.steps + 17);
    const point = copyOf(this.descent.point);
    const size = (0.25 * radius) / Math.sqrt(this.problem.dim);
    for (const rows of [point.W, point.H]) for (let i = 0; i < rows.length; i++) rows[i] += size * draw();
    this.#put(point);
  }

  /** Go along a direction, such as a certificate's way down. @param {{W: number[], H: number[], b: number[] | null}} way */
  follow(way) {
    const entries = [...way.W, ...way.H, ...(way.b ?? [])];
    const size = (0.3 * this.startRadius) / (Math.hypot(...entries) || 1);
    const point = copyOf(this.descent.point);
    way.W.forEach((entry, i) => (point.W[i] += size * entry));
    way.H.forEach((entry, i) => (point.H[i] += size * entry));
    if (point.b && way.b) for (let i = 0; i < point.b.length; i++) point.b[i] += size * way.b[i];
    this.#put(point);
  }

  /** A hand closes on a sample, a mean with its samples, or a row of the classifier. @param {Item} item */
  grab(item) {
    const own = Array.from(this.labels.keys()).filter((i) => this.labels[i] === item.label);
    const held = item.kind === "row" ? [item.label] : item.kind === "sample" ? [item.index] : own;
    /** @type {"W" | "H"} */
    const block = item.kind === "row" ? "W" : "H";
    const source = this.descent.point[block];
    const { dim } = this.problem;
    this.held = { block, rows: new Map(held.map((row) => [row, source.slice(row * dim, row * dim + dim)])) };
  }

  #keepHeld() {
    if (!this.held) return;
    const point = copyOf(this.descent.point);
    for (const [row, entries] of this.held.rows) point[this.held.block].set(entries, row * this.problem.dim);
    this.descent.set(this.problem, point);
  }

  /** @param {Item} item @param {number[]} by along the three directions of the picture @param {number[][]} basis */
  move(item, by, basis) {
    if (!this.held) return;
    const factor = item.kind === "row" ? rowScaleOf(this.problem) : 1;
    for (const entries of this.held.rows.values()) {
      for (let j = 0; j < entries.length; j++)
        for (let axis = 0; axis < 3; axis++) entries[j] += factor * by[axis] * basis[axis][j];
    }
    this.#keepHeld();
    this.still = 0;
  }

  drop() {
    this.held = null;
    this.#put(this.descent.point);
  }
}
