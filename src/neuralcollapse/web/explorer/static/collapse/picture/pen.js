// @ts-check
// A pen that draws on an SVG what it would draw on a canvas: one drawing code for the page and for the file.

/** What pictures here ask of a canvas.
 * @typedef {Pick<CanvasRenderingContext2D, "globalAlpha" | "strokeStyle" | "fillStyle" | "lineWidth" | "lineCap" | "font" |
 *   "textAlign" | "setLineDash" | "beginPath" | "moveTo" | "lineTo" | "arc" | "stroke" | "fill" | "fillText">} Brush */

/** @param {number} value */
const short = (value) => String(Number(value.toFixed(2)));

/** @param {string} text */
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");

const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" };

/** @implements {Brush} */
export class SvgPen {
  constructor() {
    this.globalAlpha = 1;
    /** @type {string | CanvasGradient | CanvasPattern} */
    this.strokeStyle = "";
    /** @type {string | CanvasGradient | CanvasPattern} */
    this.fillStyle = "";
    this.lineWidth = 1;
    /** @type {CanvasLineCap} */
    this.lineCap = "butt";
    this.font = "12px system-ui, sans-serif";
    /** @type {CanvasTextAlign} */
    this.textAlign = "start";
    /** @type {number[]} */
    this.dash = [];
    /** @type {string[]} the elements so far */
    this.elements = [];
    this.path = "";
    /** @type {string | null} the path as a circle, if it is nothing else */
    this.circle = null;
  }

  /** @param {Iterable<number>} segments */
  setLineDash(segments) {
    this.dash = [...segments];
  }

  beginPath() {
    this.path = "";
    this.circle = null;
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  /** Whole circles only. @param {number} x @param {number} y @param {number} radius */
  arc(x, y, radius) {
    this.circle = `cx="${short(x)}" cy="${short(y)}" r="${short(radius)}"`;
  }

  /** @param {string} paint */
  #put(paint) {
    const seen = this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
    if (this.circle) this.elements.push(`<circle ${this.circle} ${paint}${seen}/>`);
    else if (this.path) this.elements.push(`<path d="${this.path}" ${paint}${seen}/>`);
  }

  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    const cap = this.lineCap === "butt" ? "" : ` stroke-linecap="${this.lineCap}"`;
    this.#put(`fill="none" stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}"${cap}${dash}`);
  }

  fill() {
    this.#put(`fill="${this.fillStyle}"`);
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const place = `x="${short(x)}" y="${short(y)}" text-anchor="${ANCHORS[this.textAlign]}"`;
    this.elements.push(
      `<text ${place} fill="${this.fillStyle}" style="font: ${escaped(this.font)}">${escaped(text)}</text>`,
    );
  }

  /** Some of the elements elsewhere, in a box of their own. @param {SvgPen} other @param {number} x @param {number} y
   * @param {number} width @param {number} height @param {{fill: string, stroke: string}} box */
  inset(other, x, y, width, height, box) {
    const frame = `<rect width="${short(width)}" height="${short(height)}" rx="8" fill="${box.fill}" stroke="${box.stroke}"/>`;
    this.elements.push(`<g transform="translate(${short(x)} ${short(y)})">${frame}${other.elements.join("")}</g>`);
  }

  /** @param {number} width @param {number} height @param {string} paper @param {string} title */
  document(width, height, paper, title) {
    const size = `width="${short(width)}" height="${short(height)}" viewBox="0 0 ${short(width)} ${short(height)}"`;
    const ground = `<rect width="100%" height="100%" fill="${paper}"/>`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img"><title>${escaped(title)}</title>${ground}\n${this.elements.join("\n")}\n</svg>\n`;
  }
}
