// @ts-check
// The view "Collapse": a small model rolls downhill before one's eyes, and everything in it can be touched.

import { classColour } from "../page/colours.js";
import { el } from "../page/dom.js";
import { show } from "../page/numbers.js";
import { Form } from "./form.js";
import { collapse } from "./model/measures.js";
import { leastValue } from "./model/optimum.js";
import { Descent, copyOf, gradientSquare, labelsOf, normal, randomPoint } from "./model/ufm.js";
import { arrange, rowScaleOf } from "./picture/arrange.js";
import { magnify, paintCosines } from "./picture/marks.js";
import { Stage, sharp } from "./picture/stage.js";
import { History, Timeline } from "./picture/timeline.js";
import { saveGif, savePng, saveSvg } from "./save.js";
import { SCENES } from "./scenes.js";
import { SIZES, problemOf, settingsOf } from "./settings.js";

/** @typedef {import("./model/ufm.js").Problem} Problem @typedef {import("./model/ufm.js").Point} Point
 *  @typedef {import("./picture/stage.js").Item} Item @typedef {import("./settings.js").Settings} Settings
 *  @typedef {{read: () => Settings, write: (settings: Settings) => void,
 *    certify: null | ((problem: Problem, point: Point) => Promise<Verdict>),
 *    least: null | ((problem: Problem) => Promise<number | null>)}} Host */

const HINT =
  "Drag a dot, a ring or an arrow and let go; drag elsewhere to turn. Keys: arrows turn, “,” and “.” choose a class, " +
  "Shift and arrows move it, space plays.";

/** @type {import("./picture/timeline.js").Panel[]} */
const PANELS = [
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

export class CollapseView {
  /** @param {HTMLElement} root @param {Host} host */
  constructor(root, host) {
    this.host = host;
    this.playing = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.speed = 1;
    this.canvas = el("canvas", { class: "stage", tabindex: 0, role: "img" });
    this.lens = el("canvas", { class: "lens", "aria-hidden": "true" });
    this.curves = el("canvas", {
      class: "curves",
      role: "img",
      "aria-label": "Loss, collapse and accuracy over the steps",
    });
    this.matrix = el("canvas", { class: "cosines", role: "img", "aria-label": "Cosines between class means" });
    this.badge = el("p", { class: "badge", role: "status" });
    this.numbers = el("dl", { class: "numbers" });
    this.sceneWords = el("p", { class: "lead scene-words" });
    this.classChips = el("div", { class: "class-chips" });
    this.playButton = button("", null, () => this.play(!this.playing));
    this.playButton.classList.add("primary");
    this.escapeButton = button("Escape", null, () => this.escape());
    this.escapeButton.hidden = true;
    this.sceneLinks = SCENES.map((scene, index) => {
      const link = button(`${index + 1}. ${scene.title}`, `Key ${index + 1}`, () => this.scene(scene.id));
      link.classList.add("chip");
      return link;
    });
    this.form = new Form((changed) => this.change(changed));
    this.#build(root);
    this.stage = new Stage(this.canvas, {
      grab: (item) => this.#grab(item),
      move: (item, by) => this.#moveItem(item, by),
      drop: () => this.#drop(),
    });
    this.history = new History();
    this.timeline = new Timeline(this.curves, PANELS, (row) => this.#readOut(row));
    this.timeline.history = this.history;
    this.settings = settingsOf(host.read());
    this.problem = problemOf(this.settings);
    this.labels = labelsOf(this.problem);
    this.descent = new Descent(this.problem, randomPoint(this.problem, 0));
    this.chosen = [0, 1, 2, 3];
    /** @type {number[][]} the directions of the picture */
    this.basis = [];
    /** @type {{rows: Map<number, Float64Array>, block: "W" | "H"} | null} what a hand holds */
    this.held = null;
    /** @type {Verdict | null} */
    this.verdict = null;
    /** @type {number | null} */
    this.least = null;
    /** @type {number | null} */
    this.margin = null;
    /** @type {Record<string, number | null>} */
    this.now = {};
    this.radius = this.startRadius = 1;
    this.steps = this.frames = this.debt = this.still = 0;
    this.asked = this.aimed = 0;
    this.restart();
    const loop = () => {
      this.frame();
      requestAnimationFrame(loop);
    };
    requestAnimationFrame(loop);
  }

  // what is on the page ------------------------------------------------------------------------------------------------

  /** @param {HTMLElement} root */
  #build(root) {
    const faster = () => {
      this.speed = 2 ** Number(speed.value);
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
    const gif = button("GIF", "The next seconds as a moving picture", () => saveGif(this, gif));
    const large = button("Large type", "Larger letters, for a lecture room", () => this.enlarge(large));
    large.setAttribute("aria-pressed", "false");
    const tools = el(
      "div",
      { class: "tools" },
      this.playButton,
      button("Step", null, () => this.once()),
      el("label", { class: "speed" }, "Speed", speed),
      button("Shuffle", "Another random start", () => this.reseed()),
      button("Kick", "Push everything in a random direction", () => this.kick()),
      button("To the saddle", "Put it at zero, a strict saddle", () => this.restart("zero")),
      this.escapeButton,
      el(
        "span",
        { class: "save", role: "group", "aria-label": "Save the picture" },
        el("span", { class: "soft" }, "Save"),
        button("PNG", "This moment, in pixels", () => savePng(this)),
        button("SVG", "This moment, in lines: sharp at any size", () => saveSvg(this)),
        gif,
      ),
      large,
    );
    root.replaceChildren(
      el("div", { class: "scenes", role: "group", "aria-label": "Scenes" }, this.sceneLinks),
      this.sceneWords,
      el(
        "div",
        { class: "collapse" },
        el("div", { class: "stage-box" }, this.canvas, this.lens, tools, el("p", { class: "hint" }, HINT)),
        el("div", { class: "side" }, this.badge, this.numbers, this.curves),
      ),
      el(
        "div",
        { class: "collapse-below" },
        el("div", { class: "card" }, el("h2", {}, "Change it while it runs"), this.form.node),
        el("div", { class: "card" }, el("h2", {}, "Cosines of the class means"), this.matrix, this.classChips),
      ),
    );
    window.addEventListener("keydown", (event) => {
      const busy =
        event.target instanceof HTMLElement && /^(input|select|textarea|button)$/i.test(event.target.tagName);
      if (busy || !root.offsetParent || event.ctrlKey || event.metaKey || event.altKey) return;
      const scene = SCENES[Number(event.key) - 1];
      if (scene) this.scene(scene.id);
      else if (event.key === " ") {
        event.preventDefault();
        this.play(!this.playing);
      }
    });
  }

  // the run ------------------------------------------------------------------------------------------------------------

  /** Begin again. @param {"random" | "zero" | "small"} [start] */
  restart(start) {
    this.problem = problemOf(this.settings);
    this.labels = labelsOf(this.problem);
    const spheres = this.problem.model === "normalized";
    const how = start ?? SCENES.find((entry) => entry.id === this.settings.scene)?.start ?? "random";
    const scale = { zero: 0, small: 0.3, random: 1.2 }[how];
    const point = randomPoint(this.problem, Number(this.settings.seed) || 0, spheres ? 1 : scale);
    this.descent = new Descent(this.problem, point);
    this.radius = this.startRadius = spheres ? 1 : Math.max(scale, 0.5);
    this.basis = [];
    this.steps = this.debt = this.still = 0;
    this.history.clear();
    const count = this.problem.counts.length;
    this.chosen = this.chosen.filter((label) => label < count);
    for (let label = 0; this.chosen.length < Math.min(4, count); label++)
      if (!this.chosen.includes(label)) this.chosen.push(label);
    this.stage.selected = this.chosen[0];
    this.#aim();
    this.#showControls();
    this.#record();
    this.#draw();
    this.play(this.playing);
  }

  /** Ask what the theory says of the end. */
  #aim() {
    const known = leastValue(this.problem);
    this.least = known?.value ?? null;
    this.margin = known?.margin ?? null;
    this.timeline.ends = { value: this.least };
    const aimed = ++this.aimed;
    if (this.least !== null || !this.host.least) return;
    this.host.least(this.problem).then(
      (value) => {
        if (aimed !== this.aimed) return;
        this.least = value;
        this.timeline.ends = { value };
        this.#draw();
      },
      () => undefined,
    );
  }

  /** Other settings while it runs; other sizes begin anew. @param {Settings} changed */
  change(changed) {
    this.settings = { ...this.settings, ...changed };
    this.#save();
    if (Object.keys(changed).some((name) => SIZES.includes(name))) {
      this.restart();
      return;
    }
    this.problem = problemOf(this.settings);
    this.descent.set(this.problem, this.descent.point);
    this.still = 0;
    this.#aim();
    this.#showControls();
    this.#record();
    this.play(this.playing);
  }

  /** @param {string} id */
  scene(id) {
    this.settings = settingsOf({ scene: (SCENES.find((entry) => entry.id === id) ?? SCENES[0]).id });
    this.chosen = [0, 1, 2, 3];
    this.#save();
    this.restart();
  }

  /** Settings from an address; nothing happens if they are those that run. @param {Settings} settings */
  load(settings) {
    const wanted = settingsOf(settings);
    const names = Object.keys({ ...wanted, ...this.settings });
    if (names.every((name) => (wanted[name] ?? "") === (this.settings[name] ?? ""))) return;
    this.settings = wanted;
    this.restart();
  }

  #save() {
    /** @type {Settings} */
    const plain = { ...settingsOf({ scene: this.settings.scene ?? "" }), scene: "" };
    const changed = Object.entries(this.settings).filter(([name, value]) => value !== plain[name]);
    this.host.write(Object.fromEntries(changed));
  }

  reseed() {
    this.settings = { ...this.settings, seed: String((Number(this.settings.seed) || 0) + 1) };
    this.#save();
    this.restart("random");
  }

  kick() {
    const draw = normal(this.steps + 17);
    const point = copyOf(this.descent.point);
    const size = (0.25 * this.radius) / Math.sqrt(this.problem.dim);
    for (const rows of [point.W, point.H]) for (let i = 0; i < rows.length; i++) rows[i] += size * draw();
    this.#put(point);
  }

  escape() {
    const direction = this.verdict?.escape;
    if (!direction) return;
    const entries = [...direction.W, ...direction.H, ...(direction.b ?? [])];
    const size = (0.3 * this.startRadius) / (Math.hypot(...entries) || 1);
    const point = copyOf(this.descent.point);
    direction.W.forEach((entry, i) => (point.W[i] += size * entry));
    direction.H.forEach((entry, i) => (point.H[i] += size * entry));
    if (point.b && direction.b) for (let i = 0; i < point.b.length; i++) point.b[i] += size * direction.b[i];
    this.#put(point);
    this.play(true);
  }

  /** @param {Point} point */
  #put(point) {
    this.descent.set(this.problem, point);
    this.descent.size = Math.min(this.descent.size, 1);
    this.still = 0;
    this.#record();
    this.#draw();
    if (!this.playing) this.#judge();
  }

  /** @param {boolean} on */
  play(on) {
    this.playing = on;
    this.playButton.textContent = on ? "Pause" : "Play";
    this.verdict = null;
    this.escapeButton.hidden = true;
    if (on) this.#say("running", "rolling downhill");
    else this.#judge();
  }

  once() {
    if (this.playing) this.play(false);
    this.advance(1);
    this.#judge();
  }

  /** So many steps at once, whether it plays or not. @param {number} steps */
  advance(steps) {
    this.#pace();
    for (let step = 0; step < steps && this.descent.step(); step++) this.steps += 1;
    this.#record();
    this.#draw();
  }

  /** Close to the flow at first, where there is something to see; longer steps on the long way to the last digit. */
  #pace() {
    this.descent.longest = 0.25 * Math.max(1, this.speed) * 1.01 ** Math.min(this.steps, 600);
  }

  frame() {
    if (!this.playing || !this.canvas.offsetParent) return;
    const until = performance.now() + 11;
    this.#pace();
    this.debt += this.speed * (this.problem.counts.length > 20 ? 0.5 : 1);
    let went = false;
    while (this.debt >= 1 && performance.now() < until) {
      this.debt -= 1;
      const stepped = this.descent.step();
      if (this.held) this.#keepHeld();
      if (!stepped) {
        this.still += 1;
        break;
      }
      this.steps += 1;
      went = true;
    }
    this.debt = Math.min(this.debt, 4 * this.speed);
    this.frames += 1;
    if (went && (this.problem.counts.length <= 20 || this.frames % 6 === 0)) this.#record();
    this.#draw();
    // Nothing moves any more: stop and let the certificate speak.
    if (this.still > 20 && !this.held) this.play(false);
  }

  #record() {
    const { value, correct, gradient } = this.descent.now;
    this.now = {
      step: this.steps,
      value,
      accuracy: correct,
      gap: this.least === null ? null : Math.max(0, value - this.least),
      ...collapse(this.problem, this.descent.point, this.labels),
      gradient: Math.sqrt(gradientSquare(gradient)),
    };
    this.history.add(this.now);
  }

  // for lectures -------------------------------------------------------------------------------------------------------

  /** @param {string} suffix */
  fileName(suffix) {
    return `collapse-${this.settings.scene || "tetrahedron"}-${this.steps}.${suffix}`;
  }

  /** @param {HTMLElement} pressed */
  enlarge(pressed) {
    const large = document.documentElement.classList.toggle("large");
    pressed.setAttribute("aria-pressed", String(large));
    this.#draw();
  }

  // touching it --------------------------------------------------------------------------------------------------------

  /** @param {Item} item */
  #grab(item) {
    const own = Array.from(this.labels.keys()).filter((i) => this.labels[i] === item.label);
    const held = item.kind === "row" ? [item.label] : item.kind === "sample" ? [item.index] : own;
    /** @type {"W" | "H"} */
    const block = item.kind === "row" ? "W" : "H";
    const source = this.descent.point[block];
    const { dim } = this.problem;
    this.held = { block, rows: new Map(held.map((row) => [row, source.slice(row * dim, row * dim + dim)])) };
  }

  #keepHeld() {
    if (!this.held) return;
    const point = copyOf(this.descent.point);
    for (const [row, entries] of this.held.rows) point[this.held.block].set(entries, row * this.problem.dim);
    this.descent.set(this.problem, point);
  }

  /** @param {Item} item @param {number[]} by */
  #moveItem(item, by) {
    if (!this.held) return;
    const factor = item.kind === "row" ? rowScaleOf(this.problem) : 1;
    for (const entries of this.held.rows.values()) {
      for (let j = 0; j < entries.length; j++)
        for (let axis = 0; axis < 3; axis++) entries[j] += factor * by[axis] * this.basis[axis][j];
    }
    this.#keepHeld();
    this.still = 0;
    this.#draw();
  }

  #drop() {
    this.held = null;
    this.#put(this.descent.point);
  }

  // showing it ---------------------------------------------------------------------------------------------------------

  #arranged() {
    return arrange(this.problem, this.labels, this.descent.point, this.chosen, this.basis, this.margin);
  }

  #draw() {
    const { problem, stage } = this;
    const count = problem.counts.length;
    const picture = this.#arranged();
    this.basis = picture.basis;
    const wanted = problem.model === "normalized" ? 1 : Math.max(picture.radius, 0.25 * this.startRadius);
    // Under a hand the scale stays, so that what is held stays under it.
    if (!this.held) this.radius += (wanted - this.radius) * (this.playing ? 0.08 : 1);
    stage.show(picture.items, picture.target, problem.dim <= 2 ? "circle" : "edges", this.radius);
    const [lens, width, height] = sharp(this.lens);
    if (width) magnify(lens, width, height, picture.offsets(stage.selected), stage.selected, this.radius, stage);
    this.timeline.draw();
    this.#readOut(this.timeline.row());
    if (count <= 30 || this.frames % 10 === 0) paintCosines(...sharp(this.matrix), picture.cosines(), this.chosen);
    const words = `${this.labels.length} features of ${count} classes in ${problem.dim} dimensions after ${this.steps} steps`;
    this.canvas.setAttribute("aria-label", `${words}; NC1 ${show(this.now.nc1, 2)}`);
  }

  /** The lens of the current view elsewhere. @param {import("./picture/pen.js").Brush} brush @param {number} width
   * @param {number} height */
  paintLens(brush, width, height) {
    const { selected } = this.stage;
    magnify(brush, width, height, this.#arranged().offsets(selected), selected, this.radius, this.stage);
  }

  /** @param {Record<string, number | null> | null} row */
  #readOut(row) {
    const from = row ?? this.now;
    /** @type {[string, string][]} */
    const entries = [
      ["step", show(from.step)],
      ["loss", show(from.value, 4)],
      ["gap to the minimum", show(from.gap, 4)],
      ["NC1", show(from.nc1, 4)],
      ["NC2", show(from.nc2, 4)],
      ["NC3", show(from.nc3, 4)],
      ["NC4 (mismatch)", show(from.nc4, 4)],
      ["accuracy", `${show(100 * Number(from.accuracy), 4)} %`],
    ];
    this.numbers.replaceChildren(...entries.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    this.numbers.classList.toggle("past", row !== null);
  }

  #showControls() {
    const { settings } = this;
    this.form.show(settings);
    const shown = SCENES.find((scene) => scene.id === settings.scene) ?? SCENES[0];
    SCENES.forEach((scene, index) => this.sceneLinks[index].setAttribute("aria-pressed", String(scene === shown)));
    this.sceneWords.textContent = shown.words;
    const { counts, dim } = this.problem;
    const corner = `A simplex has −1/(K−1) = ${show(-1 / (counts.length - 1), 4)} off the diagonal.`;
    const room = dim >= counts.length - 1;
    const target = el("span", { class: "hint" }, room ? corner : "A simplex does not fit into so few dimensions.");
    const pickable = counts.length > 4 && dim > 3 && counts.length <= 12;
    this.classChips.replaceChildren(...(pickable ? counts.map((_, label) => this.#chip(label)) : []), target);
  }

  /** @param {number} label */
  #chip(label) {
    const chip = button(String(label + 1), null, () => this.choose(label));
    chip.classList.add("chip");
    chip.style.borderColor = classColour(label);
    chip.setAttribute("aria-pressed", String(this.chosen.includes(label)));
    return chip;
  }

  /** Show this class among the four, instead of the one that has been shown longest. @param {number} label */
  choose(label) {
    if (this.chosen.includes(label)) return;
    this.chosen = [...this.chosen.slice(1), label];
    this.stage.selected = label;
    this.#showControls();
    this.#draw();
  }

  // the certificate ----------------------------------------------------------------------------------------------------

  /** @param {string} kind @param {string} text */
  #say(kind, text) {
    this.badge.className = `badge ${kind}`;
    this.badge.textContent = text;
  }

  #judge() {
    const { host, problem } = this;
    const asked = ++this.asked;
    if (!host.certify) {
      const { gap, gradient, value } = this.now;
      if (gap === null) this.#say("open", `paused; the gradient is ${show(gradient, 2)}`);
      else if (gap <= 1e-9 * Math.max(1, Math.abs(Number(value))))
        this.#say("good", "at the global minimum of the closed form");
      else this.#say("open", `paused ${show(gap, 3)} above the global minimum`);
      return;
    }
    this.#say("open", "paused; asking for a certificate …");
    host.certify(problem, this.descent.point).then(
      (verdict) => {
        if (asked === this.asked && !this.playing) this.#tell(verdict);
      },
      (error) => {
        if (asked === this.asked && !this.playing) this.#say("open", `no certificate: ${error.message}`);
      },
    );
  }

  /** @param {Verdict} verdict */
  #tell(verdict) {
    this.verdict = verdict;
    this.escapeButton.hidden = !verdict.escape;
    const gap = verdict.gap === null ? null : show(Math.max(0, verdict.gap), 2);
    const near = gap === null ? "" : `, gap ${gap}`;
    if (verdict.verdict === "global minimum") this.#say("good", `proved global minimum${near}`);
    else if (verdict.verdict === "strict saddle")
      this.#say("bad", `strict saddle: a way down with curvature ${show(verdict.curvature, 2)}`);
    else if (verdict.verdict === "not a critical point")
      this.#say("open", gap === null ? "on the way" : `on the way: at most ${gap} above the minimum`);
    else this.#say("open", `${verdict.verdict}${near}`);
  }
}

/** @param {string} words @param {string | null} title @param {() => void} onclick */
function button(words, title, onclick) {
  return el("button", { type: "button", title, onclick }, words);
}
