// @ts-check
// A network in words and numbers: a gauge for each property, and the table of every metric.

import { el } from "../../page/dom.js";
import { show } from "../../page/numbers.js";

/** @param {[number, number] | null} interval */
const bounds = (interval) => (interval ? ` (${show(interval[0], 3)} to ${show(interval[1], 3)})` : "");

/** @param {GaugeAnswer} one */
export function gauge(one) {
  const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(2)}%`;
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
    {
      class: "gauge",
      role: "img",
      "aria-label": `${label}; ${one.metric} = ${show(one.value, 3)}${bounds(one.interval)}`,
    },
    el(
      "p",
      { class: "head" },
      el("strong", {}, one.property),
      el("span", { class: "soft" }, one.title),
      el("span", { class: "reading" }, one.value === null ? "–" : `${show(one.value, 3)}${bounds(one.interval)}`),
    ),
    el("span", { class: "end" }, "random"),
    scale,
    el("span", { class: "end" }, "collapsed"),
    el("span", { class: "soft words" }, one.words),
  );
}

/** @param {Network} network */
export function metricTable(network) {
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
    rows.push(
      el(
        "tr",
        {},
        el("td", {}, el("code", {}, metric.name)),
        el("td", { class: "number", "data-label": "value" }, `${show(metric.value, 5)}${bounds(metric.interval)}`),
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
