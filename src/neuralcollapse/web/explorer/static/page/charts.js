// plotly with the page's colours; a change of the colour scheme draws all again.

const drawn = new Map();
const config = { displayModeBar: false, responsive: true };

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ink", "soft", "line", "grid", "card", "accent", "low", "middle", "high"];
  return {
    ...Object.fromEntries(names.map((name) => [name, colour(name)])),
    series: [0, 1, 2, 3, 4, 5, 6, 7].map((index) => colour(`c${index}`)),
  };
}

// `make(theme)` gives traces and a layout; axes are fixed so that a finger still scrolls the page.
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
    font: { color: colours.ink, size: 12, family: "system-ui, sans-serif" },
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
    dragmode: false,
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
  window.Plotly.react(node, data, whole, config);
}

export function forget(node) {
  drawn.delete(node);
  if (node.data) window.Plotly.purge(node);
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [node, make] of drawn) if (node.isConnected) draw(node, make);
});

// An axis of decades: powers of ten where there are several, plain decimals where values span less than one and a half.
export function logAxis(values) {
  const positive = values.filter((value) => value > 0);
  const decades = positive.length ? Math.log10(Math.max(...positive) / Math.min(...positive)) : 0;
  if (decades < 1.5) return { type: "log", exponentformat: "none", nticks: 5 };
  return { type: "log", exponentformat: "power", dtick: Math.max(1, Math.round(decades / 6)) };
}

export const diverging = (colours) => [
  [0, colours.low],
  [0.5, colours.middle],
  [1, colours.high],
];
