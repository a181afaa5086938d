// @ts-check
// The page's colours, which the theme writes as variables of the style sheet.

/** @type {Map<string, string>} asked for in every frame, and changed by the reader's colour scheme alone */
const known = new Map();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => known.clear());

/** @param {string} name @returns {string} a colour of the page */
export function colour(name) {
  const found = known.get(name) ?? getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  if (found) known.set(name, found);
  return found;
}

/** The colours of classes, repeated after ten; none is that of a loss. @param {number} label */
export const classColour = (label) => colour(`k${label % 10}`);
