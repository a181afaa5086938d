// @ts-check
// The page's colours, which the theme writes as variables of the style sheet.

/** @type {Map<string, string>} asked for in every frame, and changed by the reader's colour scheme alone */
const known = new Map();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => known.clear());

/** Show the dark or the light colours, whatever the system prefers. @param {boolean} dark */
export function chooseColours(dark) {
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule instanceof CSSMediaRule && (chosen.has(rule) || rule.conditionText.includes("prefers-color-scheme"))) {
        chosen.add(rule);
        rule.media.mediaText = dark ? "screen" : "not all";
      }
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  known.clear();
}
/** @type {WeakSet<CSSRule>} rules of the dark whose condition was replaced */
const chosen = new WeakSet();

/** @param {string} name @returns {string} a colour of the page */
export function colour(name) {
  const found = known.get(name) ?? getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  if (found) known.set(name, found);
  return found;
}

/** The colours of classes, repeated after ten; none is that of a loss. @param {number} label */
export const classColour = (label) => colour(`k${label % 10}`);
