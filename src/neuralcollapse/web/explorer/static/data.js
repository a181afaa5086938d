// The Data in view: a file of features becomes a table of metrics.

import * as api from "./api.js";
import { $, el, notice, show } from "./dom.js";

const example = `import numpy as np
np.savez("features.npz", features=h, labels=y, weight=w, bias=b)   # h: (N, d), y: (N,), w: (K, d), b: (K,)`;

export function buildData(about) {
  const input = el("input", { type: "file", accept: about.suffixes.join(","), id: "file", onchange: () => input.files.length && measure(input.files[0], about) });
  const drop = el("label", { class: "drop", for: "file" }, input, el("strong", {}, "Drop a .npz or .safetensors file here"), " or choose one",
    el("p", { class: "caption" }, `At most ${Math.round(about.limits.upload / 2 ** 20)} MB. Nothing in it is executed.`));
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) measure(event.dataTransfer.files[0], about);
  });
  $("data-drop").replaceChildren(drop, el("details", { class: "more" }, el("summary", {}, "How to write such a file"), el("pre", {}, example)));
}

async function measure(file, about) {
  notice("data-error", null);
  $("data-report").replaceChildren(el("p", { class: "soft" }, `Measuring ${file.name} …`));
  try {
    if (!about.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix))) throw new Error(`the file must be one of ${about.suffixes.join(", ")}`);
    if (file.size > about.limits.upload) throw new Error(`the file has ${(file.size / 2 ** 20).toFixed(0)} MB, more than the ${about.limits.upload / 2 ** 20} MB allowed: use neuralcollapse measure`);
    showReport(file.name, await api.upload("measure", file));
  } catch (error) {
    notice("data-error", `${file.name}: ${error.message}`);
    $("data-report").replaceChildren();
  }
}

function showReport(name, report) {
  const rows = [];
  let last = "";
  for (const metric of report.metrics) {
    if (metric.property !== last) {
      last = metric.property;
      rows.push(el("tr", { class: "group" }, el("th", { colspan: 4, scope: "rowgroup" }, metric.property, " ", el("span", {}, metric.meaning))));
    }
    rows.push(el("tr", {},
      el("td", {}, el("code", {}, metric.name)),
      el("td", { class: "number", "data-label": "value" }, show(metric.value, 5)),
      el("td", { class: "number", "data-label": "at collapse" }, show(metric.at_collapse, 4)),
      el("td", {}, metric.reason ? el("em", {}, `no value: ${metric.reason}`) : metric.definition, el("div", { class: "soft" }, `${metric.better === "higher" ? "higher is more collapsed" : "lower is more collapsed"}; random features: ${metric.at_random}. ${metric.paper}`))));
  }
  const head = el("thead", {}, el("tr", {}, el("th", {}, "metric"), el("th", { class: "number" }, "value"), el("th", { class: "number" }, "at collapse"), el("th", {}, "definition, or why there is no value")));
  $("data-report").replaceChildren(el("section", { class: "card" }, el("h2", {}, `${name}. ${report.title}`), report.notes.map((note) => el("p", { class: "soft" }, note)), el("table", { class: "stack", id: "metrics" }, head, el("tbody", {}, rows))));
}
