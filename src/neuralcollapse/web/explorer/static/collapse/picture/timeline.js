// @ts-check
// Curves over the steps of the descent, in panels that share one time cursor.

import { colour } from "../../page/colours.js";
import { raised, show } from "../../page/numbers.js";
import { sharp } from "./stage.js";

/** @typedef {{name: string, words: string, colour: string, dash?: boolean}} Curve
 *  @typedef {{title: string, log: boolean, curves: Curve[], range?: [number, number]}} Panel */

const MOST = 3000;
const FLOOR = 1e-16;

export class History {
  constructor() {
    /** @type {Record<string, number | null>[]} */
    this.rows = [];
    this.stride = 1;
    this.seen = 0;
  }

  clear() {
    this.rows = [];
    this.stride = 1;
    this.seen = 0;
  }

  /** @param {Record<string, number | null>} row */
  add(row) {
    if (this.seen++ % this.stride) return;
    this.rows.push(row);
    if (this.rows.length > MOST) {
      // Every other row goes, and from now on every other one comes: the whole way stays in view.
      this.rows = this.rows.filter((_, index) => index % 2 === 0);
      this.stride *= 2;
    }
  }
}

export class Timeline {
  /** @param {HTMLCanvasElement} canvas @param {Panel[]} panels @param {(row: Record<string, number | null> | null) => void} point */
  constructor(canvas, panels, point) {
    this.canvas = canvas;
    this.panels = panels;
    /** @type {number | null} */
    this.cursor = null;
    this.history = new History();
    /** @type {Record<string, number | null>} */
    this.ends = {};
    const at = (/** @type {PointerEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      this.cursor = (event.clientX - box.left - 52) / (box.width - 64);
      this.draw();
      point(this.row());
    };
    canvas.addEventListener("pointermove", at);
    canvas.addEventListener("pointerdown", at);
    canvas.addEventListener("pointerleave", () => {
      this.cursor = null;
      this.draw();
      point(null);
    });
  }

  /** The row under the cursor. */
  row() {
    const { rows } = this.history;
    if (this.cursor === null || !rows.length) return null;
    return rows[Math.max(0, Math.min(rows.length - 1, Math.round(this.cursor * (rows.length - 1))))];
  }

  draw() {
    const [context, width, height] = sharp(this.canvas);
    if (!width) return;
    const each = height / this.panels.length;
    this.panels.forEach((panel, index) =>
      this.#panel(context, panel, {
        left: 52,
        top: index * each + 20,
        width: width - 64,
        height: each - (index === this.panels.length - 1 ? 38 : 30),
      }),
    );
    const { rows } = this.history;
    if (!rows.length) return;
    const ink = colour("soft");
    context.fillStyle = ink;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillText("0", 52, height - 6);
    context.textAlign = "right";
    context.fillText(`${rows[rows.length - 1].step} steps`, width - 12, height - 6);
    const row = this.row();
    if (row) {
      const x = 52 + (width - 64) * Math.max(0, Math.min(1, /** @type {number} */ (this.cursor)));
      context.strokeStyle = ink;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, 16);
      context.lineTo(x, height - 18);
      context.stroke();
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {Panel} panel
   * @param {{left: number, top: number, width: number, height: number}} box */
  #panel(context, panel, box) {
    const { rows } = this.history;
    const ink = colour("soft");
    const values = panel.curves.flatMap((curve) => [...rows.map((row) => row[curve.name]), this.ends[curve.name]]);
    const numbers = /** @type {number[]} */ (
      values.filter((value) => typeof value === "number" && Number.isFinite(value))
    );
    let [low, high] = panel.range ?? [Math.min(...numbers), Math.max(...numbers)];
    if (!panel.range && !numbers.length) [low, high] = panel.log ? [1e-3, 1] : [0, 1];
    const scale = panel.log
      ? (/** @type {number} */ v) => Math.log10(Math.max(v, FLOOR))
      : (/** @type {number} */ v) => v;
    let [bottom, top] = [scale(low), scale(high)];
    if (panel.log) [bottom, top] = [Math.floor(bottom), Math.max(Math.ceil(top), Math.floor(bottom) + 1)];
    else if (!panel.range) [bottom, top] = [bottom - 0.05 * (top - bottom || 1), top + 0.05 * (top - bottom || 1)];
    // A curve along an edge of its range stays whole.
    const y = (/** @type {number} */ v) => box.top + 2 + (box.height - 4) * (1 - (scale(v) - bottom) / (top - bottom));
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.lineWidth = 1;
    const ticks = panel.log ? decades(bottom, top) : rounds(bottom, top);
    for (const tick of ticks) {
      const place = panel.log ? y(10 ** tick) : y(tick);
      context.strokeStyle = colour("grid");
      context.beginPath();
      context.moveTo(box.left, place);
      context.lineTo(box.left + box.width, place);
      context.stroke();
      context.fillStyle = ink;
      context.fillText(panel.log ? power(tick) : show(tick, 3), box.left - 5, place + 4);
    }
    context.textAlign = "left";
    let across = box.left;
    context.font = "600 12px system-ui, sans-serif";
    context.fillStyle = colour("ink");
    if (panel.title) {
      context.fillText(panel.title, across, box.top - 7);
      across += context.measureText(panel.title).width + 12;
    }
    const step = box.width / Math.max(1, rows.length - 1);
    for (const curve of panel.curves) {
      const shade = colour(curve.colour);
      context.fillStyle = shade;
      context.fillText(curve.words, across, box.top - 7);
      across += context.measureText(curve.words).width + 12;
      context.strokeStyle = shade;
      context.lineWidth = 2;
      context.beginPath();
      let down = false;
      rows.forEach((row, index) => {
        const value = row[curve.name];
        if (value === null || value === undefined || !Number.isFinite(value)) {
          down = false;
          return;
        }
        if (down) context.lineTo(box.left + index * step, y(value));
        else context.moveTo(box.left + index * step, y(value));
        down = true;
      });
      context.stroke();
      const end = this.ends[curve.name];
      if (typeof end === "number") {
        context.setLineDash([5, 4]);
        context.lineWidth = 1.3;
        context.beginPath();
        context.moveTo(box.left, y(end));
        context.lineTo(box.left + box.width, y(end));
        context.stroke();
        context.setLineDash([]);
      }
    }
  }
}

/** Two to five round numbers: multiples of 1, 2 or 5 times a power of ten. @param {number} bottom @param {number} top */
function rounds(bottom, top) {
  const span = top - bottom || 1;
  const unit = 10 ** Math.floor(Math.log10(span / 2));
  const step = unit * /** @type {number} */ ([1, 2, 5].findLast((multiple) => 2 * multiple * unit <= span) || 1);
  const ticks = [];
  for (let n = Math.ceil(bottom / step - 1e-9); n * step <= top + 1e-9 * span; n++) ticks.push(n * step);
  return ticks;
}

/** At most five powers of ten. @param {number} bottom @param {number} top */
function decades(bottom, top) {
  const every = Math.max(1, Math.ceil((top - bottom) / 4));
  const ticks = [];
  for (let tick = top; tick >= bottom; tick -= every) ticks.push(tick);
  return ticks;
}

/** @param {number} exponent */
function power(exponent) {
  if (exponent === 0) return "1";
  return `10${raised(exponent)}`;
}
