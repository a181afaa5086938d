"""How fast the view "Collapse" runs in a browser here, and how soon its certificate comes.

    python benchmarks/browser.py [--repeats 10] [--json evidence/bench/browser.json]

Headless Chromium without a graphics card, one page at a time: frames a second as the browser delivers them (at most
60), the work of one frame (a step, the measures, the pictures), and the time from a pause to the server's certificate.
The best of several counts, since other work on the machine only ever slows it down.
"""

import argparse
import sys
import threading
from pathlib import Path

from _tables import Tables

from neuralcollapse.web.explorer import ExplorerServer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from web_browser import ARGUMENTS, CHROMIUM

SIZES = ((4, 12, 3), (5, 40, 4), (10, 20, 9), (10, 40, 9))
"""Classes, samples a class, dimensions."""

RATE = """async () => {
  let frames = 0;
  const began = performance.now();
  while (performance.now() - began < 1000) {
    await new Promise((done) => requestAnimationFrame(done));
    frames += 1;
  }
  return (1000 * frames) / (performance.now() - began);
}"""
WORK = """() => {
  const view = window.collapseView, times = [];
  for (let i = 0; i < 60; i++) {
    view.playing = true;
    const began = performance.now();
    view.frame();
    times.push(performance.now() - began);
  }
  return Math.min(...times);
}"""
CERTIFICATE = """async () => {
  const view = window.collapseView;
  view.play(true);
  const began = performance.now();
  view.play(false);
  while (view.verdict === null) await new Promise((done) => setTimeout(done, 2));
  return performance.now() - began;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="of everything, at each size")
    parser.add_argument("--json", type=Path, help="the result file to write")
    arguments = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("benchmarks/browser.py needs chromium")
    from playwright.sync_api import sync_playwright

    rows = []
    with ExplorerServer(0, None) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for classes, each, dim in SIZES:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"{server.url}#tab=collapse&c.classes={classes}&c.per_class={each}&c.dim={dim}")
            page.wait_for_function("() => window.collapseView?.run.steps > 5")
            repeats = range(arguments.repeats)
            rate = max(page.evaluate(RATE) for _ in repeats)
            work = min(page.evaluate(WORK) for _ in repeats)
            waited = min(page.evaluate(CERTIFICATE) for _ in repeats)
            rows.append([f"{classes}", f"{classes * each}", f"{dim}", f"{rate:.1f}", f"{work:.1f}", f"{waited:.0f}"])
            page.close()
        browser.close()
        server.stop()
    tables = Tables()
    columns = ["classes", "samples", "dimensions", "frames a second", "work of a frame, ms", "pause to certificate, ms"]
    tables.add(
        "collapse",
        f"The view “Collapse” in headless Chromium without a graphics card, best of {arguments.repeats}",
        columns,
        rows,
    )
    if arguments.json:
        tables.save(arguments.json, "wall clock")


if __name__ == "__main__":
    main()
