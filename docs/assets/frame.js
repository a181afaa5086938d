// @ts-check
// The frame of "Collapse" is as high as the page in it says, and as dark as the page around it.

const pictures = () =>
  [...document.querySelectorAll("iframe.collapse-frame")].filter((one) => one instanceof HTMLIFrameElement);

/** @param {HTMLIFrameElement} frame */
function colour(frame) {
  const dark = document.body.dataset.mdColorScheme === "slate";
  frame.contentWindow?.postMessage({ collapseColours: dark ? "dark" : "light" }, "*");
}

window.addEventListener("message", ({ source, data }) => {
  for (const frame of pictures())
    if (frame.contentWindow === source && data?.collapseHeight > 0) {
      if (!frame.style.height) colour(frame);
      frame.style.height = `${data.collapseHeight + 2}px`;
    }
});
new MutationObserver(() => pictures().forEach(colour)).observe(document.body, {
  attributeFilter: ["data-md-color-scheme"],
});
