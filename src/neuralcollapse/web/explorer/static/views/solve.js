// @ts-check
// The Solve view: run a method, look at its way, read the certificate of its end.

import * as state from "../page/state.js";
import * as api from "../page/api.js";
import * as controls from "../page/controls.js";
import { draw } from "../page/charts.js";
import { modelFields } from "./model.js";
import { Space } from "./space.js";
import { $, body, command, el, facts, message, notice } from "../page/dom.js";
import { show } from "../page/numbers.js";

const space = new Space();
const cards = ["solve-view", "solve-value", "solve-gap", "solve-collapse", "solve-accuracy"];
/** @type {HTMLButtonElement} */
let button;
/** @type {number | undefined} */
let player;
/** @type {string | null} */
let solved = null;
let stopped = () => {};

/** @param {About} about */
export function buildSolve(about) {
  const every = Object.keys(about.method_summaries);
  button = el("button", { type: "button", class: "action primary", id: "run", onclick: run }, "Solve");
  for (const id of cards) $(id).hidden = true;
  $("solve-facts").replaceChildren(
    el("p", { class: "soft plain" }, "Press Solve. The sizes are kept small so that it takes seconds."),
  );
  const limits = about.limits.solve;
  return el(
    "fieldset",
    {},
    el("legend", {}, "Method"),
    controls.select(
      "method",
      "Method",
      every.map((name) => [name, name]),
    ),
    every.map((name) =>
      controls.only(() => state.get("method") === name, el("p", { class: "caption" }, about.method_summaries[name])),
    ),
    controls.number("seed", "seed of the start"),
    controls.number("max_iter", "iterations at most", { min: 1, max: limits.max_iter, log: true }),
    el(
      "p",
      { class: "caption" },
      `At most ${limits.classes} classes, ${limits.samples} samples, ${limits.dim} dimensions, ${limits.seconds} seconds.`,
    ),
    el("div", { class: "row" }, button),
  );
}

export function markStale() {
  const changed = solved !== null && solved !== JSON.stringify(question());
  for (const id of ["solve-facts", ...cards]) $(id).classList.toggle("stale", changed);
  if (button) button.textContent = changed ? "Solve anew" : "Solve";
}

function question() {
  return { ...modelFields(), method: state.get("method"), seed: state.get("seed"), max_iter: state.get("max_iter") };
}

async function run() {
  if (button.disabled) return;
  button.disabled = true;
  stop();
  notice("solve-error", null);
  $("solve-facts").replaceChildren(el("p", { class: "soft", id: "solve-busy" }, "Solving …"));
  try {
    const asked = question();
    const answer = await api.post("solve", asked);
    solved = JSON.stringify(asked);
    showAnswer(answer);
  } catch (error) {
    notice("solve-error", message(error));
    $("solve-facts").replaceChildren(el("p", { class: "soft" }, "There is no result."));
    for (const id of cards) $(id).hidden = true;
  } finally {
    button.disabled = false;
    markStale();
  }
}

/** @type {Record<string, string>} */
const verdicts = {
  "global minimum": "good",
  "strict saddle": "bad",
  "not a critical point": "open",
  undecided: "open",
};

/** @param {SolveAnswer} answer */
function showAnswer(answer) {
  const proof = answer.certificate;
  $("solve-facts").replaceChildren(
    el(
      "div",
      { class: "row" },
      el("h2", { class: "grow" }, "Certificate of the last point"),
      el("span", { class: `badge ${verdicts[proof.verdict] ?? "open"}`, id: "verdict" }, proof.verdict),
    ),
    facts(
      [
        ["value", show(proof.value, 12)],
        ["lower bound", proof.lower_bound === null ? "none" : show(proof.lower_bound, 12)],
        ["gap", proof.gap === null ? "not bounded" : show(proof.gap, 3)],
        ["gradient norm", show(proof.gradient_norm, 3)],
        ["curvature", proof.curvature === null ? null : show(proof.curvature, 4)],
        ["why", proof.reason],
        ["bound from", proof.bound_source],
        [
          "solve",
          `${answer.method}: ${answer.outcome} after ${answer.iterations} iterations, ${answer.seconds.toFixed(2)} s; ${answer.message}`,
        ],
      ],
      true,
    ),
    el(
      "p",
      { class: "soft" },
      "The lower bound holds for every point of this model, so value and bound together prove how far from the global minimum the last point can be.",
    ),
    command(answer.command),
  );
  for (const id of cards) $(id).hidden = false;
  $("solve-accuracy").hidden = answer.history.accuracy.every((value) => value === null);
  showFrames(answer.view);
  showHistory(answer);
}

/** @param {SolveAnswer["view"]} view */
function showFrames(view) {
  const last = view.frames.length - 1;
  const label = el("span", {});
  const slider = el("input", {
    type: "range",
    min: 0,
    max: last,
    value: last,
    "aria-label": "iteration",
    class: "grow",
  });
  const play = el("button", { type: "button", class: "action", onclick: () => (player ? stop() : start()) }, "Play");
  const paint = () => {
    const frame = view.frames[Number(slider.value)];
    label.textContent = `iteration ${frame.iteration}`;
    slider.setAttribute("aria-valuetext", label.textContent);
    space.set(
      { ...frame, labels: view.labels },
      `Classifier rows as arrows and features as rings at iteration ${frame.iteration}`,
    );
  };
  const start = () => {
    if (Number(slider.value) === last) slider.value = "0";
    play.textContent = "Stop";
    paint();
    player = setInterval(() => {
      slider.value = String(Number(slider.value) + 1);
      paint();
      if (Number(slider.value) >= last) stop();
    }, 450);
  };
  stopped = () => {
    play.textContent = "Play";
  };
  slider.addEventListener("input", () => {
    stop();
    paint();
  });
  const share = (100 * view.share).toFixed(1).replace(/\.0$/, "");
  body("solve-view").replaceChildren(
    space.node,
    el("div", { class: "row" }, play, slider, label),
    el(
      "p",
      { class: "caption" },
      `Arrows: classifier; rings: samples, coloured by class. The three main directions of the last point, ${share} % of its squared lengths. Drag, or use the arrow keys.`,
    ),
  );
  paint();
}

function stop() {
  clearInterval(player);
  player = undefined;
  stopped();
}

/** Names and colours of curves are those of "Collapse". @type {Record<string, string>} */
const NAMES = { nc1: "NC1", nc2: "NC2", nc3: "NC3" };
/** @type {Record<string, number>} */
const SERIES = { nc1: 1, nc2: 2, nc3: 4, gap: 6 };

/** @param {SolveAnswer} answer */
function showHistory({ history }) {
  const x = history.iteration;
  /** @param {string} id @param {string[]} names @param {{log?: boolean, range?: number[], format?: string}} layout
   * @param {number[]} [lines] */
  const chart = (id, names, layout, lines = []) => {
    const node = /** @type {HTMLElement} */ (body(id).querySelector(".chart") ?? el("div", { class: "chart" }));
    body(id).replaceChildren(node);
    const shown = names.filter((name) => history[name].some((value) => value !== null));
    draw(node, (colours) => ({
      data: shown.map((name, index) => ({
        x,
        y: layout.log ? history[name].map((value) => (Number(value) > 0 ? value : null)) : history[name],
        name: NAMES[name] ?? name.replace("_", " "),
        mode: x.length < 40 ? "lines+markers" : "lines",
        marker: { size: 5 },
        line: { color: colours.series[SERIES[name] ?? index], width: 2 },
        hovertemplate: "%{x}: %{y:.4g}",
      })),
      layout: {
        showlegend: shown.length > 1,
        xaxis: { title: { text: "iteration" } },
        yaxis: {
          type: layout.log ? "log" : "linear",
          exponentformat: "power",
          nticks: 7,
          ...(layout.range ? { range: layout.range } : {}),
          ...(layout.format ? { tickformat: layout.format } : {}),
        },
        shapes: lines.map((value) => ({
          type: "line",
          xref: "paper",
          x0: 0,
          x1: 1,
          y0: value,
          y1: value,
          line: { color: colours.soft, dash: "dot", width: 1.5 },
        })),
      },
    }));
    return node;
  };
  const [value, gap] = [history.value.at(-1) ?? null, history.gap.at(-1) ?? null];
  const known = value !== null && gap !== null;
  chart("solve-value", ["value"], {}, known ? [value - gap] : []);
  body("solve-value").append(
    el("p", { class: "caption" }, known ? "Dotted: the closed form." : "No closed form is known here."),
  );
  chart("solve-gap", ["gap", "gradient_norm"], { log: true });
  body("solve-gap").append(el("p", { class: "caption" }, "Gap: the value above the closed form, where one is known."));
  chart("solve-collapse", ["nc1", "nc2", "nc3"], { log: true });
  body("solve-collapse").append(
    el(
      "p",
      { class: "caption" },
      "NC1: variability within classes; NC2: distance of the classifier from a simplex ETF; NC3: of classifier from class means. Zero at collapse.",
    ),
  );
  chart("solve-accuracy", ["accuracy"], { range: [0, 1.05], format: ".0%" });
}
