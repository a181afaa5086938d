// @ts-check
// The frame of "Collapse" is as high as the page in it says.

window.addEventListener("message", ({ source, data }) => {
  for (const frame of document.querySelectorAll("iframe.collapse-frame"))
    if (frame instanceof HTMLIFrameElement && frame.contentWindow === source && data?.collapseHeight > 0)
      frame.style.height = `${data.collapseHeight + 2}px`;
});
