"""How large report.html is, and when a reader can use it.

    python tests/benchmarks/page.py             (a free core and Chromium; about a minute)

The records are made up: 13 losses, 8 widths and 2 datasets, 6 seeds (1,248 cells), and a fifth of that. Prints a
Markdown table. *Ready* is when the page has read its data, filtered its tables and drawn its first chart; *thread time*
is what the main thread of the browser computed until then, which other programs disturb less. Both are medians of
several loads after one that fills the caches. Exit code 1 if a page is too large, or if both times are over the limit.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the made-up runs of the tests

from kit.browser import Browser
from kit.synthetic import Truth, analysed, common, noise

from lossbench import data
from lossbench.plan.job import with_data
from lossbench.plugins.registry import Registry
from lossbench.report.output.html import html
from lossbench.report.sections import sections
from lossbench.suite import reading as suite

LOSSES = [
    *("softmax", "center", "hinge", "l_softmax", "a_softmax", "w_softmax", "normface", "cosface", "arcface", "adaface"),
    *("curricularface", "magface", "circle"),
]
SUITE = """
name = "page"
[[experiment]]
name = "page"
dataset = {{ name = "digits", train = [400, 800] }}
backbone = {{ name = "cnn", channels = 4, depths = [1] }}
widths = {widths}
losses = {losses}
seeds = 6
schedule = {{ steps = 100 }}
timing = {{ rounds = 10 }}
"""
READY = "document.documentElement?.dataset.ready === 'true'"
LOADS = 9
MOST = 500  # milliseconds


def truth(cell) -> Truth:
    curve = tuple({"step": step, "loss": 1.2345 / step, "correct": 6 * step} for step in range(1, 101))
    return Truth(85 + common(cell.seed) + LOSSES.index(cell.loss.name) / 10 + noise(cell, 0.5), curve=curve)


def opened(browser: Browser, page: Path) -> tuple[float, float]:
    """Milliseconds until the page is ready, and of the main thread's own time."""
    browser.call("Page.navigate", url="about:blank")
    browser.until("location.protocol === 'about:'")
    browser.call("Performance.disable")
    browser.call("Performance.enable", timeDomain="threadTicks")
    before = _busy(browser)
    browser.call("Page.navigate", url=page.as_uri())
    browser.until(READY, 60)
    ready = browser.run("performance.getEntriesByName('lossbench-ready')[0].startTime")
    return ready, 1000 * (_busy(browser) - before)


def _busy(browser: Browser) -> float:
    found = {entry["name"]: entry["value"] for entry in browser.call("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"]


def main() -> None:
    registry = Registry()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        browser = Browser(folder / "profile")
        browser.size(1400, 900)
        held = True
        print("| cells | MB | wanted | ready, ms | wanted | thread time, ms |\n|---:|---:|---:|---:|---:|---:|")
        for widths, most in (([4, 8], 0.6), ([4, 8, 12, 16, 24, 32, 48, 64], 1.5)):
            text = SUITE.format(widths=widths, losses=LOSSES)
            parsed = suite.parse(text, "page.toml", registry, lambda spec: spec.options["classes"] or 10)
            results = analysed(with_data(parsed, registry, data.data_folder()), truth, total=600)
            page = folder / f"{len(results.cells)}.html"
            page.write_text(html(results, sections(results)), encoding="utf-8")
            loads = [opened(browser, page) for _ in range(1 + LOADS)][1:]
            ready, busy = (statistics.median(times) for times in zip(*loads, strict=True))
            size = page.stat().st_size / 1e6
            held = held and size <= most and min(ready, busy) <= MOST
            print(f"| {len(results.cells):,} | {size:.2f} | {most} | {ready:.0f} | {MOST} | {busy:.0f} |", flush=True)
        browser.close()
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
