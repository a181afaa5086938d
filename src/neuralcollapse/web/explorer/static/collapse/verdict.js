// @ts-check
// What the badge says of a point that rests: from the closed form alone, or from the server's certificate.

import { show } from "../page/numbers.js";

/** @typedef {[kind: "good" | "bad" | "open", words: string]} Saying */

/** Without a server. @param {Record<string, number | null>} now @returns {Saying} */
export function paused({ gap, gradient, value }) {
  if (gap === null) return ["open", `paused; the gradient is ${show(gradient, 2)}`];
  if (gap <= 1e-9 * Math.max(1, Math.abs(Number(value)))) return ["good", "at the global minimum of the closed form"];
  return ["open", `paused ${show(gap, 3)} above the global minimum`];
}

/** @param {Verdict} verdict @returns {Saying} */
export function certified(verdict) {
  const gap = verdict.gap === null ? null : show(Math.max(0, verdict.gap), 2);
  const near = gap === null ? "" : `, gap ${gap}`;
  switch (verdict.verdict) {
    case "global minimum":
      return ["good", `proved global minimum${near}`];
    case "strict saddle":
      return ["bad", `strict saddle: a way down with curvature ${show(verdict.curvature, 2)}`];
    case "not a critical point":
      return ["open", gap === null ? "on the way" : `on the way: at most ${gap} above the minimum`];
    default:
      return ["open", `${verdict.verdict}${near}`];
  }
}
