// The view "Your network": files, runs, a sample or a model that trains now become four gauges and pictures.

import * as api from "../page/api.js";
import { diverging, draw, forget, logAxis } from "../page/charts.js";
import { $, el, notice } from "../page/dom.js";
import { show } from "../page/numbers.js";
import { Stage, classColour } from "../collapse/stage.js";
import { pictureOf } from "../collapse/space3.js";

const EVERY = 1500;
const FILE_EXAMPLE = `import numpy as np
np.savez("features.npz", features=h, labels=y, weight=w, bias=b)   # h: (N, d), y: (N,), w: (K, d), b: (K,)`;
const WATCH_EXAMPLE = `import neuralcollapse as nc
with nc.watch(model, loader) as watcher:
    for epoch in range(epochs):
        train_one_epoch(model)
        watcher.update()`;

let about;
let shown = { title: "", frames: [], history: [] };
let place = 0;
let chosen = [0, 1, 2, 3];
let player = null;
let live = { run: "-", after: 0, on: true, timer: null };
let nodes = {};
let stage;

// what is on the page --------------------------------------------------------------------------------------------------

export function buildNetwork(given) {
  about = given;
  const input = el("input", {
    type: "file",
    accept: about.suffixes.join(","),
    id: "file",
    multiple: true,
    onchange: () => input.files.length && measureFiles([...input.files]),
  });
  const drop = el(
    "label",
    { class: "drop", for: "file" },
    input,
    el("strong", {}, "Drop files of features here"),
    " or choose them",
    el(
      "p",
      { class: "caption" },
      `${about.suffixes.join(", ")}; several shards at once; at most ${Math.round(about.limits.upload / 2 ** 20)} MB. They go to the server on this machine and nowhere else, and are not kept. Nothing in them is executed.`,
    ),
  );
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) measureFiles([...event.dataTransfer.files]);
  });
  const places = about.places.map((name, index) =>
    el(
      "button",
      {
        type: "button",
        class: "action",
        onclick: () => ask(`Measuring ${name} …`, () => api.get("place", { place: index })),
      },
      name,
    ),
  );
  nodes.live = el(
    "button",
    {
      type: "button",
      class: "action",
      hidden: true,
      onclick: () => {
        live = { ...live, run: "-", after: 0, on: true };
        poll();
      },
    },
    "Back to the network that trains now",
  );
  $("network-sources").replaceChildren(
    el(
      "div",
      { class: "row" },
      el(
        "button",
        {
          type: "button",
          class: "action primary",
          id: "sample",
          onclick: () => ask("Training a small net on 500 digits; this takes a few seconds …", () => api.get("sample")),
        },
        "Show a sample: digits before and after training",
      ),
      ...places,
      nodes.live,
    ),
    drop,
    el(
      "details",
      { class: "more" },
      el("summary", {}, "How to write such a file, watch a model while it trains, or open a run"),
      el("p", { class: "caption" }, "A file of features:"),
      el("pre", {}, FILE_EXAMPLE),
      el(
        "p",
        { class: "caption" },
        "A model while it trains (it streams to this page when the page is open on the same port):",
      ),
      el("pre", {}, WATCH_EXAMPLE),
      el("p", { class: "caption" }, "Run directories and folders of shards:"),
      el("pre", {}, "neuralcollapse explore RUN shards/"),
    ),
  );
}

export function updateNetwork() {
  if (!live.timer) live.timer = setInterval(() => !document.hidden && !$("panel-network").hidden && poll(), EVERY);
  poll();
}

async function measureFiles(files) {
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const names = files.length === 1 ? files[0].name : `${files.length} files`;
  const odd = files.find((file) => !about.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix)));
  if (odd) notice("network-error", `${odd.name}: the file must be one of ${about.suffixes.join(", ")}`);
  else if (size > about.limits.upload)
    notice(
      "network-error",
      `${names}: ${(size / 2 ** 20).toFixed(0)} MB, more than the ${about.limits.upload / 2 ** 20} MB allowed: use neuralcollapse measure, or name the folder when starting the page`,
    );
  else await ask(`Measuring ${names} …`, () => api.upload("measure", files), names);
}

async function ask(words, question, prefix = "") {
  live.on = false;
  stop();
  notice("network-error", null);
  $("network-busy").textContent = words;
  try {
    const answer = await question();
    open(answer, answer.frames.length - 1);
    nodes.title.focus({ preventScroll: true });
    nodes.title.scrollIntoView({ block: "start" });
  } catch (error) {
    notice("network-error", prefix ? `${prefix}: ${error.message}` : error.message);
  } finally {
    $("network-busy").textContent = "";
  }
}

// States that a watcher has sent since the last question; the newest is shown, unless one looks at an older one.
async function poll() {
  let answer;
  try {
    answer = await api.latest("watch", () => api.get("watch", { run: live.run, after: live.after }));
  } catch {
    return;
  }
  if (!answer) return;
  nodes.live.hidden = !answer.run || live.on;
  if (!answer.run || !live.on || !answer.frames.length) return;
  const fresh = answer.run !== live.run;
  live = { ...live, run: answer.run, after: answer.frames.at(-1).number };
  const frames = fresh ? answer.frames : [...shown.frames, ...answer.frames];
  const newest = fresh || place >= shown.frames.length - 1;
  open({ title: `${answer.title}, training now`, frames, history: [] }, newest ? frames.length - 1 : place);
}

// one network over time ----------------------------------------------------------------------------------------------

function open(answer, at) {
  const other = answer.title !== shown.title;
  shown = answer;
  place = at;
  if (other) chosen = [];
  const first = answer.frames[0].network;
  const classes = first.view?.classes ?? [];
  chosen = chosen.filter((label) => classes.includes(label));
  for (const label of classes)
    if (chosen.length < Math.min(4, classes.length) && !chosen.includes(label)) chosen.push(label);
  if (other || !nodes.frame) build();
  nodes.title.textContent = answer.title;
  nodes.time.hidden = answer.frames.length < 2;
  nodes.slider.max = String(answer.frames.length - 1);
  nodes.slider.value = String(at);
  showFrame();
  showHistory();
}

function build() {
  nodes.title = el("h2", { id: "network-title", tabindex: -1 });
  nodes.headline = el("p", { class: "big", id: "network-headline" });
  nodes.sizes = el("p", { class: "soft" });
  nodes.moment = el("output", { for: "network-time" });
  nodes.slider = el("input", {
    type: "range",
    id: "network-time",
    min: 0,
    max: 0,
    value: 0,
    step: 1,
    class: "grow",
    "aria-label": "time",
  });
  nodes.slider.addEventListener("input", () => {
    stop();
    go(Number(nodes.slider.value));
  });
  nodes.play = el("button", { type: "button", class: "action", onclick: () => (player ? stop() : start()) }, "Play");
  nodes.time = el("div", { class: "row" }, nodes.play, nodes.slider, nodes.moment);
  nodes.gauges = el("div", { class: "gauges", id: "gauges" });
  nodes.notes = el("div", {});
  nodes.frame = el("div", { class: "cards network" });
  nodes.table = el("div", {});
  nodes.canvas = el("canvas", { class: "stage network-stage", tabindex: 0, role: "img" });
  nodes.chips = el("div", { class: "class-chips" });
  nodes.cards = {
    view: card(
      "In three dimensions",
      el(
        "div",
        {},
        nodes.canvas,
        nodes.chips,
        el(
          "p",
          { class: "caption" },
          "Dots: samples; rings: class means; arrows: classifier rows; dashed: the simplex that four classes go to. Seen in the span of the four chosen classes; the unit is the means' distance from their centre. Drag, or use the arrow keys.",
        ),
      ),
    ),
    gram: card(
      "Cosines of class means",
      chartBox(),
      "Off the diagonal −1/(K−1) at collapse (the reading is in the caption of the colour bar).",
    ),
    weight: card("Cosines of classifier rows", chartBox(), "The same for the classifier."),
    pair: card("The hardest pair", chartBox(), ""),
    margins: card(
      "Margins",
      chartBox(),
      "Cosine to the own classifier row minus that to the best other one, sorted. Dashed: at collapse. Below 0 a sample is on the wrong side.",
    ),
    spread: card(
      "Spread of each class",
      chartBox(),
      "Root mean square distance of a class's samples from their mean, in units of the means' distance from their centre. 0 at collapse.",
    ),
    layers: card(
      "From layer to layer",
      chartBox(),
      "Spread within classes against the distance between them, at each layer's output: NC1, and the quotient of the traces. Positions of convolutions are averaged.",
    ),
    history: card("Measured on the way", chartBox(), "From the run's own file of metrics."),
  };
  nodes.cards.view.node.classList.add("tall");
  nodes.cards.history.node.classList.add("wide");
  nodes.frame.replaceChildren(...Object.values(nodes.cards).map((one) => one.node));
  stage = new Stage(nodes.canvas, null);
  $("network-report").replaceChildren(
    el("section", { class: "card" }, nodes.title, nodes.headline, nodes.sizes, nodes.time, nodes.gauges, nodes.notes),
    nodes.frame,
    el(
      "details",
      { class: "more", id: "network-all" },
      el("summary", {}, "Every metric, with its definition"),
      nodes.table,
    ),
  );
}

const chartBox = () => el("div", { class: "chart" });

function card(title, box, caption) {
  const words = el("p", { class: "caption" }, caption);
  return {
    node: el("section", { class: "card" }, el("h2", {}, title), box, caption === undefined ? null : words),
    box,
    words,
  };
}

function go(at) {
  place = at;
  nodes.slider.value = String(at);
  showFrame();
}

function start() {
  if (place >= shown.frames.length - 1) go(0);
  nodes.play.textContent = "Stop";
  player = setInterval(() => {
    go(place + 1);
    if (place >= shown.frames.length - 1) stop();
  }, 900);
}

function stop() {
  clearInterval(player);
  player = null;
  if (nodes.play) nodes.play.textContent = "Play";
}

function showFrame() {
  const { name, network } = shown.frames[place];
  nodes.moment.textContent = name;
  nodes.slider.setAttribute("aria-valuetext", name);
  nodes.headline.textContent = `${network.headline.charAt(0).toUpperCase()}${network.headline.slice(1)}`;
  const right = network.accuracy === null ? "" : `; accuracy ${show(100 * network.accuracy, 4)} %`;
  nodes.sizes.textContent = `${network.title}${right}`;
  nodes.gauges.replaceChildren(...network.gauges.map(gauge));
  nodes.notes.replaceChildren(...network.notes.map((note) => el("p", { class: "soft" }, note)));
  nodes.table.replaceChildren(metricTable(network));
  drawView(network);
  drawGram("gram", network.gram.means, network);
  drawGram("weight", network.gram.classifier, network);
  drawPair(network);
  drawMargins(network);
  drawSpread(network);
  drawLayers(network);
}

// gauges ---------------------------------------------------------------------------------------------------------------

function gauge(one) {
  const percent = (share) => `${(100 * share).toFixed(2)}%`;
  const bounds = one.interval ? ` (${show(one.interval[0], 3)} to ${show(one.interval[1], 3)})` : "";
  const scale = el("div", { class: "scale" });
  if (one.position !== null) {
    scale.append(el("span", { class: "reached", style: `width: ${percent(one.position)}` }));
    scale.append(
      el("span", { class: "name", style: `left: ${percent(Math.min(0.96, Math.max(0.04, one.position)))}` }, "yours"),
    );
    if (one.span)
      scale.append(
        el("span", {
          class: "interval",
          style: `left: ${percent(one.span[0])}; width: ${percent(Math.max(0, one.span[1] - one.span[0]))}`,
        }),
      );
    scale.append(el("span", { class: "yours", style: `left: ${percent(one.position)}` }));
  }
  const label =
    one.position === null
      ? `${one.property}: no place on the scale`
      : `${one.property}: ${Math.round(100 * one.position)} % of the way from random to collapsed`;
  return el(
    "div",
    { class: "gauge", role: "img", "aria-label": `${label}; ${one.metric} = ${show(one.value, 3)}${bounds}` },
    el(
      "p",
      { class: "head" },
      el("strong", {}, one.property),
      el("span", { class: "soft" }, one.title),
      el("span", { class: "reading" }, one.value === null ? "–" : `${show(one.value, 3)}${bounds}`),
    ),
    el("span", { class: "end" }, "random"),
    scale,
    el("span", { class: "end" }, "collapsed"),
    el("span", { class: "soft words" }, one.words),
  );
}

// pictures -------------------------------------------------------------------------------------------------------------

function drawView(network) {
  const { view } = network;
  nodes.cards.view.node.hidden = !view;
  if (!view) return;
  const at = new Map(view.classes.map((label, index) => [label, index]));
  const rows = chosen.map((label) =>
    view.means[at.get(label)].map((entry, j) => entry + (view.classifier ? view.classifier[at.get(label)][j] : 0)),
  );
  const middle = rows[0].map((_, j) => rows.reduce((sum, row) => sum + row[j], 0) / rows.length);
  const { basis, target } = pictureOf(
    rows.map((row) => row.map((entry, j) => entry - middle[j])),
    view.dim,
    [],
  );
  const means = chosen.map((label) => view.means[at.get(label)]);
  const centre =
    view.dim > 3
      ? means[0].map((_, j) => means.reduce((sum, row) => sum + row[j], 0) / means.length)
      : middle.map(() => 0);
  const placed = (row, from) =>
    basis.map((axis) => axis.reduce((sum, entry, j) => sum + entry * (row[j] - from[j]), 0));
  const items = [];
  view.labels.forEach((label, index) => {
    if (chosen.includes(label)) items.push({ kind: "sample", index, label, at: placed(view.samples[index], centre) });
  });
  // A classifier row and a mean of the same direction fall on one ray from the picture's middle.
  const rowsCentre =
    view.classifier && view.dim > 3
      ? chosen
          .map((label) => view.classifier[at.get(label)])
          .reduce(
            (sum, row) => sum.map((entry, j) => entry + row[j] / chosen.length),
            middle.map(() => 0),
          )
      : middle.map(() => 0);
  for (const label of chosen) {
    const index = at.get(label);
    if (view.classifier)
      items.push({ kind: "row", index: label, label, at: placed(view.classifier[index], rowsCentre) });
    items.push({ kind: "mean", index: label, label, at: placed(view.means[index], centre) });
  }
  const size = (kind) => items.filter((item) => item.kind === kind).map((item) => Math.hypot(...item.at));
  const typical = size("mean").reduce((sum, one) => sum + one, 0) / chosen.length || 1;
  const spread = size("sample").sort((a, b) => a - b);
  const radius = Math.max(...size("mean"), ...size("row"), 0.8 * (spread[Math.floor(0.97 * spread.length)] ?? 0), 1e-9);
  nodes.canvas.setAttribute(
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
  nodes.chips.replaceChildren(
    ...(view.classes.length > 4 && view.classes.length <= 30
      ? view.classes.map((label) =>
          el(
            "button",
            {
              type: "button",
              class: "chip",
              style: `border-color: ${classColour(label)}`,
              "aria-pressed": String(chosen.includes(label)),
              onclick: () => choose(label),
            },
            network.names[label] ?? String(label),
          ),
        )
      : []),
  );
}

function choose(label) {
  if (chosen.includes(label)) return;
  chosen = [...chosen.slice(1), label];
  showFrame();
}

function hideOr(name, some) {
  const { node, box } = nodes.cards[name];
  node.hidden = !some;
  if (!some) forget(box);
  return Boolean(some);
}

function drawGram(name, cosines, network) {
  if (!hideOr(name, cosines)) return;
  const names = cosines.map((_, index) => network.names[index] ?? String(index));
  nodes.cards[name].words.textContent =
    `Off the diagonal ${show(-1 / (network.classes - 1), 3).replace("-", "−")} at collapse, when a simplex fits.`;
  draw(nodes.cards[name].box, (colours) => ({
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

function drawPair(network) {
  const { pair } = network;
  if (!hideOr("pair", pair)) return;
  const [one, other] = pair.classes.map((label) => network.names[label] ?? String(label));
  nodes.cards.pair.words.textContent = `Classes ${one} and ${other}: their samples along the line through both means (0 and 1); of all pairs the one with the most spread for its distance${pair.cdnv === null ? "" : `, CDNV ${show(pair.cdnv, 3)}`}.`;
  const bins = { start: -0.6, end: 1.6, size: 0.05 };
  draw(nodes.cards.pair.box, () => ({
    data: [
      [pair.first, pair.classes[0], one],
      [pair.second, pair.classes[1], other],
    ].map(([x, label, name]) => ({
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

function drawMargins(network) {
  const { margins } = network;
  if (!hideOr("margins", margins)) return;
  draw(nodes.cards.margins.box, (colours) => ({
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

function drawSpread(network) {
  const { spread, names } = network;
  if (!hideOr("spread", spread)) return;
  const largest = Math.max(...shown.frames.map((frame) => Math.max(...(frame.network.spread ?? [0]))));
  draw(nodes.cards.spread.box, () => ({
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

function drawLayers(network) {
  const layers = network.layers.filter((one) => one.nc1 !== null || one.nc1_quotient !== null);
  if (!hideOr("layers", layers.length > 1)) return;
  const names = layers.map((one) => one.name);
  draw(nodes.cards.layers.box, (colours) => ({
    data: [
      ["nc1", "NC1", 1],
      ["nc1_quotient", "tr S_W / tr S_B", 0],
    ].map(([key, name, index]) => ({
      x: names,
      y: layers.map((one) => (one[key] > 0 ? one[key] : null)),
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

function showHistory() {
  const rows = shown.history.length
    ? shown.history.filter((row) => row.split === "train")
    : shown.frames
        .filter((frame) => frame.step !== null)
        .map((frame) => ({
          epoch: frame.step,
          ...Object.fromEntries(frame.network.gauges.map((one) => [one.metric, one.value])),
        }));
  if (!hideOr("history", rows.length > 2)) return;
  nodes.cards.history.words.textContent = shown.history.length
    ? "On the training set, from the run's own file of metrics."
    : "NC1 to NC4 at the states above; zero is not drawn on a scale of decades.";
  const names = [
    ["nc1", "NC1", 1],
    ["nc2", "NC2", 2],
    ["nc3", "NC3", 4],
    ["nc4_mismatch", "NC4", 3],
  ].filter(([key]) => rows.some((row) => row[key] > 0));
  const epochs = shown.history.length || shown.frames.some((frame) => frame.name.includes("epoch"));
  draw(nodes.cards.history.box, (colours) => ({
    data: names.map(([key, name, index]) => ({
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
      yaxis: logAxis(rows.flatMap((row) => names.map(([key]) => row[key]))),
    },
  }));
}

// all of it in numbers -------------------------------------------------------------------------------------------------

function metricTable(network) {
  const rows = [];
  let last = "";
  for (const metric of network.metrics) {
    if (metric.property !== last) {
      last = metric.property;
      rows.push(
        el(
          "tr",
          { class: "group" },
          el("th", { colspan: 4, scope: "rowgroup" }, metric.property, " ", el("span", {}, metric.meaning)),
        ),
      );
    }
    const bounds = metric.interval ? ` (${show(metric.interval[0], 3)} to ${show(metric.interval[1], 3)})` : "";
    rows.push(
      el(
        "tr",
        {},
        el("td", {}, el("code", {}, metric.name)),
        el("td", { class: "number", "data-label": "value" }, `${show(metric.value, 5)}${bounds}`),
        el("td", { class: "number", "data-label": "at collapse" }, show(metric.at_collapse, 4)),
        el(
          "td",
          {},
          metric.reason ? el("em", {}, `no value: ${metric.reason}`) : metric.definition,
          el(
            "div",
            { class: "soft" },
            `${metric.better === "higher" ? "higher is more collapsed" : "lower is more collapsed"}; random features: ${metric.at_random}. ${metric.paper}`,
          ),
        ),
      ),
    );
  }
  const head = el(
    "thead",
    {},
    el(
      "tr",
      {},
      el("th", {}, "metric"),
      el("th", { class: "number" }, "value"),
      el("th", { class: "number" }, "at collapse"),
      el("th", {}, "definition, or why there is no value"),
    ),
  );
  return el("table", { class: "stack", id: "metrics" }, head, el("tbody", {}, rows));
}
