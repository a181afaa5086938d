"""A browser on the page, with its messages, errors and requests kept."""

import shutil
from urllib.parse import urlsplit

__all__ = ["ARGUMENTS", "CHROMIUM", "Watched"]

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Watched:
    """A page whose messages, errors and requests are kept."""

    def __init__(self, browser, server, width=1280, scheme="light", motion="no-preference", touch=False):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion=motion, has_touch=touch
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(200_000)  # a busy machine takes minutes for what takes a second
        self.url, self.troubles, self.hosts = server.url, [], set()
        self.page.on("console", lambda m: self.troubles.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def open(self, hash=""):
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}#{hash}", wait_until="commit")
        self.page.wait_for_selector("[role=tabpanel]:not([hidden])")
        return self.page

    def settle(self):
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(200)
