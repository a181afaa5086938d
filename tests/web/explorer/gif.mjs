// Reads {width, height, frames} from standard input and writes the moving picture in base 64.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { encodeGif } = await import(pathToFileURL(process.argv[2]).href);
const { width, height, delay, frames } = JSON.parse(readFileSync(0, "utf-8"));
const pixels = frames.map((frame) => Uint8ClampedArray.from(frame));
process.stdout.write(Buffer.from(encodeGif(pixels, width, height, delay)).toString("base64"));
