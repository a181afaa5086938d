// @ts-check
// What stands on the page of "Collapse", and where: canvases, buttons, numbers.

import { el } from "../page/dom.js";
import { show } from "../page/numbers.js";
import { saveGif, savePng, saveSvg } from "./save.js";
import { SCENES } from "./scenes.js";

/** @typedef {import("./view.js").CollapseView} CollapseView */

const HINT =
  "Drag a dot, a ring or an arrow and let go; drag elsewhere to turn. Keys: arrows turn, “,” and “.” choose a class, " +
  "Shift and arrows move it, space plays.";

/** @type {import("./picture/timeline.js").Panel[]} */
export const PANELS = [
  { title: "", log: false, curves: [{ name: "value", words: "loss", colour: "c0" }] },
  {
    title: "",
    log: true,
    curves: [
      { name: "nc1", words: "NC1", colour: "c1" },
      { name: "nc2", words: "NC2", colour: "c2" },
      { name: "nc3", words: "NC3", colour: "c4" },
      { name: "gap", words: "gap", colour: "c6" },
    ],
  },
  {
    title: "",
    log: false,
    range: [0, 1],
    curves: [
      { name: "accuracy", words: "accuracy", colour: "c0" },
      { name: "nc4", words: "NC4", colour: "c3" },
    ],
  },
];

/** @param {string} words @param {string | null} title @param {() => void} onclick */
export function button(words, title, onclick) {
  return el("button", { type: "button", title, onclick }, words);
}

/** The parts that change; their buttons call the view. @param {CollapseView} view */
export function partsOf(view) {
  const playButton = button("", null, () => view.play(!view.playing));
  playButton.classList.add("primary");
  const escapeButton = button("Escape", null, () => view.escape());
  escapeButton.hidden = true;
  const sceneLinks = SCENES.map((scene, index) => {
    const link = button(`${index + 1}. ${scene.title}`, `Key ${index + 1}`, () => view.scene(scene.id));
    link.classList.add("chip");
    return link;
  });
  return {
    canvas: el("canvas", { class: "stage", tabindex: 0, role: "img" }),
    lens: el("canvas", { class: "lens", "aria-hidden": "true" }),
    curves: el("canvas", {
      class: "curves",
      role: "img",
      "aria-label": "Loss, collapse and accuracy over the steps",
    }),
    matrix: el("canvas", { class: "cosines", role: "img", "aria-label": "Cosines between class means" }),
    badge: el("p", { class: "badge", role: "status" }),
    numbers: el("dl", { class: "numbers" }),
    sceneWords: el("p", { class: "lead scene-words" }),
    classChips: el("div", { class: "class-chips" }),
    playButton,
    escapeButton,
    sceneLinks,
  };
}

/** @typedef {ReturnType<typeof partsOf>} Parts */

/** Put the parts on the page, and listen to its keys.
 * @param {HTMLElement} root @param {CollapseView} view @param {Parts} parts @param {HTMLElement} form */
export function arrangePage(root, view, parts, form) {
  root.replaceChildren(
    el("div", { class: "scenes", role: "group", "aria-label": "Scenes" }, parts.sceneLinks),
    parts.sceneWords,
    el(
      "div",
      { class: "collapse" },
      el("div", { class: "stage-box" }, parts.canvas, parts.lens, tools(view, parts), el("p", { class: "hint" }, HINT)),
      el("div", { class: "side" }, parts.badge, parts.numbers, parts.curves),
    ),
    el(
      "div",
      { class: "collapse-below" },
      el("div", { class: "card" }, el("h2", {}, "Change it while it runs"), form),
      el("div", { class: "card" }, el("h2", {}, "Cosines of the class means"), parts.matrix, parts.classChips),
    ),
  );
  window.addEventListener("keydown", (event) => {
    const busy = event.target instanceof HTMLElement && /^(input|select|textarea|button)$/i.test(event.target.tagName);
    if (busy || !root.offsetParent || event.ctrlKey || event.metaKey || event.altKey) return;
    const scene = SCENES[Number(event.key) - 1];
    if (scene) view.scene(scene.id);
    else if (event.key === " ") {
      event.preventDefault();
      view.play(!view.playing);
    }
  });
}

/** @param {CollapseView} view @param {Parts} parts */
function tools(view, parts) {
  const faster = () => {
    view.speed = 2 ** Number(speed.value);
  };
  const speed = el("input", {
    type: "range",
    min: -2,
    max: 5,
    step: 0.5,
    value: 0,
    "aria-label": "speed",
    oninput: faster,
  });
  const gif = button("GIF", "The next seconds as a moving picture", () => saveGif(view, gif));
  const large = button("Large type", "Larger letters, for a lecture room", () => view.enlarge(large));
  large.setAttribute("aria-pressed", "false");
  return el(
    "div",
    { class: "tools" },
    parts.playButton,
    button("Step", null, () => view.once()),
    el("label", { class: "speed" }, "Speed", speed),
    button("Shuffle", "Another random start", () => view.reseed()),
    button("Kick", "Push everything in a random direction", () => view.kick()),
    button("To the saddle", "Put it at zero, a strict saddle", () => view.restart("zero")),
    parts.escapeButton,
    el(
      "span",
      { class: "save", role: "group", "aria-label": "Save the picture" },
      el("span", { class: "soft" }, "Save"),
      button("PNG", "This moment, in pixels", () => savePng(view)),
      button("SVG", "This moment, in lines: sharp at any size", () => saveSvg(view)),
      gif,
    ),
    large,
  );
}

/** A row of the history as terms and their numbers. @param {Record<string, number | null>} row */
export function numbersOf(row) {
  /** @type {[string, string][]} */
  const entries = [
    ["step", show(row.step)],
    ["loss", show(row.value, 4)],
    ["gap to the minimum", show(row.gap, 3)],
    ["NC1", show(row.nc1, 3)],
    ["NC2", show(row.nc2, 3)],
    ["NC3", show(row.nc3, 3)],
    ["NC4 (mismatch)", show(row.nc4, 4)],
    ["accuracy", `${show(100 * Number(row.accuracy), 4)} %`],
  ];
  return entries.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
}
