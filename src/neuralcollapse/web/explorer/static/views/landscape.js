// @ts-check
// The Landscape view: the plane of two classifiers and the phases of the decays, for two losses side by side.

import * as state from "../page/state.js";
import * as api from "../page/api.js";
import * as controls from "../page/controls.js";
import { draw, forget } from "../page/charts.js";
import { $, body, el, message, sentence } from "../page/dom.js";
import { show } from "../page/numbers.js";

/** @type {LossAnswer[]} */
let losses = [];
/** @type {Record<string, SliceAnswer>} */
const slices = {};
// Where the ball lies on both landscapes before it rolls, as (s, θ).
/** @type {[number, number]} */
let ball = [1.5, 2.2];

/** @param {About} about */
export function buildLandscape(about) {
  losses = about.losses;
  for (const side of ["a.", "b."]) controls.lossDefaults(side, losses);
  const { number } = controls;
  const optional = about.models.regularized.filter((field) => field.optional);
  return el(
    "div",
    {},
    el("fieldset", {}, el("legend", {}, "Left"), controls.loss("a.", losses)),
    el("fieldset", {}, el("legend", {}, "Right"), controls.loss("b.", losses)),
    el(
      "fieldset",
      {},
      el("legend", {}, "Both"),
      number("l.classes", "classes K", { min: 3, max: 100 }),
      number("l.reach", "largest norm s", { min: 0.5, max: 20, log: true }),
    ),
    el(
      "fieldset",
      {},
      el("legend", {}, "Phase diagram"),
      number("l.per_class", "samples a class n", { min: 1, max: 1000, log: true }),
      number("l.dim", "dimensions d", { min: 1, max: 100 }),
      ...optional.flatMap((field) => controls.optional("l.", field)),
    ),
  );
}

/** @param {string | null} changed the field, or null for all */
export async function updateLandscape(changed) {
  const phasesOnly = changed !== null && ["l.per_class", "l.dim", "l.bias", "l.bias_decay"].includes(changed);
  const sides = ["a", "b"].filter(
    (side) => changed === null || changed.startsWith("l.") || changed.startsWith(`${side}.`),
  );
  const tasks = [];
  for (const side of sides) {
    if (!phasesOnly) tasks.push(guarded(`slice-${side}`, () => updateSlice(side)));
    if (changed !== "l.reach") tasks.push(guarded(`phases-${side}`, () => updatePhases(side)));
  }
  await Promise.all(tasks);
}

/** @param {string} id @param {() => Promise<void>} update */
async function guarded(id, update) {
  try {
    await update();
  } catch (error) {
    const chart = /** @type {HTMLElement | null} */ (body(id).querySelector(".chart"));
    if (chart) forget(chart);
    body(id).replaceChildren(el("p", { class: "notice", role: "alert" }, sentence(message(error))));
  }
}

/** @param {string} id */
function place(id) {
  const node = /** @type {PlotlyNode} */ (body(id).querySelector(".chart") ?? el("div", { class: "chart tall" }));
  body(id).replaceChildren(node);
  return node;
}

/** @param {string} side */
async function updateSlice(side) {
  const fields = {
    loss: controls.lossSpec(`${side}.`, losses),
    classes: state.get("l.classes"),
    reach: state.get("l.reach"),
  };
  heading(`slice-${side}`, controls.lossName(`${side}.`, losses));
  /** @type {SliceAnswer | null} */
  const answer = await api.latest(`slice-${side}`, () => api.get("slice", fields));
  if (!answer) return;
  slices[side] = answer;
  drawSlice(side);
}

/** @param {string} id @param {string} text */
function heading(id, text) {
  const node = $(id).querySelector("h2");
  if (node) node.textContent = text;
}

/** @param {string} side */
function drawSlice(side) {
  const answer = slices[side];
  const path = rolled(answer, ball);
  const node = place(`slice-${side}`);
  draw(node, (colours) => ({
    data: [
      {
        type: "contour",
        x: answer.s,
        y: answer.theta,
        z: answer.value,
        ncontours: 22,
        colorscale: "Viridis",
        colorbar: { thickness: 10, outlinewidth: 0 },
        line: { width: 0.6 },
        contours: { coloring: "heatmap" },
        hovertemplate: "s = %{x:.3g}, θ = %{y:.3g}: %{z:.5g}<extra></extra>",
      },
      arrows(answer),
      {
        x: path.map(([s]) => s),
        y: path.map(([, theta]) => theta),
        mode: "lines",
        line: { color: "black", width: 3 },
        hoverinfo: "skip",
      },
      {
        x: [path[0][0], path[path.length - 1][0]],
        y: [path[0][1], path[path.length - 1][1]],
        mode: "markers",
        cliponaxis: false,
        marker: { symbol: ["circle-open", "circle"], size: 12, color: "black", line: { color: "white", width: 2 } },
        text: ["the ball lies here", "and rolls to here"],
        hovertemplate: "%{text}<extra></extra>",
      },
      {
        x: [answer.lowest.s],
        y: [answer.lowest.theta],
        mode: "markers",
        cliponaxis: false,
        marker: { symbol: "star", size: 13, color: colours.series[1], line: { color: "white", width: 1 } },
        hovertemplate: "lowest here: %{text}<extra></extra>",
        text: [show(answer.lowest.value)],
      },
    ],
    layout: {
      showlegend: false,
      xaxis: { title: { text: "norm s" }, range: [0, answer.s.at(-1)], showgrid: false },
      yaxis: {
        title: { text: "angle θ to the own classifier" },
        range: [0, Math.PI],
        showgrid: false,
        tickvals: [0, Math.PI / 4, Math.PI / 2, (3 * Math.PI) / 4, Math.PI],
        ticktext: ["0", "π/4", "π/2", "3π/4", "π"],
      },
      shapes: [
        {
          type: "line",
          xref: "paper",
          x0: 0,
          x1: 1,
          y0: answer.boundary,
          y1: answer.boundary,
          line: { color: "white", dash: "dash", width: 2 },
        },
      ],
    },
  }));
  node.removeAllListeners?.("plotly_click");
  node.on?.("plotly_click", ({ points }) => {
    ball = [points[0].x, points[0].y];
    for (const other of Object.keys(slices)) drawSlice(other);
  });
  body(`slice-${side}`).append(
    el(
      "p",
      { class: "caption" },
      "The loss at (s, θ). Below the dashed line the feature is classified rightly. Arrows: minus the gradient in (s, θ), length in proportion, the longest ones cut; star: the lowest value shown. Click to put one ball on both landscapes and see where each lets it roll.",
    ),
  );
}

/** The same problem under "Collapse", with at most as many classes and samples as a browser steps quickly.
 * @param {string} side @param {number} featureDecay @param {number} weightDecay */
function visit(side, featureDecay, weightDecay) {
  /** @type {Record<string, string>} */
  const short = { "cross-entropy": "ce", focal: "focal", "label-smoothing": "ls", "squared-error": "mse" };
  const name = state.get(`${side}.loss`);
  if (!(name in short)) return;
  /** @type {Record<string, string | undefined>} */
  const given = Object.fromEntries(
    controls
      .lossSpec(`${side}.`, losses)
      .split(":")
      .slice(1)
      .join(":")
      .split(",")
      .filter(Boolean)
      .map((part) => part.split("=")),
  );
  const classes = Math.min(12, Number(state.get("l.classes")));
  const settings = {
    loss: short[name],
    gamma: given.gamma,
    alpha: name === "label-smoothing" ? given.alpha : undefined,
    target: given.target,
    classes,
    scene: "",
    model: "regularized",
    per_class: Math.min(Number(state.get("l.per_class")), Math.floor(400 / classes), 40),
    dim: Math.min(12, Number(state.get("l.dim"))),
    weight_decay: Number(weightDecay.toPrecision(3)),
    feature_decay: Number(featureDecay.toPrecision(3)),
    bias: state.get("l.bias") === "free" ? "free" : "none",
  };
  state.setQuietly(
    Object.fromEntries(
      Object.entries(settings)
        .filter(([, value]) => value !== undefined)
        .map(([key, value]) => [`c.${key}`, String(value)]),
    ),
  );
  state.set("tab", "collapse");
}

/** The way of a ball downhill on the field of the arrows, interpolated between them; it stays within what is shown.
 * @param {SliceAnswer} answer @param {[number, number]} start */
function rolled(answer, start) {
  const { s, theta, down_s, down_theta } = answer.arrows;
  const [unitS, unitTheta] = [s[1] - s[0], theta[1] - theta[0]];
  const within = (/** @type {number} */ value, /** @type {number} */ top) => Math.max(0, Math.min(top, value));
  const field = (/** @type {number} */ px, /** @type {number} */ py) => {
    const [column, row] = [
      within((px - s[0]) / unitS, s.length - 1.001),
      within((py - theta[0]) / unitTheta, theta.length - 1.001),
    ];
    const [i, j] = [Math.floor(row), Math.floor(column)];
    const mix = (/** @type {number[][]} */ values) =>
      [
        [0, 0],
        [0, 1],
        [1, 0],
        [1, 1],
      ].reduce(
        (sum, [a, b]) => sum + values[i + a][j + b] * (a ? row - i : 1 - row + i) * (b ? column - j : 1 - column + j),
        0,
      );
    return [mix(down_s), mix(down_theta)];
  };
  const reach = answer.s[answer.s.length - 1];
  let [x, y] = [within(start[0], reach), within(start[1], Math.PI)];
  const path = [[x, y]];
  for (let step = 0; step < 400; step++) {
    const [dx, dy] = field(x, y);
    // At most a quarter of a cell at a time.
    const size = Math.min(0.2, 0.25 / (Math.hypot(dx / unitS, dy / unitTheta) || 1));
    [x, y] = [within(x + size * dx, reach), within(y + size * dy, Math.PI)];
    path.push([x, y]);
  }
  return path;
}

/** One line trace for all arrows: shaft and two strokes of the head, in units of the cells. @param {SliceAnswer} answer */
function arrows(answer) {
  const { s, theta, down_s, down_theta } = answer.arrows;
  const [unitS, unitTheta] = [s[1] - s[0], theta[1] - theta[0]];
  /** @type {[number, number, number, number][]} */
  const cells = [];
  theta.forEach((angle, row) =>
    s.forEach((norm, column) =>
      cells.push([norm, angle, down_s[row][column] / unitS, down_theta[row][column] / unitTheta]),
    ),
  );
  const lengths = cells.map(([, , x, y]) => Math.hypot(x, y)).sort((a, b) => a - b);
  const typical = lengths[Math.floor(0.85 * lengths.length)] || 1;
  /** @type {[(number | null)[], (number | null)[]]} */
  const [xs, ys] = [[], []];
  for (const [norm, angle, x, y] of cells) {
    const length = Math.hypot(x, y);
    if (!(length > 0)) continue;
    const scale = (0.9 * Math.min(1, length / typical)) / length;
    if (scale * length < 0.04) continue;
    const [dx, dy] = [x * scale, y * scale];
    const put = (/** @type {[number, number][]} */ ...points) => {
      for (const [px, py] of points) {
        xs.push(norm + px * unitS);
        ys.push(angle + py * unitTheta);
      }
      xs.push(null);
      ys.push(null);
    };
    put([-dx / 2, -dy / 2], [dx / 2, dy / 2]);
    put(
      [dx / 2 - 0.3 * dx - 0.18 * dy, dy / 2 - 0.3 * dy + 0.18 * dx],
      [dx / 2, dy / 2],
      [dx / 2 - 0.3 * dx + 0.18 * dy, dy / 2 - 0.3 * dy - 0.18 * dx],
    );
  }
  return { x: xs, y: ys, mode: "lines", line: { color: "rgba(255,255,255,.85)", width: 1.5 }, hoverinfo: "skip" };
}

/** @type {Record<string, number>} */
const order = {
  zero: 6,
  "neural collapse": 0,
  "neural collapse with a common direction": 5,
  "orthogonal frame": 4,
  "low rank": 3,
  "broken symmetry": 1,
  unknown: 7,
};

/** @param {string} side */
async function updatePhases(side) {
  const fields = {
    loss: controls.lossSpec(`${side}.`, losses),
    classes: state.get("l.classes"),
    per_class: state.get("l.per_class"),
    dim: state.get("l.dim"),
    bias_decay: controls.optionalValue("l.", "bias_decay"),
  };
  heading(`phases-${side}`, `${controls.lossName(`${side}.`, losses)}: phases`);
  /** @type {PhasesAnswer | null} */
  const answer = await api.latest(`phases-${side}`, () => api.get("phases", fields));
  if (!answer) return;
  const count = answer.regimes.length;
  const text = answer.codes.map((row, i) =>
    row.map(
      (code, j) =>
        `${answer.regimes[code]}<br>value ${show(answer.values[i][j])}<br>logit scale ${show(answer.logit_scales[i][j], 4)}`,
    ),
  );
  draw(place(`phases-${side}`), (colours) => {
    const tone = (/** @type {number} */ index) => colours.series[order[answer.regimes[index]] ?? 2];
    const steps = answer.regimes.flatMap((_, index) => [
      [index / count, tone(index)],
      [(index + 1) / count, tone(index)],
    ]);
    /** @type {object[]} */
    const data = [
      {
        type: "heatmap",
        x: answer.decays,
        y: answer.decays,
        z: answer.codes,
        text,
        colorscale: steps,
        zmin: -0.5,
        zmax: count - 0.5,
        showscale: false,
        opacity: 0.75,
        hovertemplate: "λH = %{x:.2g}, λW = %{y:.2g}<br>%{text}<extra></extra>",
      },
      ...answer.regimes.map((name, index) => ({
        x: [null],
        y: [null],
        mode: "markers",
        marker: { symbol: "square", size: 11, color: tone(index) },
        name,
      })),
    ];
    if (answer.boundary) {
      const line = (/** @type {number} */ product, /** @type {string} */ name, /** @type {string} */ dash) => ({
        x: answer.decays,
        y: answer.decays.map((x) => product / x),
        mode: "lines",
        name,
        line: { color: colours.ink, width: 2, dash },
        hoverinfo: "skip",
      });
      data.push(line(answer.boundary.exchange, "equal values", "solid"));
      if (answer.boundary.first_order) {
        data.push(
          line(answer.boundary.zero_stable_above, "zero is stable above", "dot"),
          line(answer.boundary.collapse_exists_below, "collapse exists below", "dash"),
        );
      }
    }
    const ends = [Math.log10(answer.decays[0]), Math.log10(answer.decays[answer.decays.length - 1])];
    const axis = { type: "log", range: ends, exponentformat: "power", dtick: 1, showgrid: false };
    return {
      data,
      layout: {
        xaxis: { ...axis, title: { text: "feature decay λH" } },
        yaxis: { ...axis, title: { text: "weight decay λW" } },
      },
    };
  });
  const node = /** @type {PlotlyNode} */ (body(`phases-${side}`).querySelector(".chart"));
  node.removeAllListeners?.("plotly_click");
  node.on?.("plotly_click", ({ points }) => visit(side, points[0].x, points[0].y));
  const unknown = answer.regimes.includes("unknown") ? " Unknown: no closed form is known there." : "";
  body(`phases-${side}`).append(
    el(
      "p",
      { class: "caption" },
      `Which solution is the global minimum of the regularised model at each pair of decays. Click on a pair to watch it under “Collapse”.${unknown}`,
    ),
  );
}
