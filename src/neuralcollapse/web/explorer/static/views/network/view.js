// @ts-check
// The view "Your network": files, runs, a sample or a model that trains now become four gauges and pictures.

import * as api from "../../page/api.js";
import { $, el, message, notice } from "../../page/dom.js";
import { NetworkReport } from "./report.js";

const ASK_EVERY = 1500;
const FILE_EXAMPLE = `import numpy as np
np.savez("features.npz", features=h, labels=y, weight=w, bias=b)   # h: (N, d), y: (N,), w: (K, d), b: (K,)`;
const WATCH_EXAMPLE = `import neuralcollapse as nc
with nc.watch(model, loader) as watcher:
    for epoch in range(epochs):
        train_one_epoch(model)
        watcher.update()`;

const report = new NetworkReport();
/** What was heard of a network that trains now, and whether it is shown. */
const live = { run: "-", after: 0, on: true };
const backToLive = action("Back to the network that trains now", () => {
  Object.assign(live, { run: "-", after: 0, on: true });
  poll();
});
/** @type {number | undefined} */
let timer;

/** @param {string} words @param {() => void} onclick */
function action(words, onclick) {
  return el("button", { type: "button", class: "action", onclick }, words);
}

/** @param {About} about */
export function buildNetwork(about) {
  const sample = action("Show a sample: digits before and after training", () =>
    ask("Training a small net on 500 digits; this takes a few seconds …", () => api.get("sample")),
  );
  sample.id = "sample";
  sample.classList.add("primary");
  const places = about.places.map((name, index) =>
    action(name, () => ask(`Measuring ${name} …`, () => api.get("place", { place: index }))),
  );
  backToLive.hidden = true;
  $("network-sources").replaceChildren(
    el("div", { class: "row" }, sample, ...places, backToLive),
    dropZone(about),
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

/** @param {About} about */
function dropZone(about) {
  const most = Math.round(about.limits.upload / 2 ** 20);
  const take = (/** @type {FileList | null | undefined} */ files) => {
    if (files?.length) measureFiles([...files], about);
  };
  const input = el("input", {
    type: "file",
    accept: about.suffixes.join(","),
    id: "file",
    multiple: true,
    onchange: () => take(input.files),
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
      `${about.suffixes.join(", ")}; several shards at once; at most ${most} MB. They go to the server on this machine and nowhere else, and are not kept. Nothing in them is executed.`,
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
    take(event.dataTransfer?.files);
  });
  return drop;
}

export function updateNetwork() {
  timer ??= setInterval(() => {
    if (!document.hidden && !$("panel-network").hidden) poll();
  }, ASK_EVERY);
  poll();
}

/** @param {File[]} files @param {About} about */
async function measureFiles(files, about) {
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const names = files.length === 1 ? files[0].name : `${files.length} files`;
  const odd = files.find((file) => !about.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix)));
  const megabytes = (/** @type {number} */ bytes) => `${(bytes / 2 ** 20).toFixed(0)} MB`;
  if (odd) notice("network-error", `${odd.name}: the file must be one of ${about.suffixes.join(", ")}`);
  else if (size > about.limits.upload)
    notice(
      "network-error",
      `${names}: ${megabytes(size)}, more than the ${megabytes(about.limits.upload)} allowed: use neuralcollapse measure, or name the folder when starting the page`,
    );
  else await ask(`Measuring ${names} …`, () => api.upload("measure", files), names);
}

/** @param {string} words while one waits @param {() => Promise<NetworkAnswer>} question @param {string} [prefix] */
async function ask(words, question, prefix = "") {
  live.on = false;
  report.stop();
  notice("network-error", null);
  $("network-busy").textContent = words;
  try {
    const answer = await question();
    report.open(answer, answer.frames.length - 1);
    report.title.focus({ preventScroll: true });
    report.title.scrollIntoView({ block: "start" });
  } catch (error) {
    notice("network-error", prefix ? `${prefix}: ${message(error)}` : message(error));
  } finally {
    $("network-busy").textContent = "";
  }
}

/** States that a watcher has sent since the last question; the newest is shown, unless one looks at an older one. */
async function poll() {
  /** @type {{run: string | null, title: string, frames: NetworkFrame[]} | null} */
  let answer;
  try {
    answer = await api.latest("watch", () => api.get("watch", { run: live.run, after: live.after }));
  } catch {
    return;
  }
  if (!answer) return;
  backToLive.hidden = !answer.run || live.on;
  const last = answer.frames.at(-1);
  if (!answer.run || !live.on || !last) return;
  const fresh = answer.run !== live.run;
  Object.assign(live, { run: answer.run, after: last.number });
  const frames = fresh ? answer.frames : [...report.shown.frames, ...answer.frames];
  const place = fresh || report.newest ? frames.length - 1 : report.place;
  report.open({ title: `${answer.title}, training now`, frames, history: [] }, place);
}
