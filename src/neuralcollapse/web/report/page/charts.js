// @ts-check
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
    const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    return { ink: read("--ink"), grid: read("--grid"), card: read("--card"), text: read("--text") };
  };
  const dressed = (/** @type {Record<string, any>} */ layout, /** @type {boolean} */ own) => {
    const { ink, grid, card, text } = colours();
    /** @type {Record<string, any>} */
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
    // Solids of a study keep their colours, on the page's paper and with its ink.
    const scenes = Object.keys(dress).filter((key) => /^scene/.test(key));
    if (!own && scenes.length) {
      Object.assign(dress, { paper_bgcolor: "rgba(0,0,0,0)", font: { ...dress.font, family: text, color: ink } });
      const wall = { showbackground: false, gridcolor: grid, zerolinecolor: grid, linecolor: grid, color: ink };
      for (const name of scenes) {
        const scene = (dress[name] = { ...dress[name] });
        for (const axis of ["xaxis", "yaxis", "zaxis"]) scene[axis] = { ...scene[axis], ...wall };
      }
    }
    return dress;
  };
  /** @typedef {{data: object[], layout: Record<string, any>, frames?: object[]}} Figure */
  /** @typedef {PlotlyNode & {figure?: Figure}} Box */

  // Charts of one picture share their axis of epochs: what is pointed at in one is shown in the others.
  let hovering = false;
  const link = (/** @type {Box} */ box) => {
    const others = () =>
      [...(box.closest(".charts, .cards")?.querySelectorAll(".chart.own.drawn") ?? [])].filter(
        (other) => other !== box,
      );
    const tell = (/** @type {(other: HTMLElement) => void} */ act) => {
      if (hovering) return;
      hovering = true;
      for (const other of others()) act(/** @type {HTMLElement} */ (other));
      hovering = false;
    };
    box.on?.("plotly_hover", ({ points }) =>
      tell((other) => Plotly.Fx.hover(other, { xval: points[0].x }, ["xy"], true)),
    );
    box.on?.("plotly_unhover", () => tell((other) => Plotly.Fx.unhover(other)));
  };
  const draw = (/** @type {Box} */ box) => {
    /** @type {Figure} */
    const figure = box.figure ?? JSON.parse(box.querySelector("script")?.textContent ?? "{}");
    if (!box.figure) box.replaceChildren();
    box.figure = figure;
    const own = box.classList.contains("own");
    const layout = dressed(figure.layout, own);
    if (!own && box.clientWidth < 560) {
      layout.legend = { ...layout.legend, orientation: "h", x: 0, xanchor: "left", y: -0.2, yanchor: "top" };
      layout.margin = { ...layout.margin, l: 45, r: 12 };
    }
    const setting = { ...options, displayModeBar: own ? false : "hover" };
    const again = box.classList.contains("drawn");
    Plotly.newPlot(box, figure.data, layout, setting).then(() => {
      if (figure.frames) Plotly.addFrames(box, figure.frames);
      if (own && !again) link(box);
      box.classList.add("drawn");
    });
  };

  window.neuralcollapse = { colours, dressed, options, seesSolids };
  root.classList.add("scripted");
  if (!seesSolids) {
    for (const box of document.querySelectorAll(".chart.solid")) box.closest("figure")?.classList.add("flat");
  }
  const all = (/** @type {string} */ selector) => /** @type {Box[]} */ ([...document.querySelectorAll(selector)]);
  const boxes = [...all(".chart:not(.solid)"), ...(seesSolids ? all(".chart.solid") : [])];
  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watch.unobserve(entry.target);
        draw(/** @type {Box} */ (entry.target));
      }
    },
    { rootMargin: "800px" },
  );
  boxes.forEach((box) => watch.observe(box));
  // What nobody scrolled to is drawn when there is nothing else to do: for archives and pictures of the whole page.
  const idle = window.requestIdleCallback ?? ((/** @type {() => void} */ work) => setTimeout(work, 200));
  const drawRest = () => {
    const box = boxes.find((one) => !one.figure);
    if (!box) return;
    watch.unobserve(box);
    draw(box);
    idle(drawRest);
  };
  window.addEventListener("load", () => idle(drawRest));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    all(".chart.own.drawn, .chart.solid.drawn").forEach(draw);
  });
})();
