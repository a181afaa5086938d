// @ts-check
// One network over time: where NC1 to NC4 stand at a state, and what its classes look like.

import { classColour } from "../../page/colours.js";
import { $, el } from "../../page/dom.js";
import { show } from "../../page/numbers.js";
import { Stage } from "../../collapse/picture/stage.js";
import { drawGram, drawHistory, drawLayers, drawMargins, drawPair, drawSpread, drawView } from "./pictures.js";
import { gauge, metricTable } from "./words.js";

const PLAY_EVERY = 900;
const VIEW =
  "Dots: samples; rings: class means; arrows: classifier rows; dashed: the simplex that four classes go to. Seen in the " +
  "span of the four chosen classes; the unit is the means' distance from their centre. Drag, or use the arrow keys.";
const MARGINS =
  "Cosine to the own classifier row minus that to the best other one, sorted. Dashed: at collapse. Below 0 a sample is on " +
  "the wrong side.";
const SPREAD =
  "Root mean square distance of a class's samples from their mean, in units of the means' distance from their centre. 0 " +
  "at collapse.";
const LAYERS =
  "Spread within classes against the distance between them, at each layer's output: NC1, and the quotient of the traces. " +
  "Positions of convolutions are averaged.";

/** @param {string} title @param {string} [caption] */
function chartCard(title, caption = "") {
  const box = el("div", { class: "chart" });
  const words = el("p", { class: "caption" }, caption);
  return { node: el("section", { class: "card" }, el("h2", {}, title), box, words), box, words };
}

export class NetworkReport {
  constructor() {
    this.title = el("h2", { id: "network-title", tabindex: -1 });
    this.headline = el("p", { class: "big", id: "network-headline" });
    this.sizes = el("p", { class: "soft" });
    this.moment = el("output", { for: "network-time" });
    this.slider = el("input", {
      type: "range",
      id: "network-time",
      min: 0,
      max: 0,
      value: 0,
      step: 1,
      class: "grow",
      "aria-label": "time",
    });
    this.slider.addEventListener("input", () => {
      this.stop();
      this.#go(Number(this.slider.value));
    });
    const toggle = () => (this.player ? this.stop() : this.#start());
    this.playButton = el("button", { type: "button", class: "action", onclick: toggle }, "Play");
    this.time = el("div", { class: "row" }, this.playButton, this.slider, this.moment);
    this.gauges = el("div", { class: "gauges", id: "gauges" });
    this.notes = el("div");
    this.table = el("div");
    this.chips = el("div", { class: "class-chips" });
    const canvas = el("canvas", { class: "stage network-stage", tabindex: 0, role: "img" });
    this.view = el(
      "section",
      { class: "card tall" },
      el("h2", {}, "In three dimensions"),
      el("div", {}, canvas, this.chips, el("p", { class: "caption" }, VIEW)),
    );
    this.cards = {
      gram: chartCard("Cosines of class means"),
      weight: chartCard("Cosines of classifier rows"),
      pair: chartCard("The hardest pair"),
      margins: chartCard("Margins", MARGINS),
      spread: chartCard("Spread of each class", SPREAD),
      layers: chartCard("From layer to layer", LAYERS),
      history: chartCard("Measured on the way"),
    };
    this.cards.history.node.classList.add("wide");
    this.stage = new Stage(canvas, null);
    /** @type {NetworkAnswer} */
    this.shown = { title: "", frames: [], history: [] };
    this.place = 0;
    /** @type {number[]} the classes in the picture */
    this.chosen = [];
    /** @type {number | undefined} */
    this.player = undefined;
  }

  /** Put it on the page. */
  #build() {
    $("network-report").replaceChildren(
      el("section", { class: "card" }, this.title, this.headline, this.sizes, this.time, this.gauges, this.notes),
      el("div", { class: "cards network" }, this.view, ...Object.values(this.cards).map((one) => one.node)),
      el(
        "details",
        { class: "more", id: "network-all" },
        el("summary", {}, "Every metric, with its definition"),
        this.table,
      ),
    );
  }

  /** Whether the newest state is shown, or nothing yet. */
  get newest() {
    return this.place >= this.shown.frames.length - 1;
  }

  /** @param {NetworkAnswer} answer @param {number} at the state to show */
  open(answer, at) {
    const classes = answer.frames[0].network.view?.classes ?? [];
    const kept = answer.title === this.shown.title ? this.chosen.filter((label) => classes.includes(label)) : [];
    this.chosen = [...kept, ...classes.filter((label) => !kept.includes(label))].slice(0, Math.max(4, kept.length));
    this.shown = answer;
    this.place = at;
    if (!this.title.isConnected) this.#build();
    this.title.textContent = answer.title;
    this.time.hidden = answer.frames.length < 2;
    this.slider.max = String(answer.frames.length - 1);
    this.slider.value = String(at);
    this.#show();
    drawHistory(this.cards.history, answer);
  }

  /** @param {number} at */
  #go(at) {
    this.place = at;
    this.slider.value = String(at);
    this.#show();
  }

  #start() {
    if (this.newest) this.#go(0);
    this.playButton.textContent = "Stop";
    this.player = setInterval(() => {
      this.#go(this.place + 1);
      if (this.newest) this.stop();
    }, PLAY_EVERY);
  }

  stop() {
    clearInterval(this.player);
    this.player = undefined;
    this.playButton.textContent = "Play";
  }

  #show() {
    const { name, network } = this.shown.frames[this.place];
    const { cards } = this;
    this.moment.textContent = name;
    this.slider.setAttribute("aria-valuetext", name);
    this.headline.textContent = `${network.headline.charAt(0).toUpperCase()}${network.headline.slice(1)}`;
    const right = network.accuracy === null ? "" : `; accuracy ${show(100 * network.accuracy, 4)} %`;
    this.sizes.textContent = `${network.title}${right}`;
    this.gauges.replaceChildren(...network.gauges.map(gauge));
    this.notes.replaceChildren(...network.notes.map((note) => el("p", { class: "soft" }, note)));
    this.table.replaceChildren(metricTable(network));
    this.view.hidden = !network.view;
    this.#showChips(network);
    drawView(this.stage, network, this.chosen);
    drawGram(cards.gram, network.gram.means, network);
    drawGram(cards.weight, network.gram.classifier, network);
    drawPair(cards.pair, network);
    drawMargins(cards.margins, network);
    const spreads = this.shown.frames.flatMap((frame) => frame.network.spread ?? []);
    drawSpread(cards.spread, network, Math.max(0, ...spreads));
    drawLayers(cards.layers, network);
  }

  /** @param {Network} network */
  #showChips(network) {
    const classes = network.view?.classes ?? [];
    const chip = (/** @type {number} */ label) =>
      el(
        "button",
        {
          type: "button",
          class: "chip",
          style: `border-color: ${classColour(label)}`,
          "aria-pressed": String(this.chosen.includes(label)),
          onclick: () => this.#choose(label),
        },
        network.names[label] ?? String(label),
      );
    this.chips.replaceChildren(...(classes.length > 4 && classes.length <= 30 ? classes.map(chip) : []));
  }

  /** Show this class among the four, instead of the one that has been shown longest. @param {number} label */
  #choose(label) {
    if (this.chosen.includes(label)) return;
    this.chosen = [...this.chosen.slice(1), label];
    this.#show();
  }
}
