// @ts-check
// The page: tabs, state, and which view is brought up to date when.

import * as state from "./page/state.js";
import * as api from "./page/api.js";
import { $, message, notice } from "./page/dom.js";
import { buildModel } from "./views/model.js";
import { redrawOptimum, updateOptimum } from "./views/optimum.js";
import { buildSolve, markStale } from "./views/solve.js";
import { buildLandscape, updateLandscape } from "./views/landscape.js";
import { updateResults, updateStudy } from "./views/results.js";
import { buildNetwork, updateNetwork } from "./views/network/view.js";
import { CollapseView } from "./collapse/view.js";
import { BASE } from "./collapse/scenes.js";

const tabs = ["collapse", "network", "optimum", "solve", "landscape", "results"];
/** @type {Map<string, number>} frames that are asked for, by what they are for */
const pending = new Map();
/** @type {{field: string | null} | null} what of the landscape has changed since its last frame; null in it: all */
let landscape = null;
/** @type {About} */
let about;
/** @type {HTMLElement} */
let model;
/** @type {CollapseView | null} */
let collapse = null;

const collapseSettings = () =>
  Object.fromEntries(
    [...Object.keys(BASE), "scene"].map((name) => [name, state.get(`c.${name}`)]).filter(([, value]) => value !== ""),
  );

/** A loss as the server reads it. @param {import("./collapse/model/ufm.js").Loss} loss */
function specOf(loss) {
  if (loss.kind === "focal") return `focal:gamma=${loss.gamma}`;
  if (loss.kind === "ls") return `ls:alpha=${loss.alpha}`;
  return loss.kind === "mse" ? `mse:alpha=1,target=${loss.target}` : "ce";
}

/** The fields of the server's own questions for a problem of the view "Collapse".
 * @param {import("./collapse/model/ufm.js").Problem} problem */
function fieldsOf(problem) {
  const spheres = problem.model === "normalized";
  return {
    model: problem.model,
    loss: specOf(problem.loss),
    classes: problem.counts.length,
    counts: problem.counts.join(" "),
    dim: problem.dim,
    weight_decay: spheres ? null : problem.weightDecay,
    feature_decay: spheres ? null : problem.featureDecay,
    bias_decay: spheres ? null : problem.biasDecay,
    temperature: spheres ? problem.temperature : null,
  };
}

function buildCollapse() {
  // In the console, too: for those who want to look inside.
  window.collapseView = collapse = new CollapseView($("collapse-root"), {
    read: collapseSettings,
    write: (settings) => {
      const fresh = Object.fromEntries(
        [...Object.keys(BASE), "scene"].map((name) => [`c.${name}`, settings[name] ?? ""]),
      );
      state.setQuietly(fresh, fresh["c.scene"] !== state.get("c.scene"));
    },
    certify: (problem, point) =>
      api.post("certify", {
        ...fieldsOf(problem),
        W: Array.from(point.W),
        H: Array.from(point.H),
        b: point.b && Array.from(point.b),
      }),
    least: (problem) =>
      api.latest("least", () => api.get("least", fieldsOf(problem))).then((answer) => answer?.value ?? null),
  });
}

// Once a frame: the queue of questions keeps one under way and the newest waiting, so pictures follow the hand.
/** @param {string} kind @param {() => void} work */
function later(kind, work) {
  if (pending.has(kind)) return;
  pending.set(
    kind,
    requestAnimationFrame(() => {
      pending.delete(kind);
      work();
    }),
  );
}

function showTab() {
  const current = tabs.includes(state.get("tab")) ? state.get("tab") : "collapse";
  for (const name of tabs) {
    const chosen = name === current;
    $(`panel-${name}`).hidden = !chosen;
    $(`tab-${name}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  $(`tab-${current}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  if (current === "optimum" || current === "solve") $(`aside-${current}`).append(model);
  document.title = `${$(`tab-${current}`).textContent} – neural collapse explorer`;
  return current;
}

/** @param {string | null} changed the field, or null for all */
function update(changed) {
  const current = showTab();
  if (current === "collapse") {
    // A link or the back button brings other settings; the view's own changes it knows.
    if (!collapse) buildCollapse();
    else if (changed === null || changed === "tab") collapse.load(collapseSettings());
  } else if (current === "network") {
    updateNetwork();
  } else if (current === "optimum") {
    if (changed === "curve" || changed === "gram") redrawOptimum();
    else later("optimum", updateOptimum);
  } else if (current === "solve") {
    markStale();
  } else if (current === "landscape") {
    // Two fields that change before the next frame both count.
    const all = changed === null || changed === "tab" || (landscape !== null && landscape.field !== changed);
    landscape = { field: all ? null : changed };
    later("landscape", () => {
      const field = landscape?.field ?? null;
      landscape = null;
      updateLandscape(field);
    });
  } else if (current === "results") {
    if (changed === "study") updateStudy().catch((error) => notice("results-error", message(error)));
    else updateResults(about);
  }
}

function buildTabs() {
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    $("content").focus();
  });
  for (const name of tabs) $(`tab-${name}`).addEventListener("click", () => state.set("tab", name));
  /** @type {HTMLElement | null} */ (document.querySelector("[role=tablist]"))?.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const place = tabs.indexOf(state.get("tab"));
    const next =
      event.key === "Home"
        ? 0
        : event.key === "End"
          ? tabs.length - 1
          : step
            ? (place + step + tabs.length) % tabs.length
            : null;
    if (next === null) return;
    event.preventDefault();
    state.set("tab", tabs[next]);
    $(`tab-${tabs[next]}`).focus();
  });
}

async function start() {
  try {
    about = await api.get("about");
  } catch (error) {
    notice("failure", message(error));
    return;
  }
  $("version").textContent = `Version ${about.version}.`;
  model = buildModel(about);
  $("aside-solve").append(buildSolve(about));
  $("aside-landscape").append(buildLandscape(about));
  buildNetwork(about);
  buildTabs();
  state.whenChanged(update);
  window.addEventListener("hashchange", state.load);
  state.load();
}

start();
