// Reads lists [value, digits] from standard input and writes what the page would show.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { show } = await import(pathToFileURL(process.argv[2]).href);
process.stdout.write(
  JSON.stringify(JSON.parse(readFileSync(0, "utf-8")).map(([value, digits]) => show(value, digits))),
);
