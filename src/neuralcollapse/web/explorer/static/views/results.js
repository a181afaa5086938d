// @ts-check
// The Results view: studies of a folder with their verdicts, tables and pictures.

import * as state from "../page/state.js";
import * as api from "../page/api.js";
import { $, el, facts, message, notice } from "../page/dom.js";
import { show } from "../page/numbers.js";

/** @type {Record<string, string>} */
const tones = { holds: "good", contradicted: "bad", underpowered: "open" };
/** @param {string} [verdict] */
const badge = (verdict = "not read") => el("span", { class: `badge ${tones[verdict] ?? "open"}` }, verdict);

/** @param {About} about */
export async function updateResults(about) {
  if (!about.results) {
    $("results-list").replaceChildren(
      el("p", { class: "lead" }, "No folder of results was given. Run a study, then start with the folder:"),
      el("pre", {}, "neuralcollapse study run geometric/bound --out results\nneuralcollapse explore --results results"),
    );
    $("results-study").replaceChildren();
    return;
  }
  notice("results-error", null);
  try {
    const answer = await api.latest("studies", () => api.get("studies"));
    if (answer) showList(answer);
    await updateStudy();
  } catch (error) {
    notice("results-error", message(error));
  }
}

/** @param {{folder: string, studies: StudyRow[]}} answer */
function showList(answer) {
  if (!answer.studies.length) {
    $("results-list").replaceChildren(el("p", { class: "lead" }, `There is no study in ${answer.folder}.`));
    return;
  }
  const rows = answer.studies.map((one) => {
    const link = el("a", { href: `#${new URLSearchParams({ tab: "results", study: one.id })}` }, one.id);
    return el(
      "tr",
      {},
      el("td", {}, link),
      el("td", {}, badge(one.verdict)),
      el("td", {}, one.profile ?? ""),
      el("td", {}, one.error ?? one.question ?? ""),
    );
  });
  const head = el(
    "thead",
    {},
    el("tr", {}, ...["study", "verdict", "profile"].map((name) => el("th", {}, name)), el("th", {}, "question")),
  );
  $("results-list").replaceChildren(
    el("p", { class: "lead" }, `Studies in ${answer.folder}.`),
    el("div", { class: "card scroll" }, el("table", { class: "stack" }, head, el("tbody", {}, rows))),
  );
}

export async function updateStudy() {
  const name = state.get("study");
  if (!name) {
    $("results-study").replaceChildren();
    return;
  }
  /** @type {StudyAnswer | null} */
  const one = await api.latest("study", () => api.get("study", { study: name }));
  if (!one) return;
  const figures = (one.figures ?? [])
    .map((figure) => (/^\d/.test(String(figure)) ? `figure ${figure}` : figure))
    .join(", ");
  /** @type {HTMLElement[]} */
  const nodes = [
    el(
      "div",
      { class: "row" },
      el("h2", { class: "grow", tabindex: -1, id: "study-title" }, `${one.id} (${one.paper} paper: ${figures})`),
      badge(one.verdict),
    ),
    el("p", {}, one.question ?? ""),
    facts(
      [
        ["profile", one.profile],
        ["setting", one.setting],
        ["variation", one.variation ? JSON.stringify(one.variation) : null],
        ["cells", `${one.cells}${one.failures.length ? `, ${one.failures.length} failed: ${one.failures[0]}` : ""}`],
      ],
      true,
    ),
  ];
  if (one.parts?.length) nodes.push(claims(one.parts));
  if (one.picture)
    nodes.push(
      el("img", {
        src: `api/picture?${new URLSearchParams({ study: one.id })}`,
        alt: `Picture of the study ${one.id}`,
      }),
    );
  if (one.table.length) nodes.push(table(one));
  $("results-study").replaceChildren(el("div", { class: "results" }, el("section", { class: "card" }, nodes)));
  // Below a long list nobody would see it open.
  $("study-title").scrollIntoView({ block: "start" });
  $("study-title").focus({ preventScroll: true });
}

/** @param {PartAnswer[]} parts */
function claims(parts) {
  const heads = ["what the paper says", "verdict", "measured", "limit", "why"];
  const interval = (/** @type {PartAnswer} */ part) =>
    (part.low ?? null) === null || part.low === part.high
      ? show(part.measured, 4)
      : `${show(part.measured, 4)} (${show(part.low, 4)} to ${show(part.high, 4)})`;
  const rows = parts.map((part) =>
    el(
      "tr",
      {},
      el(
        "td",
        {},
        `${part.says} (${part.kind === "ours" ? "ours" : part.source}${(part.erratum ?? null) === null ? "" : `, erratum ${part.erratum}`})`,
      ),
      el("td", {}, badge(part.verdict)),
      el("td", { "data-label": "measured" }, interval(part)),
      el("td", { "data-label": "limit" }, part.limit),
      el("td", {}, part.why),
    ),
  );
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: "stack" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((name) => el("th", {}, name)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}

/** @param {StudyAnswer} one */
function table(one) {
  const names = [...new Set(one.table.flatMap((row) => Object.keys(row)))];
  const numeric = new Set(
    names.filter((name) =>
      one.table.every((row) => row[name] === null || row[name] === undefined || typeof row[name] === "number"),
    ),
  );
  const cell = (/** @type {unknown} */ value) =>
    value !== null && typeof value === "object" ? JSON.stringify(value) : show(value, 5);
  const cut =
    one.rows > one.table.length
      ? el("p", { class: "caption" }, `The first ${one.table.length} of ${one.rows} rows.`)
      : null;
  return el(
    "details",
    { class: "more", open: one.table.length <= 20 },
    el("summary", {}, `Table, ${one.rows} rows`),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            names.map((name) => el("th", { class: numeric.has(name) ? "number" : null }, name)),
          ),
        ),
        el(
          "tbody",
          {},
          one.table.map((row) =>
            el(
              "tr",
              {},
              names.map((name) => el("td", { class: numeric.has(name) ? "number" : null }, cell(row[name]))),
            ),
          ),
        ),
      ),
    ),
    cut,
  );
}
