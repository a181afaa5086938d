// @ts-check
// The current view as a file: PNG and SVG of this moment, GIF of the next seconds.

import { colour } from "../page/colours.js";
import { el } from "../page/dom.js";
import { encodeGif } from "./gif.js";
import { SvgPen } from "./picture/pen.js";

/** @typedef {import("./view.js").CollapseView} CollapseView */

const GIF = { width: 480, frames: 60, hundredths: 7 };

/** @param {Blob} blob @param {string} name */
function offer(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** The view and its lens on the page's paper, so many pixels wide. @param {CollapseView} view @param {number} width */
function painted(view, width) {
  const share = width / view.canvas.width;
  const picture = el("canvas");
  picture.width = Math.round(width);
  picture.height = Math.round(share * view.canvas.height);
  const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d", { willReadFrequently: true }));
  context.fillStyle = colour("card");
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(view.canvas, 0, 0, picture.width, picture.height);
  const lens = [share * view.lens.width, share * view.lens.height];
  context.drawImage(view.lens, picture.width - lens[0] - 8, 8, lens[0], lens[1]);
  return { picture, context };
}

/** @param {CollapseView} view */
export function savePng(view) {
  painted(view, view.canvas.width).picture.toBlob((blob) => blob && offer(blob, view.fileName("png")));
}

/** @param {CollapseView} view */
export function saveSvg(view) {
  const [width, height] = [view.canvas.clientWidth, view.canvas.clientHeight];
  const [across, down] = [view.lens.clientWidth, view.lens.clientHeight];
  const [pen, lens] = [new SvgPen(), new SvgPen()];
  view.stage.paint(pen);
  view.paintLens(lens, across, down);
  pen.inset(lens, width - across - 8, 8, across, down, { fill: colour("page"), stroke: colour("line") });
  const text = pen.document(width, height, colour("card"), view.canvas.getAttribute("aria-label") ?? "");
  offer(new Blob([text], { type: "image/svg+xml" }), view.fileName("svg"));
}

/** Record the next frames, as fast as they can be drawn; from the beginning where nothing moves any more.
 * @param {CollapseView} view @param {HTMLButtonElement} button says how far it is */
export async function saveGif(view, button) {
  const words = button.textContent;
  button.disabled = true;
  try {
    if (!view.playing && view.run.still > 0) view.restart();
    const name = view.fileName("gif");
    const width = Math.min(GIF.width, view.canvas.clientWidth);
    /** @type {Uint8ClampedArray[]} */
    const frames = [];
    let height = 0;
    for (let frame = 0; frame < GIF.frames; frame++) {
      const { picture, context } = painted(view, width);
      height = picture.height;
      frames.push(context.getImageData(0, 0, picture.width, height).data);
      view.advance(4);
      button.textContent = `${Math.round((100 * (frame + 1)) / GIF.frames)} %`;
      await new Promise((resolve) => setTimeout(resolve));
    }
    offer(new Blob([encodeGif(frames, Math.round(width), height, GIF.hundredths)], { type: "image/gif" }), name);
  } finally {
    button.textContent = words;
    button.disabled = false;
  }
}
