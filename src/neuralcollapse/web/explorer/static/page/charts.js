// @ts-check
// plotly with the page's colours; a change of the colour scheme draws all again.

import { colour } from "./colours.js";

/** @typedef {{ink: string, soft: string, line: string, grid: string, card: string, accent: string, low: string, middle: string,
 *   high: string, series: string[]}} Colours
 *  @typedef {(colours: Colours) => {data: object[], layout: Record<string, any>}} Make
 *  @type {Map<PlotlyNode, Make>} */
const drawn = new Map();
const config = { displayModeBar: false, responsive: true };

/** @returns {Colours} */
function theme() {
  return {
    ink: colour("ink"),
    soft: colour("soft"),
    line: colour("line"),
    grid: colour("grid"),
    card: colour("card"),
    accent: colour("accent"),
    low: colour("low"),
    middle: colour("middle"),
    high: colour("high"),
    series: [0, 1, 2, 3, 4, 5, 6, 7].map((index) => colour(`c${index}`)),
  };
}

const LETTERS = 12;

/** plotly writes powers of ten a quarter larger than all other numbers.
 * @param {Record<string, any> | undefined} axis */
const ticksOf = (axis) =>
  axis?.type === "log" && axis.exponentformat === "power" ? { tickfont: { size: LETTERS / 1.25 } } : {};

/** `make(colours)` gives traces and a layout; axes are fixed so that a finger still scrolls the page.
 * @param {PlotlyNode} node @param {Make} make */
export function draw(node, make) {
  drawn.set(node, make);
  const colours = theme();
  const { data, layout } = make(colours);
  const axis = {
    gridcolor: colours.grid,
    zeroline: false,
    linecolor: colours.line,
    fixedrange: true,
    automargin: true,
  };
  const whole = {
    margin: { l: 48, r: 12, t: 10, b: 42 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colours.ink, size: LETTERS, family: "system-ui, sans-serif" },
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
    dragmode: false,
    ...layout,
    xaxis: { ...axis, ...ticksOf(layout.xaxis), ...layout.xaxis },
    yaxis: { ...axis, ...ticksOf(layout.yaxis), ...layout.yaxis },
  };
  window.Plotly.react(node, data, whole, config);
}

/** @param {PlotlyNode} node */
export function forget(node) {
  drawn.delete(node);
  if (node.data) window.Plotly.purge(node);
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [node, make] of drawn) if (node.isConnected) draw(node, make);
});

/** An axis of decades: powers of ten where there are several, plain decimals where values span less than one and a half.
 * @param {(number | null)[]} values */
export function logAxis(values) {
  const positive = values.filter((value) => value !== null).filter((value) => value > 0);
  const decades = positive.length ? Math.log10(Math.max(...positive) / Math.min(...positive)) : 0;
  if (decades < 1.5) return { type: "log", exponentformat: "none", nticks: 5 };
  return { type: "log", exponentformat: "power", dtick: Math.max(1, Math.round(decades / 6)) };
}

/** @param {Colours} colours */
export const diverging = (colours) => [
  [0, colours.low],
  [0.5, colours.middle],
  [1, colours.high],
];
