// @ts-check
// The view "Collapse" without a server: its settings are in the address, and nothing certifies but the closed form.

import { CollapseView } from "./collapse/view.js";
import { chooseColours } from "./page/colours.js";

const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const view = new CollapseView(/** @type {HTMLElement} */ (document.getElementById("collapse-root")), {
  read,
  write: (settings) => history.replaceState(null, "", `#${new URLSearchParams(settings)}`),
  certify: null,
  least: null,
});
window.addEventListener("hashchange", () => view.load(read()));
Object.assign(window, { collapseView: view });
// Inside another page, say how much room all of it takes: a frame of fixed height cuts the curves or scrolls in itself.
if (window.parent !== window) {
  document.body.classList.add("framed");
  // The page around it may have a switch of its own between light and dark.
  window.addEventListener("message", ({ source, data }) => {
    if (source !== window.parent || !["dark", "light"].includes(data?.collapseColours)) return;
    chooseColours(data.collapseColours === "dark");
    view.redraw();
  });
  new ResizeObserver(() => {
    const height = Math.ceil(document.body.getBoundingClientRect().height);
    window.parent.postMessage({ collapseHeight: height }, "*");
  }).observe(document.body);
}
