// Draws each chart when it comes near the window; our own charts take the page's colours, also when these change.
"use strict";
(() => {
  const root = document.documentElement;
  const seesSolids = (() => {
    try {
      return Boolean(document.createElement("canvas").getContext("webgl"));
    } catch {
      return false;
    }
  })();
  const options = {
    scrollZoom: false,
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  };

  const colours = () => {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(name).trim();
    return { ink: read("--ink"), grid: read("--grid"), card: read("--card"), text: read("--text") };
  };
  const dressed = (layout, own) => {
    const { ink, grid, card, text } = colours();
    const dress = { ...layout, autosize: true };
    delete dress.width;
    if (own) {
      Object.assign(dress, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
      dress.font = { ...dress.font, family: text, color: ink, size: 12 };
      dress.hoverlabel = { bgcolor: card, bordercolor: grid, font: { color: ink } };
      for (const name of Object.keys(dress).filter((key) => /^[xy]axis/.test(key))) {
        dress[name] = { ...dress[name], gridcolor: grid, linecolor: grid, zeroline: false };
      }
    }
    return dress;
  };
  const draw = (box) => {
    if (!box.figure) {
      box.figure = JSON.parse(box.querySelector("script").textContent);
      box.replaceChildren();
    }
    const own = box.classList.contains("own");
    const layout = dressed(box.figure.layout, own);
    if (!own && box.clientWidth < 560) {
      layout.legend = { ...layout.legend, orientation: "h", x: 0, xanchor: "left", y: -0.2, yanchor: "top" };
      layout.margin = { ...layout.margin, l: 45, r: 12 };
    }
    const setting = { ...options, displayModeBar: own ? false : "hover" };
    Plotly.newPlot(box, box.figure.data, layout, setting).then(() => {
      if (box.figure.frames) Plotly.addFrames(box, box.figure.frames);
      box.classList.add("drawn");
    });
  };

  window.neuralcollapse = { colours, dressed, options, seesSolids };
  root.classList.add("scripted");
  if (!seesSolids) {
    for (const box of document.querySelectorAll(".chart.solid")) box.closest("figure").classList.add("flat");
  }
  const boxes = [
    ...document.querySelectorAll(".chart:not(.solid)"),
    ...(seesSolids ? document.querySelectorAll(".chart.solid") : []),
  ];
  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          watch.unobserve(entry.target);
          draw(entry.target);
        }
      }
    },
    { rootMargin: "800px" },
  );
  boxes.forEach((box) => watch.observe(box));
  // What nobody scrolled to is drawn when there is nothing else to do: for archives and pictures of the whole page.
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
  const drawRest = () => {
    const box = boxes.find((one) => !one.figure);
    if (!box) return;
    watch.unobserve(box);
    draw(box);
    idle(drawRest);
  };
  window.addEventListener("load", () => idle(drawRest));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.querySelectorAll(".chart.own.drawn").forEach(draw);
  });
})();
