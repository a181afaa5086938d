// @ts-check
// The view "Collapse": a small model rolls downhill before one's eyes, and everything in it can be touched.

import { classColour } from "../page/colours.js";
import { el } from "../page/dom.js";
import { show } from "../page/numbers.js";
import { Form } from "./form.js";
import { PANELS, arrangePage, button, numbersOf, partsOf } from "./layout.js";
import { arrange } from "./picture/arrange.js";
import { magnify, paintCosines } from "./picture/marks.js";
import { Stage, sharp } from "./picture/stage.js";
import { Timeline } from "./picture/timeline.js";
import { Run } from "./run.js";
import { SCENES } from "./scenes.js";
import { SIZES, settingsOf } from "./settings.js";
import { certified, paused } from "./verdict.js";

/** @typedef {import("./model/ufm.js").Problem} Problem @typedef {import("./model/ufm.js").Point} Point
 *  @typedef {import("./settings.js").Settings} Settings
 *  @typedef {{read: () => Settings, write: (settings: Settings) => void,
 *    certify: null | ((problem: Problem, point: Point) => Promise<Verdict>),
 *    least: null | ((problem: Problem) => Promise<number | null>)}} Host */

/** Frames without a step after which nothing moves any more. */
const REST = 20;

export class CollapseView {
  /** @param {HTMLElement} root @param {Host} host */
  constructor(root, host) {
    this.host = host;
    this.playing = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.speed = 1;
    this.settings = settingsOf(host.read());
    this.run = new Run(this.settings);
    this.parts = partsOf(this);
    this.canvas = this.parts.canvas;
    this.lens = this.parts.lens;
    this.form = new Form((changed) => this.change(changed));
    arrangePage(root, this, this.parts, this.form.node);
    this.stage = new Stage(this.canvas, {
      grab: (item) => this.run.grab(item),
      move: (item, by) => {
        this.run.move(item, by, this.basis);
        this.#draw();
      },
      drop: () => {
        this.run.drop();
        this.#moved();
      },
    });
    this.timeline = new Timeline(this.parts.curves, PANELS, (row) => this.#readOut(row));
    this.timeline.history = this.run.history;
    this.chosen = [0, 1, 2, 3];
    /** @type {number[][]} the directions of the picture */
    this.basis = [];
    this.radius = 1;
    /** @type {Verdict | null} */
    this.verdict = null;
    this.frames = this.asked = this.aimed = 0;
    this.restart();
    const loop = () => {
      this.frame();
      requestAnimationFrame(loop);
    };
    requestAnimationFrame(loop);
    // At rest nothing is drawn by itself.
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    window.addEventListener("resize", () => this.redraw());
  }

  /** The same moment again, in other colours or another size. */
  redraw() {
    if (this.canvas.offsetParent) this.#draw();
  }

  // settings -----------------------------------------------------------------------------------------------------------

  /** Begin again. @param {"random" | "zero" | "small"} [start] */
  restart(start) {
    const { run } = this;
    run.begin(this.settings, start ?? SCENES.find((entry) => entry.id === this.settings.scene)?.start ?? "random");
    this.radius = run.startRadius;
    this.basis = [];
    const count = run.problem.counts.length;
    this.chosen = this.chosen.filter((label) => label < count);
    for (let label = 0; this.chosen.length < Math.min(4, count); label++)
      if (!this.chosen.includes(label)) this.chosen.push(label);
    this.stage.selected = this.chosen[0];
    this.#aim();
    this.#showControls();
    this.#draw();
    this.play(this.playing);
  }

  /** Show where it should end; ask the server where no closed form is known here. */
  #aim() {
    const { run } = this;
    this.timeline.ends = { value: run.least };
    const aimed = ++this.aimed;
    if (run.least !== null || !this.host.least) return;
    this.host.least(run.problem).then(
      (value) => {
        if (aimed !== this.aimed) return;
        run.least = value;
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
    this.run.change(this.settings);
    this.#aim();
    this.#showControls();
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

  // the run ------------------------------------------------------------------------------------------------------------

  kick() {
    this.run.kick(this.radius);
    this.#moved();
  }

  escape() {
    const way = this.verdict?.escape;
    if (!way) return;
    this.run.follow(way);
    this.#draw();
    this.play(true);
  }

  /** It lies elsewhere now. */
  #moved() {
    this.#draw();
    if (!this.playing) this.#judge();
  }

  /** @param {boolean} on */
  play(on) {
    this.playing = on;
    this.parts.playButton.textContent = on ? "Pause" : "Play";
    this.verdict = null;
    this.parts.escapeButton.hidden = true;
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
    this.run.advance(steps, this.speed);
    this.#draw();
  }

  frame() {
    const { run } = this;
    if (!this.playing || !this.canvas.offsetParent) return;
    const went = run.roll(this.speed);
    this.frames += 1;
    if (went && (run.problem.counts.length <= 20 || this.frames % 6 === 0)) run.record();
    this.#draw();
    // Nothing moves any more: stop and let the certificate speak.
    if (run.still > REST && !run.held) this.play(false);
  }

  // for lectures -------------------------------------------------------------------------------------------------------

  /** @param {string} suffix */
  fileName(suffix) {
    return `collapse-${this.settings.scene || "tetrahedron"}-${this.run.steps}.${suffix}`;
  }

  /** @param {HTMLElement} pressed */
  enlarge(pressed) {
    const large = document.documentElement.classList.toggle("large");
    pressed.setAttribute("aria-pressed", String(large));
    this.#draw();
  }

  // showing it ---------------------------------------------------------------------------------------------------------

  #arranged() {
    const { problem, labels, descent, margin } = this.run;
    return arrange(problem, labels, descent.point, this.chosen, this.basis, margin);
  }

  #draw() {
    const { run, stage } = this;
    const { problem } = run;
    const count = problem.counts.length;
    const picture = this.#arranged();
    this.basis = picture.basis;
    const wanted = problem.model === "normalized" ? 1 : Math.max(picture.radius, 0.25 * run.startRadius);
    // Under a hand the scale stays, so that what is held stays under it.
    if (!run.held) this.radius += (wanted - this.radius) * (this.playing ? 0.08 : 1);
    stage.show(picture.items, picture.target, problem.dim <= 2 ? "circle" : "edges", this.radius);
    const [lens, width, height] = sharp(this.lens);
    if (width) magnify(lens, width, height, picture.offsets(stage.selected), stage.selected, this.radius, stage);
    this.timeline.draw();
    this.#readOut(this.timeline.row());
    if (count <= 30 || this.frames % 10 === 0)
      paintCosines(...sharp(this.parts.matrix), picture.cosines(), this.chosen);
    const words = `${run.labels.length} features of ${count} classes in ${problem.dim} dimensions after ${run.steps} steps`;
    this.canvas.setAttribute("aria-label", `${words}; NC1 ${show(run.now.nc1, 2)}`);
  }

  /** The lens of the current view elsewhere. @param {import("./picture/pen.js").Brush} brush @param {number} width
   * @param {number} height */
  paintLens(brush, width, height) {
    const { selected } = this.stage;
    magnify(brush, width, height, this.#arranged().offsets(selected), selected, this.radius, this.stage);
  }

  /** @param {Record<string, number | null> | null} row */
  #readOut(row) {
    this.parts.numbers.replaceChildren(...numbersOf(row ?? this.run.now));
    this.parts.numbers.classList.toggle("past", row !== null);
  }

  #showControls() {
    const { settings, parts } = this;
    this.form.show(settings);
    const shown = SCENES.find((scene) => scene.id === settings.scene) ?? SCENES[0];
    SCENES.forEach((scene, index) => parts.sceneLinks[index].setAttribute("aria-pressed", String(scene === shown)));
    parts.sceneWords.textContent = shown.words;
    // On a phone the scenes are one line that scrolls: the chosen one is brought into it.
    const link = parts.sceneLinks[SCENES.indexOf(shown)];
    const strip = link.parentElement;
    if (strip) strip.scrollLeft += link.getBoundingClientRect().left - strip.getBoundingClientRect().left - 8;
    const { counts, dim } = this.run.problem;
    const corner = `A simplex has −1/(K−1) = ${show(-1 / (counts.length - 1), 4)} off the diagonal.`;
    const room = dim >= counts.length - 1;
    const target = el("span", { class: "hint" }, room ? corner : "A simplex does not fit into so few dimensions.");
    const pickable = counts.length > 4 && dim > 3 && counts.length <= 12;
    parts.classChips.replaceChildren(...(pickable ? counts.map((_, label) => this.#chip(label)) : []), target);
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
    this.parts.badge.className = `badge ${kind}`;
    this.parts.badge.textContent = text;
  }

  #judge() {
    const { host, run } = this;
    const asked = ++this.asked;
    if (!host.certify) {
      this.#say(...paused(run.now));
      return;
    }
    const current = () => asked === this.asked && !this.playing;
    this.#say("open", "paused; asking for a certificate …");
    host.certify(run.problem, run.descent.point).then(
      (verdict) => {
        if (!current()) return;
        this.verdict = verdict;
        this.parts.escapeButton.hidden = !verdict.escape;
        this.#say(...certified(verdict));
      },
      (error) => {
        if (current()) this.#say("open", `no certificate: ${error.message}`);
      },
    );
  }
}
