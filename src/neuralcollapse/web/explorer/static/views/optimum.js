// @ts-check
// The Optimum view: the closed form, its Gram matrices, its picture, its curve.

import * as state from "../page/state.js";
import * as api from "../page/api.js";
import { draw, forget, diverging } from "../page/charts.js";
import { modelFields } from "./model.js";
import { Space } from "./space.js";
import { $, body, command, el, facts, message, notice, sentence } from "../page/dom.js";
import { show } from "../page/numbers.js";

const space = new Space();
/** @type {OptimumAnswer | null} what is shown */
let shown = null;

export async function updateOptimum() {
  /** @type {OptimumAnswer | null} */
  let found;
  try {
    const fields = modelFields();
    found = await api.latest("optimum", () => api.get("optimum", fields));
  } catch (error) {
    notice("optimum-error", message(error));
    for (const card of document.querySelectorAll("#panel-optimum .card")) card.classList.add("stale");
    return;
  }
  if (!found) return;
  shown = found;
  notice("optimum-error", null);
  for (const card of document.querySelectorAll("#panel-optimum .card")) card.classList.remove("stale");
  showFacts(found);
  showView(found);
  redrawOptimum();
  const others = ["view", "gram", "curve"].filter((name) => !$(`optimum-${name}`).hidden).length;
  $("optimum-dimension").classList.toggle("wide", others % 2 === 1);
  showDimension(found);
}

// What depends on the choice of a curve or a matrix only.
export function redrawOptimum() {
  if (!shown) return;
  showGram(shown);
  showCurve(shown);
}

/** @param {OptimumAnswer} answer */
function showFacts(answer) {
  const best = answer.optimum;
  /** @type {(HTMLElement | "")[]} */
  const nodes = [el("h2", {}, "Closed form")];
  if (best) {
    const regime = best.regime === "zero" ? "open" : "good";
    nodes.push(
      el("div", { class: "big", id: "optimum-value" }, show(best.value, 10)),
      el(
        "p",
        {},
        el("span", { class: `badge ${regime}` }, best.regime),
        best.proved ? " proved to be global" : " the lowest known",
      ),
      el("p", {}, answer.meaning),
      facts([
        ["logit scale", show(best.logit_scale)],
        ["norm of a row of W", best.weight_norm === null ? null : show(best.weight_norm)],
        ["norm of a feature", show(best.feature_norm)],
        ["each bias", best.bias === null ? null : show(best.bias)],
        ["classes of each simplex", best.simplices === null ? null : best.simplices.join(" + ")],
        ["note", best.note],
      ]),
    );
  } else {
    nodes.push(
      el(
        "div",
        { class: "big", id: "optimum-value" },
        answer.lower_bound === null ? "not known" : `≥ ${show(answer.lower_bound, 10)}`,
      ),
      el("p", {}, sentence(answer.reason)),
      answer.lower_bound === null
        ? ""
        : el(
            "p",
            { class: "soft" },
            "The bound is the minimum with K dimensions. Under Solve the minimum can be looked for from random starts.",
          ),
    );
  }
  nodes.push(
    answer.formula
      ? el("p", { class: "soft" }, best ? answer.formula : `With enough dimensions: ${answer.formula}`)
      : "",
    command(answer.command),
  );
  $("optimum-facts").replaceChildren(...nodes.filter((node) => node !== ""));
}

/** @param {OptimumAnswer} answer */
function showView(answer) {
  const place = body("optimum-view");
  const view = answer.view;
  $("optimum-view").hidden = !view;
  if (!view) return;
  space.set(view, "Classifier rows as arrows and class means as rings");
  const share = view.share < 0.9995 ? ` They keep ${(100 * view.share).toFixed(1)} % of the squared lengths.` : "";
  place.replaceChildren(
    space.node,
    el(
      "p",
      { class: "caption" },
      `${view.weight ? "Arrows: rows of the classifier. " : ""}Rings: features, all of a class at one place. ${view.weight ? "Each kind is scaled to length one." : ""}${share} Drag, or use the arrow keys.`,
    ),
  );
}

/** @param {OptimumAnswer} answer */
function showGram(answer) {
  const place = body("optimum-gram");
  $("optimum-gram").hidden = !answer.grams;
  if (!answer.grams) return;
  /** @type {Record<string, string>} */
  const names = { weight: "W Wᵀ, of the classifier", means: "of the class means" };
  const kinds = Object.keys(answer.grams);
  const chosen = kinds.includes(state.get("gram")) ? state.get("gram") : kinds[0];
  const gram = answer.grams[chosen];
  const chart = reuse(
    place,
    chooser(
      "gram",
      kinds.map((kind) => [kind, names[kind]]),
      chosen,
    ),
  );
  place.querySelector(".caption")?.remove();
  place.append(
    el(
      "p",
      { class: "caption" },
      answer.view || answer.optimum?.regime === "zero"
        ? "All lengths and angles: the squared norms are on the diagonal."
        : `All lengths and angles: ${gram.length} classes span more dimensions than a picture has.`,
    ),
  );
  const ticks = { tick0: 1, dtick: Math.max(1, Math.round(gram.length / 10)), showgrid: false, constrain: "domain" };
  draw(chart, (colours) => ({
    data: [
      {
        type: "heatmap",
        z: gram,
        zmid: 0,
        colorscale: diverging(colours),
        xgap: gram.length > 30 ? 0 : 1,
        ygap: gram.length > 30 ? 0 : 1,
        x: gram.map((_, index) => index + 1),
        y: gram.map((_, index) => index + 1),
        colorbar: { thickness: 10, outlinewidth: 0 },
        hovertemplate: "classes %{y}, %{x}: %{z:.5g}<extra></extra>",
        ...(gram.length <= 6
          ? { text: gram.map((row) => row.map((value) => show(value, 3))), texttemplate: "%{text}" }
          : {}),
      },
    ],
    layout: {
      xaxis: { ...ticks, title: { text: "class" } },
      yaxis: { ...ticks, scaleanchor: "x", autorange: "reversed" },
    },
  }));
}

/** A chart that stays in its place, so that plotly can update it; the choice above it is made anew.
 * @param {HTMLElement} place @param {HTMLElement} above */
function reuse(place, above) {
  const before = /** @type {HTMLElement | null} */ (place.querySelector(".chart"));
  const chart = before ?? el("div", { class: "chart" });
  if (before && place.firstElementChild !== before) place.firstElementChild?.replaceWith(above);
  else place.replaceChildren(above, chart);
  return chart;
}

/** @param {string} name @param {string[][]} options @param {string} chosen */
function chooser(name, options, chosen) {
  const focused = document.activeElement?.id === `choose-${name}`;
  const node = el("select", {
    id: `choose-${name}`,
    "aria-label": "What to show",
    onchange: () => state.set(name, node.value),
  });
  for (const [value, text] of options) node.append(el("option", { value, selected: value === chosen }, text));
  if (focused) queueMicrotask(() => node.focus());
  return el("div", { class: "row" }, node);
}

/** @param {OptimumAnswer} answer */
function showCurve(answer) {
  const place = body("optimum-curve");
  const curves = answer.curves;
  $("optimum-curve").hidden = !curves.length;
  if (!curves.length) return;
  const curve = curves.find((one) => one.name === state.get("curve")) ?? curves[0];
  /** @type {Record<string, string>} */
  const titles = {
    xi: "ξ(ρ)",
    psi: "ψ(t)",
    ray: "along a ray",
    margin: "ℓ(a)",
    temperature: "over τ",
    cosine: "over the cosine",
  };
  const chart = reuse(
    place,
    chooser(
      "curve",
      curves.map((one) => [one.name, titles[one.name] ?? one.name]),
      curve.name,
    ),
  );
  place.querySelector(".caption")?.remove();
  place.append(
    el(
      "p",
      { class: "caption" },
      answer.lower_bound === null ? curve.title : `${curve.title}; a lower bound in this case`,
    ),
  );
  draw(chart, (colours) => {
    /** @type {object[]} */
    const data = [
      {
        x: curve.x,
        y: curve.y,
        mode: "lines",
        line: { color: colours.series[0], width: 2.5 },
        hovertemplate: "%{x:.4g}: %{y:.6g}<extra></extra>",
      },
    ];
    if (curve.minimum) {
      data.push({
        x: [curve.minimum[0]],
        y: [curve.minimum[1]],
        mode: "markers",
        marker: { color: colours.series[1], size: 12, symbol: "star" },
        hovertemplate: "minimum %{y:.8g} at %{x:.6g}<extra></extra>",
      });
    }
    return {
      data,
      layout: {
        showlegend: false,
        xaxis: { title: { text: curve.x_label } },
        yaxis: { title: { text: curve.y_label } },
        shapes: curve.marks.map((mark) => ({
          type: "line",
          x0: mark.x,
          x1: mark.x,
          y0: 0,
          y1: 1,
          yref: "paper",
          line: { color: colours.soft, dash: "dot", width: 1.5 },
        })),
        annotations: curve.marks.map((mark, index) => ({
          x: mark.x,
          y: 1 - 0.09 * index,
          yref: "paper",
          yanchor: "top",
          xanchor: "left",
          text: mark.text,
          showarrow: false,
          font: { color: colours.soft, size: 11 },
        })),
      },
    };
  });
}

/** @param {OptimumAnswer} answer */
function showDimension(answer) {
  const place = body("optimum-dimension");
  const text = el("p", {}, answer.dimension);
  const table = answer.by_dimension;
  if (!table) {
    /** @type {NodeListOf<HTMLElement>} */ (place.querySelectorAll(".chart")).forEach(forget);
    place.replaceChildren(text);
    return;
  }
  const chart = /** @type {HTMLElement} */ (place.querySelector(".chart") ?? el("div", { class: "chart" }));
  place.replaceChildren(text, chart);
  const dim = Number(state.get("dim"));
  draw(chart, (colours) => ({
    data: [
      {
        x: table.dims,
        y: table.values,
        mode: "lines+markers",
        line: { color: colours.series[0] },
        marker: { size: 7, color: table.dims.map((d) => (d === dim ? colours.series[1] : colours.series[0])) },
        hovertemplate: "d = %{x}: %{y:.8g}<extra></extra>",
      },
    ],
    layout: {
      showlegend: false,
      xaxis: { title: { text: "dimensions d" }, tickformat: "d", nticks: 14 },
      yaxis: { title: { text: "optimal value" } },
    },
  }));
}
