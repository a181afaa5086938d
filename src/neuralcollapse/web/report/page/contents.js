// @ts-check
// The contents: a filter over all results, and a mark at the one that is being read.
"use strict";
(() => {
  const filter = /** @type {HTMLElement | null} */ (document.querySelector(".filter"));
  if (!filter) return;
  const words = /** @type {HTMLInputElement} */ (filter.querySelector("input"));
  const chips = /** @type {HTMLButtonElement[]} */ ([...filter.querySelectorAll("button")]);
  const shown = /** @type {HTMLElement} */ (filter.querySelector("output"));
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".summary tbody tr")]);
  const links = /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll(".contents a")]);
  const places = rows.map((row) => row.dataset.of ?? "");

  const update = () => {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.value);
    let count = 0;
    rows.forEach((row, index) => {
      const text = (row.textContent ?? "").toLowerCase();
      const fits =
        asked.every((word) => text.includes(word)) && (!chosen.length || chosen.includes(row.dataset.verdict ?? ""));
      count += Number(fits);
      row.hidden = !fits;
      links[index].hidden = !fits;
      const section = document.getElementById(places[index]);
      if (section) section.hidden = !fits;
    });
    shown.textContent = count === rows.length ? "" : `${count} of ${rows.length}`;
  };
  words.addEventListener("input", update);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      update();
    });
  }
  filter.hidden = false;

  // The last result whose heading has passed the upper third of the window.
  const mark = () => {
    const passed = places.filter((place) => {
      const section = document.getElementById(place);
      return section && !section.hidden && section.getBoundingClientRect().top < window.innerHeight / 3;
    });
    for (const link of links) {
      const here = link.hash === `#${passed.at(-1)}`;
      if (here === link.hasAttribute("aria-current")) continue;
      link.toggleAttribute("aria-current", here);
      const list = link.parentElement;
      if (here && list && list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - list.offsetLeft - 16;
    }
  };
  let waiting = false;
  window.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      mark();
    });
  });
  mark();
})();
