// The page: tabs, state, and which view is brought up to date when.

import * as state from "./page/state.js";
import * as api from "./page/api.js";
import { $, notice } from "./page/dom.js";
import { buildModel } from "./views/model.js";
import { redrawOptimum, updateOptimum } from "./views/optimum.js";
import { buildSolve, markStale } from "./views/solve.js";
import { buildLandscape, updateLandscape } from "./views/landscape.js";
import { updateResults, updateStudy } from "./views/results.js";
import { buildNetwork, updateNetwork } from "./views/network.js";
import { CollapseView } from "./collapse/view.js";
import { BASE } from "./collapse/scenes.js";

const tabs = ["collapse", "network", "optimum", "solve", "landscape", "results"];
const pending = new Map();
let about;
let model;
let collapse = null;

const collapseSettings = () =>
  Object.fromEntries(
    [...Object.keys(BASE), "scene"].map((name) => [name, state.get(`c.${name}`)]).filter(([, value]) => value !== ""),
  );

// The fields of the server's own questions for a problem of the view "Collapse".
function fieldsOf(problem) {
  const names = {
    ce: "ce",
    focal: `focal:gamma=${problem.loss.gamma}`,
    ls: `ls:alpha=${problem.loss.alpha}`,
    mse: `mse:alpha=1,target=${problem.loss.target}`,
  };
  const spheres = problem.model === "normalized";
  return {
    model: problem.model,
    loss: names[problem.loss.kind],
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
    // Two fields that change within the pause both count.
    const all =
      changed === null ||
      changed === "tab" ||
      (pending.has("landscape-field") && pending.get("landscape-field") !== changed);
    pending.set("landscape-field", all ? null : changed);
    later("landscape", () => {
      const field = pending.get("landscape-field");
      pending.delete("landscape-field");
      updateLandscape(field);
    });
  } else if (current === "results") {
    if (changed === "study") updateStudy().catch((error) => notice("results-error", error.message));
    else updateResults(about);
  }
}

function buildTabs() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("content").focus();
  });
  for (const name of tabs) $(`tab-${name}`).addEventListener("click", () => state.set("tab", name));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
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
    notice("failure", error.message);
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
