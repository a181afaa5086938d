// @ts-check
// The 3-D view: four classes by epoch, one loss at a time.
"use strict";
(() => {
  const page = window.neuralcollapse;
  const view = /** @type {HTMLElement} */ (document.querySelector(".solid-view"));
  if (!page.seesSolids) {
    view.classList.add("flat");
    return;
  }
  /** @typedef {{epoch: number, means: number[][], features: number[][][], classifier: number[][]}} Frame
   *  @type {{classes: string[], colours: string[], losses: {name: string, frames: Frame[]}[], reference: number[][]}} */
  const { classes, colours, losses, reference } = JSON.parse(document.getElementById("watched")?.textContent ?? "{}");
  const box = /** @type {HTMLElement} */ (document.getElementById("solid"));
  const slider = /** @type {HTMLInputElement} */ (document.getElementById("epoch"));
  const shown = /** @type {HTMLElement} */ (document.getElementById("epoch-shown"));
  const play = /** @type {HTMLElement} */ (document.getElementById("play"));
  const pairs = [
    [0, 1],
    [0, 2],
    [0, 3],
    [1, 2],
    [1, 3],
    [2, 3],
  ];
  const axes = (/** @type {(number | null)[][]} */ points) => ({
    x: points.map((p) => p[0]),
    y: points.map((p) => p[1]),
    z: points.map((p) => p[2]),
  });
  const edges = (/** @type {number[][]} */ corners) =>
    axes(pairs.flatMap(([i, j]) => [corners[i], corners[j], [null, null, null]]));
  let loss = 0,
    timer = 0;

  // Between two frames the points move along straight lines.
  const rows = (/** @type {number[][]} */ a, /** @type {number[][]} */ b, /** @type {number} */ share) =>
    a.map((row, i) => row.map((entry, j) => entry + share * (b[i][j] - entry)));
  const traces = (share = 0) => {
    const { frames } = losses[loss];
    const [now, next] = [frames[Number(slider.value)], frames[Math.min(Number(slider.value) + 1, frames.length - 1)]];
    const frame = {
      means: rows(now.means, next.means, share),
      features: now.features.map((cloud, k) => rows(cloud, next.features[k], share)),
      classifier: rows(now.classifier, next.classifier, share),
    };
    const { ink } = page.colours();
    const thin = { type: "scatter3d", mode: "lines", hoverinfo: "skip", showlegend: false };
    /** @type {object[]} */
    const list = [
      { ...thin, ...edges(reference), line: { color: "#999", width: 2 } },
      { ...thin, ...edges(frame.means), line: { color: ink, width: 4 } },
    ];
    classes.forEach((name, k) => {
      list.push({
        type: "scatter3d",
        mode: "markers",
        name: `digit ${name}`,
        legendgroup: name,
        showlegend: false,
        hoverinfo: "name",
        ...axes(frame.features[k]),
        marker: { color: colours[k], size: 3, opacity: 0.65 },
      });
      list.push({
        type: "scatter3d",
        mode: "markers",
        name: `digit ${name}`,
        legendgroup: name,
        hoverinfo: "name",
        ...axes([frame.means[k]]),
        marker: { color: colours[k], size: 9, line: { color: ink, width: 1 } },
      });
      list.push({ ...thin, ...axes([[0, 0, 0], frame.classifier[k]]), line: { color: colours[k], width: 7 } });
    });
    return list;
  };
  const hidden = { visible: false, range: [-1.3, 1.3], autorange: false };
  const layout = () =>
    page.dressed(
      {
        uirevision: "kept",
        margin: { l: 0, r: 0, t: 0, b: 0 },
        legend: { orientation: "h", x: 0.5, xanchor: "center", y: 0.02 },
        scene: {
          xaxis: hidden,
          yaxis: hidden,
          zaxis: hidden,
          aspectmode: "cube",
          camera: { eye: { x: 0.86, y: 0.56, z: 0.38 } },
        },
      },
      true,
    );
  const draw = (share = 0) => {
    const { epoch } = losses[loss].frames[Number(slider.value)];
    shown.textContent = String(epoch);
    slider.setAttribute("aria-valuetext", `epoch ${epoch}`);
    return Plotly.react(box, traces(share), layout(), { ...page.options, displayModeBar: false });
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  };

  slider.max = String(losses[0].frames.length - 1);
  slider.value = "0";
  slider.addEventListener("input", () => {
    stop();
    draw();
  });
  /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("input[name=loss]")).forEach((input) => {
    input.addEventListener("change", () => {
      loss = Number(input.value);
      draw();
    });
  });
  const start = () => {
    if (timer) {
      stop();
      return;
    }
    if (slider.value === slider.max) slider.value = "0";
    play.textContent = "Pause";
    draw();
    let part = 0;
    timer = setInterval(() => {
      if (slider.value === slider.max) {
        stop();
        return;
      }
      part = (part + 1) % 4;
      if (part === 0) slider.value = String(Number(slider.value) + 1);
      draw(part / 4);
    }, 110);
  };
  play.addEventListener("click", start);
  draw().then(() => box.classList.add("drawn"));
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    const watch = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) {
          watch.disconnect();
          setTimeout(start, 800);
        }
      },
      { threshold: 0.6 },
    );
    watch.observe(box);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
})();
