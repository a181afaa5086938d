// @ts-check
// A small encoder of moving pictures: 255 colours for all frames, and of each frame only what changed.

const CLEAR = 255; // the index that lets the frame before show through

/** The most frequent colours of all frames, in steps of 8, and the nearest of them for every other one.
 * @param {Uint8ClampedArray[]} frames red, green, blue and opacity of every pixel */
function paletteOf(frames) {
  const counts = new Uint32Array(32768);
  const key = (/** @type {Uint8ClampedArray} */ p, /** @type {number} */ i) =>
    ((p[i] >> 3) << 10) | ((p[i + 1] >> 3) << 5) | (p[i + 2] >> 3);
  // The mean of the pixels of a cell, so that flat areas keep their very colour.
  const sums = new Float64Array(3 * 32768);
  for (const pixels of frames) {
    for (let i = 0; i < pixels.length; i += 4) {
      const cell = key(pixels, i);
      counts[cell] += 1;
      for (let part = 0; part < 3; part++) sums[3 * cell + part] += pixels[i + part];
    }
  }
  const used = [...counts.keys()].filter((cell) => counts[cell] > 0).sort((a, b) => counts[b] - counts[a]);
  const colours = used
    .slice(0, CLEAR)
    .map((cell) => [0, 1, 2].map((part) => Math.round(sums[3 * cell + part] / counts[cell])));
  const indices = new Uint8Array(32768);
  for (const cell of used) {
    const colour = [0, 1, 2].map((part) => sums[3 * cell + part] / counts[cell]);
    let [best, least] = [0, Infinity];
    colours.forEach((other, index) => {
      const distance = other.reduce((sum, entry, part) => sum + (entry - colour[part]) ** 2, 0);
      if (distance < least) [best, least] = [index, distance];
    });
    indices[cell] = best;
  }
  return { colours, index: (/** @type {Uint8ClampedArray} */ p, /** @type {number} */ i) => indices[key(p, i)] };
}

/** Lempel, Ziv and Welch's codes of eight-bit indices, in blocks of at most 255 bytes. @param {Uint8Array} indices */
function compressed(indices) {
  const [stop, end] = [256, 257];
  /** @type {number[]} */
  const bytes = [];
  let [held, bits] = [0, 0];
  const put = (/** @type {number} */ code, /** @type {number} */ width) => {
    held |= code << bits;
    bits += width;
    for (; bits >= 8; bits -= 8, held >>>= 8) bytes.push(held & 255);
  };
  /** @type {Map<number, number>} from a code and the next index to the code of both */
  let known = new Map();
  let [next, width] = [258, 9];
  put(stop, width);
  let code = indices[0];
  for (let i = 1; i < indices.length; i++) {
    const pair = code * 256 + indices[i];
    const found = known.get(pair);
    if (found !== undefined) {
      code = found;
      continue;
    }
    put(code, width);
    known.set(pair, next);
    if (next === 1 << width && width < 12) width += 1;
    next += 1;
    if (next === 4096) {
      put(stop, width);
      known = new Map();
      [next, width] = [258, 9];
    }
    code = indices[i];
  }
  put(code, width);
  put(end, width);
  if (bits) bytes.push(held & 255);
  const blocks = [8];
  for (let start = 0; start < bytes.length; start += 255) {
    const block = bytes.slice(start, start + 255);
    blocks.push(block.length, ...block);
  }
  return [...blocks, 0];
}

/** A GIF that repeats for ever. @param {Uint8ClampedArray[]} frames red, green, blue and opacity of every pixel
 * @param {number} width @param {number} height @param {number} delay of a frame, in hundredths of a second
 * @returns {Uint8Array<ArrayBuffer>} */
export function encodeGif(frames, width, height, delay) {
  const two = (/** @type {number} */ value) => [value & 255, value >> 8];
  const { colours, index } = paletteOf(frames);
  const table = Array.from({ length: 256 }, (_, place) => colours[place] ?? [0, 0, 0]).flat();
  const text = (/** @type {string} */ letters) => [...letters].map((letter) => letter.charCodeAt(0));
  /** @type {number[][]} */
  const parts = [
    [...text("GIF89a"), ...two(width), ...two(height), 0xf7, 0, 0, ...table],
    [0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0],
  ];
  /** @type {Uint8Array | null} */
  let before = null;
  for (const pixels of frames) {
    const now = Uint8Array.from({ length: width * height }, (_, place) => index(pixels, 4 * place));
    const shown = before;
    const drawn = shown ? now.map((colour, place) => (colour === shown[place] ? CLEAR : colour)) : now;
    parts.push([0x21, 0xf9, 4, shown ? 5 : 4, ...two(delay), CLEAR, 0]);
    parts.push([0x2c, 0, 0, 0, 0, ...two(width), ...two(height), 0], compressed(drawn));
    before = now;
  }
  return Uint8Array.from([...parts.flat(), 0x3b]);
}
