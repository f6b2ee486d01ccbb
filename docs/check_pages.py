"""Open every page of the built documentation in Chromium: `make docs-check`.

`python docs/check_pages.py docs/_build [page ...]` serves the pages on this computer and shows one after the other in a
frame as wide as a phone and in one as wide as a desk, light and dark. Reported, with the page's name: requests to other
hosts, errors and warnings on the console, TeX that nobody set, pages wider than the frame, pictures that did not load.
`found_in_files` does what can be done without a browser, and is what the tests call.
"""

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from html.parser import HTMLParser
from pathlib import Path

TEX = re.compile(r"\\(?:[([\])]|(?:frac|tfrac|sum|min|max|le|ge|ne|lambda|theta|mu|cdot|hat|bar|mathrm|text)\b)|\$\$")
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("image", "href")}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--window-size=1400,1000",
]
WIDTHS = {"phone": 390, "desk": 1280}

HARNESS = """<!doctype html><meta charset="utf-8"><title>check</title>
<iframe id="frame" style="border: 0; height: 900px"></iframe>
<script>
const views = VIEWS, pages = PAGES, frame = document.getElementById("frame"), found = [];
const shown = (page) => new Promise((resolve) => { frame.onload = resolve; frame.src = page; });
const settled = () => new Promise((resolve) => setTimeout(resolve, 60));
async function check(page, view, width, mode) {
  localStorage.setItem("mode", mode); localStorage.setItem("theme", mode);
  frame.style.width = width + "px";
  await shown(page);
  await settled();
  const inside = frame.contentWindow, root = inside.document.documentElement;
  const report = (what) => found.push(`${page} (${view}, ${mode}): ${what}`);
  for (const entry of inside.performance.getEntriesByType("resource"))
    if (new URL(entry.name).origin !== location.origin) report("asks for " + entry.name);
  if (root.scrollWidth > width + 1) report(`is ${root.scrollWidth} wide`);
  if (root.dataset.theme !== undefined && root.dataset.theme !== mode) report("does not turn " + mode);
  for (const image of inside.document.images)
    if (image.complete && !image.naturalWidth && image.getClientRects().length) report("has no picture " + image.src);
  const body = inside.document.body.cloneNode(true);
  body.querySelectorAll("pre, code, script, style").forEach((code) => code.remove());
  const tex = body.textContent.match(TEX);
  if (tex) report("shows TeX: " + tex[0]);
}
(async () => {
  for (const page of pages)
    for (const [view, width, mode] of views)
      try { await check(page, view, width, mode); } catch (error) { found.push(`${page}: ${error}`); }
  await fetch("/found", { method: "POST", body: JSON.stringify(found) });
})();
</script>"""


class _Page(HTMLParser):
    """What a page loads, and its text outside of code."""

    def __init__(self):
        super().__init__()
        self.loaded, self.text, self.code = [], [], 0

    def handle_starttag(self, tag, attributes):
        self.code += tag in ("pre", "code", "script", "style")
        self.loaded += [value for name, value in attributes if (tag, name) in LOADS and value]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.code -= tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag):
        self.code -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data):
        if not self.code:
            self.text.append(data)


def found_in_files(folder):
    """Return a sentence for each request to another host and each piece of raw TeX, in pages and style sheets."""
    found = []
    for path in sorted(Path(folder).rglob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        found += [f"{path.name} asks for {url}" for url in page.loaded if re.match(r"(https?:)?//", url)]
        found += [f"{path.name} shows TeX: {match[0]}" for match in [TEX.search(" ".join(page.text))] if match]
    for path in sorted(Path(folder).rglob("*.css")):
        asked = re.findall(r"(?:url\(|@import )\s*[\"']?((?:https?:)?//[^\"') ]+)", path.read_text(encoding="utf-8"))
        found += [f"{path.name} asks for {url}" for url in asked]
    return found


class _Server(http.server.SimpleHTTPRequestHandler):
    """The pages, the harness, and a place that takes what the harness found."""

    def do_GET(self):
        if self.path != "/check-pages":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return self.wfile.write(self.server.harness.encode())

    def do_POST(self):
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def log_message(self, *arguments):
        """Say nothing."""


def found_in_browser(folder, chromium, pages, minutes=15):
    """Return a sentence for everything that Chromium finds."""
    folder = Path(folder).resolve()
    views = [(view, width, mode) for view, width in WIDTHS.items() for mode in ("light", "dark")]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Server, directory=str(folder)))
    script_tex = "/" + TEX.pattern.replace("/", r"\/") + "/"
    server.harness = (
        HARNESS.replace("VIEWS", json.dumps(views)).replace("PAGES", json.dumps(pages)).replace("TEX", script_tex, 1)
    )
    server.found, server.done = ["Chromium did not come to the end."], threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile("w+") as log:
        address = f"http://127.0.0.1:{server.server_address[1]}/check-pages"
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        server.done.wait(60 * minutes)
        browser.terminate()
        browser.wait()
        log.seek(0)
        console = [line.strip() for line in log if re.search(":(WARNING|ERROR):CONSOLE", line)]
    server.shutdown()
    return [*server.found, *console]


def main(folder, *pages):
    """Print what was found; the exit code is 1 if that is something."""
    found = found_in_files(folder)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    names = list(pages) or sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.html"))
    if chromium is None:
        print("Chromium is not installed: only the files were read.")
    else:
        found += found_in_browser(folder, chromium, names)
    print("\n".join(found) or f"{len(names)} pages: nothing found.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
