// @ts-check
// The view "Collapse": a small model rolls downhill before one's eyes, and everything in it can be touched.

import {
  Descent,
  collapse,
  copyOf,
  gradientSquare,
  labelsOf,
  leastValue,
  meansOf,
  normal,
  randomPoint,
} from "./ufm.js";
import { Stage, classColour, colour, drawCosines, magnify } from "./stage.js";
import { History, Timeline } from "./timeline.js";
import { BASE, SCENES } from "./scenes.js";
import { pictureOf } from "./space3.js";
import { el } from "../page/dom.js";
import { show } from "../page/numbers.js";

/** @typedef {import("./ufm.js").Problem} Problem @typedef {import("./ufm.js").Point} Point
 *  @typedef {{verdict: string, gap: number | null, curvature: number | null, escape: {W: number[], H: number[], b: number[] | null} | null}} Verdict
 *  @typedef {{read: () => Record<string, string>, write: (settings: Record<string, string>) => void,
 *    certify: null | ((problem: Problem, point: Point) => Promise<Verdict>),
 *    least: null | ((problem: Problem) => Promise<number | null>)}} Host */

const LIMITS = { classes: 100, samples: 400, dim: 100 };
const SLIDERS = [
  { name: "classes", words: "classes K", min: 2, max: 12, step: 1 },
  { name: "per_class", words: "samples a class n", min: 1, max: 40, step: 1 },
  { name: "dim", words: "dimensions d", min: 1, max: 12, step: 1 },
  { name: "minority", words: "minority's share", min: 0.02, max: 1, log: true },
  { name: "weight_decay", words: "weight decay λW", min: 1e-4, max: 1, log: true },
  { name: "feature_decay", words: "feature decay λH", min: 1e-4, max: 1, log: true },
  { name: "temperature", words: "temperature τ", min: 0.1, max: 30, log: true },
  { name: "gamma", words: "focal γ", min: 0, max: 8, step: 0.1 },
  { name: "alpha", words: "smoothing α", min: 0.01, max: 0.9, log: true },
  { name: "target", words: "target M", min: 0.5, max: 20, log: true },
];
const LOSS_NAMES = { ce: "cross-entropy", focal: "focal", ls: "label smoothing", mse: "squared error" };

/** Counts of the classes: the second half of them may be a minority. @param {Record<string, string>} settings */
function countsOf(settings) {
  const count = bounded(settings.classes, 2, LIMITS.classes);
  const each = bounded(settings.per_class, 1, Math.floor(LIMITS.samples / count));
  const small = Math.max(1, Math.round(each * Number(settings.minority)));
  return Array.from({ length: count }, (_, k) => (k < Math.ceil(count / 2) ? each : Math.min(each, small)));
}

/** @param {string} text @param {number} low @param {number} high */
function bounded(text, low, high) {
  return Math.max(low, Math.min(high, Math.round(Number(text)) || low));
}

/** @param {Record<string, string>} settings @returns {Problem} */
export function problemOf(settings) {
  const positive = (/** @type {string} */ name) => Math.max(0, Number(settings[name])) || Number(BASE[name]);
  /** @type {import("./ufm.js").Loss} */
  const loss =
    settings.loss === "focal"
      ? { kind: "focal", gamma: Math.max(0, Number(settings.gamma) || 0) }
      : settings.loss === "ls"
        ? { kind: "ls", alpha: Math.min(0.99, positive("alpha")) }
        : settings.loss === "mse"
          ? { kind: "mse", alpha: 1, target: positive("target") }
          : { kind: "ce" };
  return {
    model: settings.model === "normalized" ? "normalized" : "regularized",
    loss,
    counts: countsOf(settings),
    dim: bounded(settings.dim, 1, LIMITS.dim),
    weightDecay: positive("weight_decay"),
    featureDecay: positive("feature_decay"),
    biasDecay: settings.bias === "free" ? 0 : null,
    temperature: positive("temperature"),
  };
}

/** All settings: the scene's, where the address says nothing else. @param {Record<string, string>} given */
function settingsOf(given) {
  const scene = SCENES.find((entry) => entry.id === given.scene);
  return { ...BASE, ...scene?.settings, ...given };
}

export class CollapseView {
  /** @param {HTMLElement} root @param {Host} host */
  constructor(root, host) {
    this.host = host;
    this.playing = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.speed = 1;
    this.steps = 0;
    this.frames = 0;
    this.chosen = [0, 1, 2, 3];
    /** @type {number[][]} */
    this.basis = [];
    this.radius = 1;
    this.history = new History();
    this.asked = 0;
    this.aimed = 0;
    this.#build(root);
    this.timeline.history = this.history;
    this.settings = settingsOf(host.read());
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
    this.canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "stage", tabindex: 0, role: "img" }));
    this.lens = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lens", "aria-hidden": "true" }));
    this.curves = /** @type {HTMLCanvasElement} */ (
      el("canvas", { class: "curves", role: "img", "aria-label": "Loss, collapse and accuracy over the steps" })
    );
    this.matrix = /** @type {HTMLCanvasElement} */ (
      el("canvas", { class: "cosines", role: "img", "aria-label": "Cosines between class means" })
    );
    this.badge = el("p", { class: "badge", role: "status" });
    this.escapeButton = /** @type {HTMLButtonElement} */ (
      el("button", { type: "button", hidden: true, onclick: () => this.escape() }, "Escape")
    );
    this.numbers = el("dl", { class: "numbers" });
    this.sceneWords = el("p", { class: "lead scene-words" });
    this.playButton = el("button", { type: "button", class: "primary", onclick: () => this.play(!this.playing) });
    const speed = el("input", {
      type: "range",
      min: -2,
      max: 5,
      step: 0.5,
      value: 0,
      "aria-label": "speed",
      oninput: (/** @type {Event} */ event) =>
        (this.speed = 2 ** Number(/** @type {HTMLInputElement} */ (event.target).value)),
    });
    const tools = el(
      "div",
      { class: "tools" },
      this.playButton,
      el("button", { type: "button", onclick: () => this.once() }, "Step"),
      el("label", { class: "speed" }, "Speed", speed),
      el("button", { type: "button", title: "Another random start", onclick: () => this.reseed() }, "Shuffle"),
      el(
        "button",
        { type: "button", title: "Push everything in a random direction", onclick: () => this.kick() },
        "Kick",
      ),
      el(
        "button",
        { type: "button", title: "Put it at zero, a strict saddle", onclick: () => this.restart("zero") },
        "To the saddle",
      ),
      this.escapeButton,
      el(
        "button",
        { type: "button", title: "The picture as a PNG file", onclick: () => this.savePicture() },
        "Save picture",
      ),
      el(
        "button",
        {
          type: "button",
          title: "Larger letters, for a lecture room",
          "aria-pressed": "false",
          onclick: (/** @type {Event} */ event) => this.enlarge(/** @type {HTMLElement} */ (event.currentTarget)),
        },
        "Large type",
      ),
    );
    this.sceneLinks = SCENES.map((scene, index) =>
      el(
        "button",
        { type: "button", class: "chip", onclick: () => this.scene(scene.id), title: `Key ${index + 1}` },
        `${index + 1}. ${scene.title}`,
      ),
    );
    this.controls = el("form", {
      class: "collapse-controls",
      onsubmit: (/** @type {Event} */ event) => event.preventDefault(),
    });
    this.fields = this.#fields();
    this.controls.append(...this.fields.map((field) => field.node));
    this.classChips = el("div", { class: "class-chips" });
    root.replaceChildren(
      el("div", { class: "scenes", role: "group", "aria-label": "Scenes" }, ...this.sceneLinks),
      this.sceneWords,
      el(
        "div",
        { class: "collapse" },
        el(
          "div",
          { class: "stage-box" },
          this.canvas,
          this.lens,
          tools,
          el(
            "p",
            { class: "hint" },
            "Drag a dot, a ring or an arrow and let go; drag elsewhere to turn. Keys: arrows turn, “,” and “.” choose a class, Shift and arrows move it, space plays.",
          ),
        ),
        el("div", { class: "side" }, this.badge, this.numbers, this.curves),
      ),
      el(
        "div",
        { class: "collapse-below" },
        el("div", { class: "card" }, el("h2", {}, "Change it while it runs"), this.controls),
        el("div", { class: "card" }, el("h2", {}, "Cosines of the class means"), this.matrix, this.classChips),
      ),
    );
    this.stage = new Stage(this.canvas, {
      grab: (item) => this.#grab(item),
      move: (item, by) => this.#moveItem(item, by),
      drop: () => this.#drop(),
    });
    this.timeline = new Timeline(
      this.curves,
      [
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
      ],
      (row) => this.#readOut(row),
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

  #fields() {
    const choice = (
      /** @type {string} */ name,
      /** @type {string} */ words,
      /** @type {Record<string, string>} */ options,
    ) => {
      const select = el(
        "select",
        {
          name,
          onchange: (/** @type {Event} */ event) =>
            this.change({ [name]: /** @type {HTMLSelectElement} */ (event.target).value }),
        },
        ...Object.entries(options).map(([value, text]) => el("option", { value }, text)),
      );
      return {
        name,
        node: el("label", {}, el("span", {}, words), select),
        set: (/** @type {string} */ value) => /** @type {HTMLSelectElement} */ ((select).value = value),
      };
    };
    const slider = (
      /** @type {{name: string, words: string, min: number, max: number, step?: number, log?: boolean}} */ {
        name,
        words,
        min,
        max,
        step,
        log,
      },
    ) => {
      const [low, high] = log ? [Math.log10(min), Math.log10(max)] : [min, max];
      const output = el("output", {});
      const input = /** @type {HTMLInputElement} */ (
        el("input", {
          type: "range",
          name,
          min: low,
          max: high,
          step: step ?? 0.01,
          oninput: (/** @type {Event} */ event) => {
            const place = Number(/** @type {HTMLInputElement} */ (event.target).value);
            this.change({ [name]: String(Number((log ? 10 ** place : place).toPrecision(3))) });
          },
        })
      );
      return {
        name,
        node: el("label", {}, el("span", {}, words), input, output),
        set: (/** @type {string} */ value) => {
          input.value = String(log ? Math.log10(Number(value)) : value);
          output.textContent = show(Number(value), 3);
        },
      };
    };
    return [
      choice("model", "model", { regularized: "weight decay", normalized: "spheres" }),
      choice("loss", "loss", LOSS_NAMES),
      choice("bias", "bias", { none: "none", free: "free" }),
      ...SLIDERS.map(slider),
    ];
  }

  // the run ------------------------------------------------------------------------------------------------------------

  /** Begin again. @param {string} [start] */
  restart(start) {
    this.problem = problemOf(this.settings);
    this.labels = labelsOf(this.problem);
    const scene = SCENES.find((entry) => entry.id === this.settings.scene);
    const how = start ?? scene?.start ?? "random";
    const scale = how === "zero" ? 0 : how === "small" ? 0.3 : 1.2;
    const point = randomPoint(
      this.problem,
      Number(this.settings.seed) || 0,
      this.problem.model === "normalized" ? 1 : scale,
    );
    this.descent = new Descent(this.problem, point);
    this.startRadius = this.problem.model === "normalized" ? 1 : Math.max(scale, 0.5);
    this.radius = this.startRadius;
    this.basis = [];
    this.steps = 0;
    this.debt = 0;
    this.still = 0;
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
    if (this.least === null && this.host.least) {
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
  }

  /** Other settings while it runs; other sizes begin anew. @param {Record<string, string>} changed */
  change(changed) {
    const sizes = ["model", "classes", "per_class", "dim", "minority", "bias"];
    const same = !Object.keys(changed).some((name) => sizes.includes(name));
    this.settings = { ...this.settings, ...changed };
    this.#save();
    if (!same) {
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
    const scene = SCENES.find((entry) => entry.id === id) ?? SCENES[0];
    this.settings = settingsOf({ scene: scene.id });
    this.chosen = [0, 1, 2, 3];
    this.#save();
    this.restart();
  }

  /** Settings from an address; nothing happens if they are those that run. @param {Record<string, string>} settings */
  load(settings) {
    const wanted = settingsOf(settings);
    if (
      Object.keys({ ...wanted, ...this.settings }).every((name) => (wanted[name] ?? "") === (this.settings[name] ?? ""))
    )
      return;
    this.settings = wanted;
    this.restart();
  }

  #save() {
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
    const size = 0.3 * this.startRadius;
    const norm =
      Math.sqrt(
        [...direction.W, ...direction.H, ...(direction.b ?? [])].reduce((sum, entry) => sum + entry * entry, 0),
      ) || 1;
    const point = copyOf(this.descent.point);
    direction.W.forEach((entry, i) => (point.W[i] += (size * entry) / norm));
    direction.H.forEach((entry, i) => (point.H[i] += (size * entry) / norm));
    if (point.b && direction.b) for (let i = 0; i < point.b.length; i++) point.b[i] += (size * direction.b[i]) / norm;
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
    this.descent.step();
    this.steps += 1;
    this.#record();
    this.#draw();
    this.#judge();
  }

  frame() {
    if (!this.playing || !this.canvas.offsetParent) return;
    const until = performance.now() + 11;
    // Close to the flow at first, where there is something to see; longer steps on the long way to the last digit.
    this.descent.longest = 0.25 * Math.max(1, this.speed) * 1.01 ** Math.min(this.steps, 600);
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
    const { value, correct } = this.descent.now;
    const measures = collapse(this.problem, this.descent.point, this.labels);
    const gap = this.least === null ? null : Math.max(0, value - this.least);
    this.now = {
      step: this.steps,
      value,
      accuracy: correct,
      gap,
      ...measures,
      gradient: Math.sqrt(gradientSquare(this.descent.now.gradient)),
    };
    this.history.add(this.now);
  }

  // for lectures -------------------------------------------------------------------------------------------------------

  /** The view and its lens, on the page's paper. */
  drawn() {
    const [width, height] = [this.canvas.width, this.canvas.height];
    const picture = /** @type {HTMLCanvasElement} */ (el("canvas", {}));
    [picture.width, picture.height] = [width, height];
    const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
    context.fillStyle = colour("card");
    context.fillRect(0, 0, width, height);
    context.drawImage(this.canvas, 0, 0);
    context.drawImage(this.lens, width - this.lens.width - 8, 8);
    return picture;
  }

  savePicture() {
    this.drawn().toBlob((blob) => {
      if (!blob) return;
      const address = URL.createObjectURL(blob);
      el("a", {
        href: address,
        download: `collapse-${this.settings.scene || "tetrahedron"}-${this.steps}.png`,
      }).click();
      URL.revokeObjectURL(address);
    });
  }

  /** @param {HTMLElement} button */
  enlarge(button) {
    const large = document.documentElement.classList.toggle("large");
    button.setAttribute("aria-pressed", String(large));
    this.#draw();
  }

  // touching it --------------------------------------------------------------------------------------------------------

  /** @param {import("./stage.js").Item} item */
  #grab(item) {
    this.held = { item, rows: new Map() };
    this.#holdRows();
  }

  #rowsOf(/** @type {import("./stage.js").Item} */ item) {
    if (item.kind === "row") return { block: "W", rows: [item.label] };
    if (item.kind === "sample") return { block: "H", rows: [item.index] };
    return { block: "H", rows: Array.from(this.labels.keys()).filter((i) => this.labels[i] === item.label) };
  }

  #holdRows() {
    if (!this.held) return;
    const { block, rows } = this.#rowsOf(this.held.item);
    const source = block === "W" ? this.descent.point.W : this.descent.point.H;
    const { dim } = this.problem;
    for (const row of rows) this.held.rows.set(row, source.slice(row * dim, row * dim + dim));
    this.held.block = block;
  }

  #keepHeld() {
    const point = copyOf(this.descent.point);
    const target = this.held.block === "W" ? point.W : point.H;
    for (const [row, entries] of this.held.rows) target.set(entries, row * this.problem.dim);
    this.descent.set(this.problem, point);
  }

  /** @param {import("./stage.js").Item} item @param {number[]} by */
  #moveItem(item, by) {
    if (!this.held) return;
    const { dim } = this.problem;
    const factor = item.kind === "row" ? this.rowScale : 1;
    for (const entries of this.held.rows.values()) {
      for (let j = 0; j < dim; j++)
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

  #draw() {
    const { problem, labels, descent } = this;
    const { dim } = problem;
    const count = problem.counts.length;
    const { W, H } = descent.point;
    const { means, centre } = meansOf(H, labels, count, dim);
    const n = problem.counts.reduce((sum, each) => sum + each, 0) / count;
    // At a minimum lw |w|^2 = n lh |h|^2: drawn rows are shorter by that factor, so that arrows reach their means.
    this.rowScale = problem.model === "normalized" ? 1 : Math.sqrt((n * problem.featureDecay) / problem.weightDecay);
    const row = (/** @type {Float64Array} */ rows, /** @type {number} */ index) =>
      Array.from(rows.subarray(index * dim, index * dim + dim));
    const direction = this.chosen.map((label) =>
      row(W, label).map((entry, j) => entry / this.rowScale + means[label * dim + j] - centre[j]),
    );
    const middle = direction[0].map((_, j) => direction.reduce((sum, entry) => sum + entry[j], 0) / direction.length);
    const { basis, target } = pictureOf(
      direction.map((entry) => entry.map((part, j) => part - middle[j])),
      dim,
      this.basis,
    );
    this.basis = basis;
    const place = (/** @type {number[]} */ vector) =>
      basis.map((axis) => axis.reduce((sum, entry, j) => sum + entry * vector[j], 0));
    const length = (/** @type {number[]} */ vector) => Math.hypot(...vector);
    const shown = new Set(dim <= 3 ? problem.counts.keys() : this.chosen);
    /** @type {import("./stage.js").Item[]} */
    const items = [];
    labels.forEach((label, index) => {
      if (shown.has(label)) items.push({ kind: "sample", index, label, at: place(row(H, index)) });
    });
    for (const label of shown) {
      items.push({ kind: "row", index: label, label, at: place(row(W, label).map((entry) => entry / this.rowScale)) });
      items.push({ kind: "mean", index: label, label, at: place(row(means, label)) });
    }
    const theory =
      problem.model === "normalized"
        ? 1
        : this.margin
          ? Math.sqrt((this.margin * (count - 1)) / (count * this.rowScale))
          : 0;
    const widest = Math.max(...items.filter((item) => item.kind !== "sample").map((item) => length(item.at)));
    const clouds = items
      .filter((item) => item.kind === "sample")
      .reduce((most, item) => Math.max(most, length(item.at)), 0);
    const wanted =
      problem.model === "normalized" ? 1 : Math.max(widest, 0.75 * clouds, theory, 0.25 * this.startRadius);
    this.radius += (wanted - this.radius) * (this.playing ? 0.08 : 1);
    const meanNorm = this.chosen.reduce((sum, label) => sum + length(row(means, label)), 0) / this.chosen.length;
    const even = problem.counts.every((each) => each === problem.counts[0]);
    const ghost = even && dim >= count - 1 ? theory || meanNorm : 0;
    // The chosen rows of a larger simplex are a smaller simplex about another centre.
    const part = Math.sqrt((count * (this.chosen.length - 1)) / ((count - 1) * this.chosen.length));
    const shift = dim > 3 ? place(middle.map((entry) => entry / 2)) : [0, 0, 0];
    this.stage.show(
      items,
      ghost ? target.map((corner) => corner.map((entry, axis) => ghost * part * entry + shift[axis])) : [],
      dim <= 2 ? "circle" : "edges",
      this.radius,
    );
    const picked = this.stage.selected;
    magnify(
      this.lens,
      Array.from(labels.keys())
        .filter((i) => labels[i] === picked)
        .map((i) => place(row(H, i).map((entry, j) => entry - means[picked * dim + j]))),
      picked,
      this.radius,
      this.stage,
    );
    this.timeline.draw();
    this.#readOut(this.timeline.row());
    if (count <= 30 || this.frames % 10 === 0) {
      const unit = Array.from({ length: count }, (_, k) => row(means, k).map((entry, j) => entry - centre[j])).map(
        (entry) => entry.map((value) => value / (length(entry) || 1)),
      );
      drawCosines(
        this.matrix,
        unit.map((a) => unit.map((b) => a.reduce((sum, entry, j) => sum + entry * b[j], 0))),
        this.chosen,
      );
    }
    this.canvas.setAttribute(
      "aria-label",
      `${labels.length} features of ${count} classes in ${dim} dimensions after ${this.steps} steps; NC1 ${show(this.now?.nc1 ?? null, 2)}`,
    );
  }

  /** @param {Record<string, number | null> | null} row */
  #readOut(row) {
    const from = row ?? this.now;
    const entries = [
      ["step", from.step],
      ["loss", from.value],
      ["gap to the minimum", from.gap],
      ["NC1", from.nc1],
      ["NC2", from.nc2],
      ["NC3", from.nc3],
      ["NC4 (mismatch)", from.nc4],
      ["accuracy", `${show(100 * from.accuracy, 4)} %`],
    ];
    this.numbers.replaceChildren(
      ...entries.flatMap(([name, value]) => [
        el("dt", {}, name),
        el("dd", {}, typeof value === "string" ? value : show(value, 4)),
      ]),
    );
    this.numbers.classList.toggle("past", row !== null);
  }

  #showControls() {
    const { settings } = this;
    const spheres = settings.model === "normalized";
    const used = {
      weight_decay: !spheres,
      feature_decay: !spheres,
      bias: !spheres,
      temperature: spheres,
      gamma: settings.loss === "focal",
      alpha: settings.loss === "ls",
      target: settings.loss === "mse",
    };
    for (const field of this.fields) {
      field.set(settings[field.name]);
      field.node.hidden = used[field.name] === false;
    }
    SCENES.forEach((scene, index) =>
      this.sceneLinks[index].setAttribute("aria-pressed", String(scene.id === (settings.scene ?? "tetrahedron"))),
    );
    this.sceneWords.textContent = (SCENES.find((scene) => scene.id === settings.scene) ?? SCENES[0]).words;
    const count = this.problem.counts.length;
    const target = el(
      "span",
      { class: "hint" },
      this.problem.dim >= count - 1
        ? `A simplex has −1/(K−1) = ${show(-1 / (count - 1), 4).replace("-", "−")} off the diagonal.`
        : "A simplex does not fit into so few dimensions.",
    );
    const chips =
      count > 4 && this.problem.dim > 3 && count <= 12
        ? Array.from({ length: count }, (_, label) =>
            el(
              "button",
              {
                type: "button",
                class: "chip",
                style: `border-color: ${classColour(label)}`,
                "aria-pressed": String(this.chosen.includes(label)),
                onclick: () => this.choose(label),
              },
              String(label + 1),
            ),
          )
        : [];
    this.classChips.replaceChildren(...chips, target);
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
      const { gap, gradient } = this.now;
      if (gap !== null && gap <= 1e-9 * Math.max(1, Math.abs(this.now.value)))
        this.#say("good", "at the global minimum of the closed form");
      else if (gap !== null) this.#say("open", `paused ${show(gap, 3)} above the global minimum`);
      else this.#say("open", `paused; the gradient is ${show(gradient, 2)}`);
      return;
    }
    this.#say("open", "paused; asking for a certificate …");
    host.certify(problem, this.descent.point).then(
      (verdict) => {
        if (asked !== this.asked || this.playing) return;
        this.verdict = verdict;
        this.escapeButton.hidden = !verdict.escape;
        const gap = verdict.gap === null ? "" : `, gap ${show(Math.max(0, verdict.gap), 2)}`;
        if (verdict.verdict === "global minimum") this.#say("good", `proved global minimum${gap}`);
        else if (verdict.verdict === "strict saddle")
          this.#say("bad", `strict saddle: a way down with curvature ${show(verdict.curvature, 2)}`);
        else if (verdict.verdict === "not a critical point")
          this.#say("open", `on the way${gap ? `: at most ${gap.slice(6)} above the minimum` : ""}`);
        else this.#say("open", `${verdict.verdict}${gap}`);
      },
      (error) => {
        if (asked === this.asked && !this.playing) this.#say("open", `no certificate: ${error.message}`);
      },
    );
  }
}
