// @ts-check
// Pictures of a network, each in a card of its own.

import { diverging, draw, forget, logAxis } from "../../page/charts.js";
import { classColour } from "../../page/colours.js";
import { show } from "../../page/numbers.js";
import { pictureOf } from "../../collapse/picture/space3.js";

/** @typedef {import("../../collapse/picture/stage.js").Stage} Stage
 *  @typedef {{node: HTMLElement, box: HTMLElement, words: HTMLElement}} Card */

/** The chosen classes in the span of their means and classifier rows.
 * @param {Stage} stage @param {Network} network @param {number[]} chosen */
export function drawView(stage, network, chosen) {
  const { view } = network;
  if (!view) return;
  const at = (/** @type {number} */ label) => view.classes.indexOf(label);
  const rows = chosen.map((label) =>
    view.means[at(label)].map((entry, j) => entry + (view.classifier ? view.classifier[at(label)][j] : 0)),
  );
  const middle = rows[0].map((_, j) => rows.reduce((sum, row) => sum + row[j], 0) / rows.length);
  const { basis, target } = pictureOf(
    rows.map((row) => row.map((entry, j) => entry - middle[j])),
    view.dim,
    [],
  );
  const means = chosen.map((label) => view.means[at(label)]);
  const centre =
    view.dim > 3
      ? means[0].map((_, j) => means.reduce((sum, row) => sum + row[j], 0) / means.length)
      : middle.map(() => 0);
  const placed = (/** @type {number[]} */ row, /** @type {number[]} */ from) =>
    basis.map((axis) => axis.reduce((sum, entry, j) => sum + entry * (row[j] - from[j]), 0));
  /** @type {import("../../collapse/picture/stage.js").Item[]} */
  const items = [];
  view.labels.forEach((label, index) => {
    if (chosen.includes(label)) items.push({ kind: "sample", index, label, at: placed(view.samples[index], centre) });
  });
  // A classifier row and a mean of the same direction fall on one ray from the picture's middle.
  const { classifier } = view;
  const rowsCentre =
    classifier && view.dim > 3
      ? chosen
          .map((label) => classifier[at(label)])
          .reduce(
            (sum, row) => sum.map((entry, j) => entry + row[j] / chosen.length),
            middle.map(() => 0),
          )
      : middle.map(() => 0);
  for (const label of chosen) {
    const index = at(label);
    if (view.classifier)
      items.push({ kind: "row", index: label, label, at: placed(view.classifier[index], rowsCentre) });
    items.push({ kind: "mean", index: label, label, at: placed(view.means[index], centre) });
  }
  const size = (/** @type {string} */ kind) =>
    items.filter((item) => item.kind === kind).map((item) => Math.hypot(...item.at));
  const typical = size("mean").reduce((sum, one) => sum + one, 0) / chosen.length || 1;
  const spread = size("sample").sort((a, b) => a - b);
  const radius = Math.max(...size("mean"), ...size("row"), 0.8 * (spread[Math.floor(0.97 * spread.length)] ?? 0), 1e-9);
  stage.canvas.setAttribute(
    "aria-label",
    `Samples, class means and classifier of the classes ${chosen.map((label) => network.names[label] ?? label).join(", ")} in three dimensions. Arrow keys turn it.`,
  );
  stage.names = network.names;
  stage.show(
    items,
    network.dim >= 3 || network.classes <= 3 ? target.map((corner) => corner.map((entry) => typical * entry)) : [],
    "edges",
    radius,
  );
}

/** A card is there if there is something to draw. @template T @param {Card} card @param {T} some
 * @returns {some is NonNullable<T>} */
function hasRoom({ node, box }, some) {
  node.hidden = !some;
  if (!some) forget(box);
  return Boolean(some);
}

/** @param {Card} card @param {number[][] | null} cosines @param {Network} network */
export function drawGram(card, cosines, network) {
  if (!hasRoom(card, cosines)) return;
  const names = cosines.map((_, index) => network.names[index] ?? String(index));
  card.words.textContent = `Off the diagonal ${show(-1 / (network.classes - 1), 3)} at collapse, when a simplex fits.`;
  draw(card.box, (colours) => ({
    data: [
      {
        type: "heatmap",
        z: cosines,
        x: names,
        y: names,
        zmin: -1,
        zmax: 1,
        colorscale: diverging(colours),
        colorbar: { thickness: 10, outlinewidth: 0, tickvals: [-1, 0, 1] },
        hovertemplate: "%{y} and %{x}: %{z:.3f}<extra></extra>",
      },
    ],
    layout: {
      xaxis: { type: "category", showgrid: false, showticklabels: names.length <= 30, constrain: "domain" },
      yaxis: {
        type: "category",
        autorange: "reversed",
        showgrid: false,
        scaleanchor: "x",
        constrain: "domain",
        showticklabels: names.length <= 30,
      },
    },
  }));
}

/** @param {Card} card @param {Network} network */
export function drawPair(card, network) {
  const { pair } = network;
  if (!hasRoom(card, pair)) return;
  const [one, other] = pair.classes.map((label) => network.names[label] ?? String(label));
  card.words.textContent = `Classes ${one} and ${other}: their samples along the line through both means (0 and 1); of all pairs the one with the most spread for its distance${pair.cdnv === null ? "" : `, CDNV ${show(pair.cdnv, 3)}`}.`;
  const bins = { start: -0.6, end: 1.6, size: 0.05 };
  draw(card.box, () => ({
    data: [
      { x: pair.first, label: pair.classes[0], name: one },
      { x: pair.second, label: pair.classes[1], name: other },
    ].map(({ x, label, name }) => ({
      type: "histogram",
      x: x.map((value) => Math.max(-0.59, Math.min(1.59, value))),
      xbins: bins,
      name: `class ${name}`,
      opacity: 0.7,
      marker: { color: classColour(label) },
      hovertemplate: "%{y} samples<extra></extra>",
    })),
    layout: {
      barmode: "overlay",
      xaxis: {
        range: [-0.6, 1.6],
        tickvals: [0, 0.5, 1],
        ticktext: [`mean of ${one}`, "half-way", `mean of ${other}`],
      },
      yaxis: { title: { text: "samples" } },
    },
  }));
}

/** @param {Card} card @param {Network} network */
export function drawMargins(card, network) {
  const { margins } = network;
  if (!hasRoom(card, margins)) return;
  draw(card.box, (colours) => ({
    data: [
      {
        x: margins.share.map((share) => 100 * share),
        y: margins.margin,
        mode: "lines",
        line: { color: colours.accent, width: 2.5 },
        hovertemplate: "%{x:.0f} % have less than %{y:.3f}<extra></extra>",
      },
    ],
    layout: {
      xaxis: { title: { text: "% of the samples" }, range: [0, 100] },
      yaxis: {
        title: { text: "cosine margin" },
        range: [Math.min(-0.1, ...margins.margin), 1.1 * margins.at_collapse],
      },
      shapes: [
        [margins.at_collapse, "dash"],
        [0, "solid"],
      ].map(([y, dash]) => ({
        type: "line",
        xref: "paper",
        x0: 0,
        x1: 1,
        y0: y,
        y1: y,
        line: { color: colours.soft, dash, width: 1.3 },
      })),
    },
  }));
}

/** @param {Card} card @param {Network} network @param {number} largest of all states */
export function drawSpread(card, network, largest) {
  const { spread, names } = network;
  if (!hasRoom(card, spread)) return;
  draw(card.box, () => ({
    data: [
      {
        type: "bar",
        x: spread.map((_, index) => names[index] ?? String(index)),
        y: spread,
        marker: { color: spread.map((_, index) => classColour(index)) },
        hovertemplate: "class %{x}: %{y:.3g}<extra></extra>",
      },
    ],
    layout: {
      xaxis: { type: "category", title: { text: "class" }, showticklabels: spread.length <= 30 },
      yaxis: { range: [0, 1.05 * largest || 1] },
    },
  }));
}

/** @param {Card} card @param {Network} network */
export function drawLayers(card, network) {
  const layers = network.layers.filter((one) => one.nc1 !== null || one.nc1_quotient !== null);
  if (!hasRoom(card, layers.length > 1)) return;
  const names = layers.map((one) => one.name);
  draw(card.box, (colours) => ({
    data: [
      { values: layers.map((one) => one.nc1), name: "NC1", index: 1 },
      { values: layers.map((one) => one.nc1_quotient), name: "tr S_W / tr S_B", index: 0 },
    ].map(({ values, name, index }) => ({
      x: names,
      y: values.map((value) => (Number(value) > 0 ? value : null)),
      name,
      mode: "lines+markers",
      line: { color: colours.series[index], width: 2 },
      marker: { size: 7 },
      hovertemplate: "%{x}: %{y:.3g}",
    })),
    layout: {
      xaxis: { type: "category", tickangle: layers.length > 4 ? -35 : 0 },
      yaxis: logAxis(layers.flatMap((one) => [one.nc1, one.nc1_quotient])),
    },
  }));
}

/** NC1 to NC4 over the states, or from the run's own file of metrics. @param {Card} card @param {NetworkAnswer} shown */
export function drawHistory(card, shown) {
  /** @type {Record<string, any>[]} */
  const rows = shown.history.length
    ? shown.history.filter((row) => row.split === "train")
    : shown.frames
        .filter((frame) => frame.step !== null)
        .map((frame) => ({
          epoch: frame.step,
          ...Object.fromEntries(frame.network.gauges.map((one) => [one.metric, one.value])),
        }));
  if (!hasRoom(card, rows.length > 2)) return;
  card.words.textContent = shown.history.length
    ? "On the training set, from the run's own file of metrics."
    : "NC1 to NC4 at the states above; zero is not drawn on a scale of decades.";
  const curves = [
    { key: "nc1", name: "NC1", index: 1 },
    { key: "nc2", name: "NC2", index: 2 },
    { key: "nc3", name: "NC3", index: 4 },
    { key: "nc4_mismatch", name: "NC4", index: 3 },
  ].filter(({ key }) => rows.some((row) => row[key] > 0));
  const epochs = shown.history.length || shown.frames.some((frame) => frame.name.includes("epoch"));
  draw(card.box, (colours) => ({
    data: curves.map(({ key, name, index }) => ({
      x: rows.map((row) => row.epoch),
      y: rows.map((row) => (row[key] > 0 ? row[key] : null)),
      name,
      mode: "lines+markers",
      marker: { size: 5 },
      line: { color: colours.series[index], width: 2 },
      hovertemplate: "%{y:.3g}",
    })),
    layout: {
      hovermode: "x unified",
      xaxis: { title: { text: epochs ? "epoch" : "step" }, rangemode: "tozero" },
      yaxis: logAxis(rows.flatMap((row) => curves.map(({ key }) => row[key]))),
    },
  }));
}
