// @ts-check
// The picture that one can touch: samples, class means, classifier arrows and the simplex they go to, on a canvas that
// turns. It knows nothing of the model: it draws what it is given and tells what was grabbed and how far it was moved.

import { classColour, colour } from "../../page/colours.js";
import { arrow, disc } from "./marks.js";

/** @typedef {import("./pen.js").Brush} Brush
 * @typedef {{kind: "sample" | "mean" | "row", index: number, label: number, at: number[]}} Item */

const REACH = 16;

/** A canvas sharp at any density: its context, width and height in page pixels. @param {HTMLCanvasElement} canvas
 * @returns {[CanvasRenderingContext2D, number, number]} */
export function sharp(canvas) {
  const density = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}

export class Stage {
  /** @param {HTMLCanvasElement} canvas
   * @param {{grab: (item: Item) => void, move: (item: Item, by: number[]) => void, drop: (item: Item) => void} | null} hands
   * what to do with an item that is dragged; null for a picture that only turns */
  constructor(canvas, hands) {
    this.canvas = canvas;
    this.hands = hands;
    this.turn = 0.5;
    this.tilt = 0.3;
    this.radius = 1;
    /** @type {Item[]} */
    this.items = [];
    /** @type {number[][]} */
    this.target = [];
    this.outline = "edges";
    this.selected = 0;
    /** @type {string[] | null} */
    this.names = null;
    /** @type {Item | null} */
    this.held = null;
    /** @type {[number, number] | null} */
    this.last = null;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.#up());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    // A finger on something drags it; anywhere else it turns the picture sideways, and scrolls the page up and down.
    canvas.addEventListener("touchstart", (event) => this.held && event.preventDefault(), { passive: false });
  }

  /** Screen place and depth (larger is nearer) of a point of the picture. @param {number[]} at */
  project([x, y, z]) {
    const [c, s, ct, st] = [Math.cos(this.turn), Math.sin(this.turn), Math.cos(this.tilt), Math.sin(this.tilt)];
    const [side, away] = [c * x + s * z, -s * x + c * z];
    const up = ct * y - st * away;
    const depth = (st * y + ct * away) / this.radius;
    const zoom = (0.4 * Math.min(this.canvas.clientWidth, this.canvas.clientHeight)) / this.radius;
    const near = 1 / (1 - 0.16 * Math.max(-1.5, Math.min(1.5, depth)));
    return {
      x: this.canvas.clientWidth / 2 + zoom * near * side,
      y: this.canvas.clientHeight / 2 - zoom * near * up,
      depth,
      zoom: zoom * near,
    };
  }

  /** The step in the picture's space that a step on the screen stands for. @param {number} dx @param {number} dy
   * @param {number} zoom */
  unproject(dx, dy, zoom) {
    const [c, s, ct, st] = [Math.cos(this.turn), Math.sin(this.turn), Math.cos(this.tilt), Math.sin(this.tilt)];
    const [side, up] = [dx / zoom, -dy / zoom];
    return [c * side + s * st * up, ct * up, s * side - c * st * up];
  }

  /** @param {PointerEvent} event */
  #down(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = event.pointerType === "touch" ? 1.7 * REACH : REACH;
    this.held = null;
    for (const item of this.hands ? this.items : []) {
      const at = this.project(item.at);
      // A mean lies on top of its samples: it wins ties.
      const distance = Math.hypot(at.x - x, at.y - y) - (item.kind === "sample" ? 0 : 4);
      if (distance < best) [this.held, best] = [item, distance];
    }
    this.last = [x, y];
    this.canvas.setPointerCapture(event.pointerId);
    if (this.held) {
      this.selected = this.held.label;
      this.hands?.grab(this.held);
    }
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (!this.last) return;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const [dx, dy] = [x - this.last[0], y - this.last[1]];
    this.last = [x, y];
    if (this.held && this.hands) this.hands.move(this.held, this.unproject(dx, dy, this.project(this.held.at).zoom));
    else this.rotate(dx / 150, dy / 150);
  }

  #up() {
    if (this.held) this.hands?.drop(this.held);
    this.held = null;
    this.last = null;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step && event.shiftKey && this.hands) {
      event.preventDefault();
      const item = this.items.find((entry) => entry.kind === "mean" && entry.label === this.selected);
      if (!item) return;
      this.hands.grab(item);
      this.hands.move(item, this.unproject(14 * step[0], 14 * step[1], this.project(item.at).zoom));
      this.hands.drop(item);
    } else if (step) {
      event.preventDefault();
      this.rotate(0.1 * step[0], 0.1 * step[1]);
    } else if (event.key === "," || event.key === ".") {
      const labels = this.items.filter((item) => item.kind === "mean").map((item) => item.label);
      const place = labels.indexOf(this.selected) + (event.key === "." ? 1 : labels.length - 1);
      this.selected = labels[place % labels.length] ?? 0;
      this.draw();
    }
  }

  /** @param {number} turn @param {number} tilt */
  rotate(turn, tilt) {
    this.turn += turn;
    this.tilt = Math.max(-1.5, Math.min(1.5, this.tilt + tilt));
    this.draw();
  }

  /** @param {Item[]} items @param {number[][]} target @param {string} outline @param {number} radius */
  show(items, target, outline, radius) {
    this.items = items;
    this.target = target;
    this.outline = outline;
    this.radius = radius;
    this.draw();
  }

  draw() {
    const [context, width, height] = sharp(this.canvas);
    if (!width || !height) return;
    this.paint(context);
    const chosen = this.items.find((item) => item.kind === "mean" && item.label === this.selected);
    if (chosen && this.hands && document.activeElement === this.canvas) {
      const at = this.project(chosen.at);
      context.setLineDash([3, 3]);
      disc(context, at, 15, null, colour("accent"), 1.5);
      context.setLineDash([]);
    }
  }

  /** The picture itself, on a canvas or into a file. @param {Brush} context */
  paint(context) {
    const ink = colour("soft");
    const centre = this.project([0, 0, 0]);
    context.lineCap = "round";
    this.#ghost(context, ink);
    const placed = this.items
      .map((item) => ({ item, at: this.project(item.at) }))
      .sort((a, b) => a.at.depth - b.at.depth);
    for (const { item, at } of placed) {
      const shade = classColour(item.label);
      const fade = 0.72 + 0.28 * Math.max(-1, Math.min(1, at.depth));
      context.globalAlpha = fade;
      if (item.kind === "row") {
        context.strokeStyle = shade;
        context.lineWidth = 3;
        context.beginPath();
        context.moveTo(centre.x, centre.y);
        context.lineTo(at.x, at.y);
        context.stroke();
        arrow(context, centre, at, shade);
      } else if (item.kind === "mean") {
        disc(context, at, 9, null, shade, 3);
        context.fillStyle = colour("ink");
        context.font = "600 12px system-ui, sans-serif";
        const away = Math.hypot(at.x - centre.x, at.y - centre.y) || 1;
        context.textAlign = "center";
        context.fillText(
          this.names?.[item.label] ?? String(item.label + 1),
          at.x + (19 * (at.x - centre.x)) / away,
          at.y + (19 * (at.y - centre.y)) / away + 4,
        );
      } else {
        context.globalAlpha = 0.75 * fade;
        disc(context, at, 3.4 * Math.sqrt(at.zoom / centre.zoom), shade, null, 0);
      }
    }
    context.globalAlpha = 1;
  }

  /** @param {Brush} context @param {string} ink */
  #ghost(context, ink) {
    context.globalAlpha = 0.55;
    context.strokeStyle = ink;
    context.lineWidth = 1.2;
    context.setLineDash([5, 5]);
    if (this.outline === "circle") {
      context.beginPath();
      for (let step = 0; step <= 90; step++) {
        const angle = (2 * Math.PI * step) / 90;
        const at = this.project([this.radius * Math.cos(angle), this.radius * Math.sin(angle), 0]);
        if (step) context.lineTo(at.x, at.y);
        else context.moveTo(at.x, at.y);
      }
      context.stroke();
    }
    this.target.forEach((a, i) => {
      for (const b of this.target.slice(i + 1)) {
        const [p, q] = [this.project(a), this.project(b)];
        context.beginPath();
        context.moveTo(p.x, p.y);
        context.lineTo(q.x, q.y);
        context.stroke();
      }
    });
    context.setLineDash([]);
    context.globalAlpha = 1;
  }
}
