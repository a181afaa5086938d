// Reads problems with points from standard input, writes what the page's own model says of them.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const part = (name) => import(new URL(name, pathToFileURL(`${process.argv[2]}/`)).href);
const ufm = { ...(await part("ufm.js")), ...(await part("measures.js")), ...(await part("optimum.js")) };
const answers = JSON.parse(readFileSync(0, "utf-8")).map(({ problem, point, steps }) => {
  const given = {
    W: Float64Array.from(point.W),
    H: Float64Array.from(point.H),
    b: point.b && Float64Array.from(point.b),
  };
  const labels = ufm.labelsOf(problem);
  const { value, gradient, correct } = ufm.evaluate(problem, given, labels);
  const descent = new ufm.Descent(problem, given);
  for (let i = 0; i < steps; i++) descent.step();
  return {
    value,
    correct,
    gradient: [gradient.W, gradient.H, ...(gradient.b ? [gradient.b] : [])].flatMap((rows) => Array.from(rows)),
    ...ufm.collapse(problem, given, labels),
    least: ufm.leastValue(problem),
    end: descent.now.value,
  };
});
process.stdout.write(JSON.stringify(answers));
