// @ts-check
// Rows of three coordinates as an SVG that turns under the pointer or the arrow keys.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 220;
const RADIUS = 0.88;

/** @param {string} tag @param {Record<string, string | number>} attributes */
function shape(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return /** @type {SVGElement} */ (node);
}

export class Space {
  constructor() {
    this.turn = 0.6;
    this.tilt = 0.35;
    /** @type {[number, number] | null} */
    this.last = null;
    /** @type {Rows3} */
    this.rows = { weight: null, features: [], labels: [] };
    this.node = shape("svg", {
      class: "space",
      viewBox: `${-SIZE} ${-SIZE} ${2 * SIZE} ${2 * SIZE}`,
      tabindex: 0,
      role: "img",
    });
    this.node.addEventListener("pointerdown", (event) => {
      this.last = [event.clientX, event.clientY];
      this.node.setPointerCapture(event.pointerId);
    });
    this.node.addEventListener("pointermove", (event) => {
      if (!this.last) return;
      this.rotate((event.clientX - this.last[0]) / 120, (event.clientY - this.last[1]) / 120);
      this.last = [event.clientX, event.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) this.node.addEventListener(end, () => (this.last = null));
    this.node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, -0.12], ArrowDown: [0, 0.12] }[
        event.key
      ];
      if (!step) return;
      event.preventDefault();
      this.rotate(step[0], step[1]);
    });
  }

  /** @param {number} turn @param {number} tilt */
  rotate(turn, tilt) {
    this.turn += turn;
    this.tilt = Math.max(-1.5, Math.min(1.5, this.tilt + tilt));
    this.draw();
  }

  /** @param {Rows3} rows @param {string} label */
  set(rows, label) {
    this.rows = rows;
    this.node.setAttribute("aria-label", `${label}. Arrow keys turn it.`);
    this.draw();
  }

  /** @param {number[]} at */
  project([x, y, z]) {
    const [c, s, ct, st] = [Math.cos(this.turn), Math.sin(this.turn), Math.cos(this.tilt), Math.sin(this.tilt)];
    const [side, away] = [c * x + s * y, -s * x + c * y];
    const scale = RADIUS * SIZE;
    return { x: scale * side, y: -scale * (ct * z - st * away), depth: ct * away + st * z };
  }

  draw() {
    const { weight, features, labels } = this.rows;
    const colour = (/** @type {number} */ label) => `var(--k${label % 10})`;
    const far = (/** @type {number} */ depth) => (0.62 - 0.38 * depth).toFixed(3);
    /** @type {[number, SVGElement[]][]} */
    const shapes = [];
    features.forEach((row, index) => {
      const at = this.project(row);
      const dot = shape("circle", {
        cx: at.x,
        cy: at.y,
        r: 6,
        stroke: colour(labels[index]),
        "stroke-width": 3,
        fill: "var(--card)",
        opacity: far(at.depth),
      });
      // Without a classifier the features carry the lines.
      const line = weight
        ? []
        : [
            shape("line", {
              x1: 0,
              y1: 0,
              x2: at.x,
              y2: at.y,
              stroke: colour(labels[index]),
              "stroke-width": 2,
              opacity: far(at.depth),
            }),
          ];
      shapes.push([at.depth, [...line, dot]]);
    });
    (weight ?? []).forEach((row, index) => {
      const at = this.project(row);
      const line = shape("line", {
        x1: 0,
        y1: 0,
        x2: at.x,
        y2: at.y,
        stroke: colour(index),
        "stroke-width": 4,
        "stroke-linecap": "round",
        opacity: far(at.depth),
      });
      const tip = shape("circle", { cx: at.x, cy: at.y, r: 10, fill: colour(index), opacity: far(at.depth) });
      const length = Math.hypot(at.x, at.y) || 1;
      const text = shape("text", {
        x: at.x + (20 * at.x) / length,
        y: at.y + (20 * at.y) / length + 6,
        "text-anchor": "middle",
      });
      text.textContent = index < 20 ? String(index + 1) : "";
      shapes.push([at.depth, [line, tip, text]]);
    });
    shapes.sort((a, b) => b[0] - a[0]);
    const rim = shape("circle", {
      cx: 0,
      cy: 0,
      r: RADIUS * SIZE,
      fill: "none",
      stroke: "var(--line)",
      "stroke-dasharray": "3 4",
    });
    this.node.replaceChildren(rim, ...shapes.flatMap(([, nodes]) => nodes));
  }
}
