// @ts-check
// What pictures are made of: discs, arrow heads, the lens over one class, and the matrix of cosines.

import { classColour, colour } from "../../page/colours.js";
import { raised } from "../../page/numbers.js";

/** @typedef {import("./pen.js").Brush} Brush */

/** @param {Brush} context @param {{x: number, y: number}} at @param {number} radius
 * @param {string | null} fill @param {string | null} stroke @param {number} width */
export function disc(context, at, radius, fill, stroke, width) {
  context.beginPath();
  context.arc(at.x, at.y, radius, 0, 2 * Math.PI);
  if (fill) {
    context.fillStyle = fill;
    context.fill();
  }
  if (stroke) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.stroke();
  }
}

/** @param {Brush} context @param {{x: number, y: number}} from @param {{x: number, y: number}} to
 * @param {string} shade */
export function arrow(context, from, to, shade) {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  if (length < 6) return;
  const [ux, uy] = [(to.x - from.x) / length, (to.y - from.y) / length];
  context.fillStyle = shade;
  context.beginPath();
  context.moveTo(to.x + 5 * ux, to.y + 5 * uy);
  context.lineTo(to.x - 8 * ux - 6 * uy, to.y - 8 * uy + 6 * ux);
  context.lineTo(to.x - 8 * ux + 6 * uy, to.y - 8 * uy - 6 * ux);
  context.fill();
}

/** One class seen through a lens: its samples about their mean, enlarged until they fill it.
 * @param {Brush} context @param {number} width @param {number} height
 * @param {number[][]} offsets in the picture's coordinates @param {number} label
 * @param {number} whole the radius of the picture @param {{turn: number, tilt: number}} eye */
export function magnify(context, width, height, offsets, label, whole, eye) {
  const spread = Math.sqrt(
    offsets.reduce((sum, [x, y, z]) => sum + x * x + y * y + z * z, 0) / Math.max(1, offsets.length),
  );
  const half = Math.max(2.2 * spread, 1e-300);
  const [c, s, ct, st] = [Math.cos(eye.turn), Math.sin(eye.turn), Math.cos(eye.tilt), Math.sin(eye.tilt)];
  const middle = { x: width / 2, y: height / 2 - 7 };
  const scale = (0.5 * Math.min(width, height) - 16) / half;
  disc(context, middle, 3, null, colour("soft"), 1);
  context.globalAlpha = 0.85;
  for (const [x, y, z] of offsets) {
    const at = { x: middle.x + scale * (c * x + s * z), y: middle.y - scale * (ct * y - st * (-s * x + c * z)) };
    if (spread > 0) disc(context, at, 3, classColour(label), null, 0);
  }
  context.globalAlpha = 1;
  context.fillStyle = colour("soft");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  const zoom = whole / half;
  context.fillText(
    spread > 0 ? `class ${label + 1} ×${times(zoom)}` : `class ${label + 1}: a point`,
    width / 2,
    height - 6,
  );
}

/** @param {number} factor */
function times(factor) {
  if (factor < 1000) return String(Number(Math.max(1, factor).toPrecision(2)));
  return `10${raised(Math.floor(Math.log10(factor)))}`;
}

/** Cosines between vectors as coloured squares. @param {CanvasRenderingContext2D} context
 * @param {number} width @param {number} height @param {number[][]} cosines
 * @param {number[]} chosen classes in the picture */
export function paintCosines(context, width, height, cosines, chosen) {
  const count = cosines.length;
  const side = Math.min(width, height) / count;
  const left = (width - side * count) / 2;
  const [low, middle, high] = [colour("low"), colour("middle"), colour("high")].map(parts);
  cosines.forEach((row, i) =>
    row.forEach((cosine, j) => {
      const t = Math.max(-1, Math.min(1, cosine));
      const mix = (t < 0 ? low : high).map((part, k) => Math.round(middle[k] + Math.abs(t) * (part - middle[k])));
      context.fillStyle = `rgb(${mix.join(",")})`;
      context.fillRect(left + j * side, i * side, side - (side > 8 ? 1 : 0), side - (side > 8 ? 1 : 0));
      if (side >= 34) {
        context.fillStyle = Math.abs(t) > 0.6 ? "white" : colour("ink");
        context.font = "12px system-ui, sans-serif";
        context.textAlign = "center";
        context.fillText(cosine.toFixed(2).replace("-", "−"), left + (j + 0.5) * side, (i + 0.5) * side + 4);
      }
    }),
  );
  context.strokeStyle = colour("ink");
  context.lineWidth = 2;
  if (count > 4) for (const k of chosen) context.strokeRect(left + k * side + 1, k * side + 1, side - 2, side - 2);
}

/** @param {string} hex */
const parts = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
