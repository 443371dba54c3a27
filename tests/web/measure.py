"""Measures the dashboard: first paint, how far behind a page is, what pages cost the daemon, how lanes are panned.

    make bench-web        # all of it; PYTHONPATH=tests .venv/bin/python -m web.measure lanes paint lag cost

Prints one JSON object a line; docs/figures/dashboard.md has the figures. Needs Chromium and playwright."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from harness import daemon
from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Part
from web.conftest import ARGS, CHROMIUM, Visit, make_home, training
from web.replay import Week, afternoon, engine_with, machines, served

COST_S = float(os.environ.get("SWELL_COST_S", "60"))

FRAMES = """async move => {
  const area = document.querySelector('.lanes') ?? document.body;
  const box = area.getBoundingClientRect();
  let x = box.left + 700;
  const fire = type => move && area.dispatchEvent(
    new PointerEvent(type, {clientX: x, clientY: box.top + 300, button: 0, bubbles: true}));
  fire('pointerdown');
  const took = [];
  let last = performance.now();
  const began = last;
  await new Promise(done => {
    const step = at => {
      took.push(at - last);
      last = at;
      x += Math.floor(took.length / 60) % 2 ? -6 : 6;
      fire('pointermove');
      if (at - began < 4000) requestAnimationFrame(step); else done();
    };
    requestAnimationFrame(step);
  });
  fire('pointerup');
  took.sort((a, b) => a - b);
  return {per_s: took.length * 1000 / (last - began), p95_ms: took[Math.floor(took.length * 0.95)]};
}"""
SCROLL = """async () => {
  const area = document.querySelector('[data-testid=rows]');
  const took = [];
  let last = performance.now();
  const began = last;
  await new Promise(done => {
    const step = at => {
      took.push(at - last);
      last = at;
      area.scrollTop += 440;
      if (at - began < 4000) requestAnimationFrame(step); else done();
    };
    requestAnimationFrame(step);
  });
  took.sort((a, b) => a - b);
  return {per_s: took.length * 1000 / (last - began), p95_ms: took[Math.floor(took.length * 0.95)]};
}"""
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
WATCH = """() => {
  window.seen = {};
  new MutationObserver(() => {
    for (const row of document.querySelectorAll('.row[data-job]'))
      if (row.innerText.includes('paused')) window.seen[row.dataset.job] ??= Date.now();
  }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
}"""


def say(**found: Any) -> None:
    print(json.dumps({"load": round(os.getloadavg()[0], 1), **found}), flush=True)


def lanes(browser: Any) -> None:
    with served(Week()) as made:
        visit = Visit(browser)
        page = visit.log_in(made)
        page.get_by_role("button", name="7 days").click()
        page.wait_for_timeout(4000)
        still = page.evaluate(FRAMES, False)
        for _ in range(3):
            say(what="panning 50,000 bars on 64 lanes over 7 days", still=still, panned=page.evaluate(FRAMES, True))
        page.close()


def paint(browser: Any) -> None:
    with served(engine_with(afternoon())) as made:
        found = []
        for _ in range(7):
            visit = Visit(browser)
            visit.log_in(made)
            found.append(visit.page.evaluate(PAINT))
            visit.context.close()
        say(what="first paint, cold cache", median_ms=statistics.median(found), worst_ms=max(found))


def rows(browser: Any) -> None:
    """Ten rows further with every frame, through ten thousand."""
    spec = JobSpec(name="sweep", command=("x",), user="ada", gpus=GpuRequest(max=8))
    events: list[ev.Event] = []
    for job in range(1, 10_001):
        events += [ev.JobSubmitted(job=job, spec=spec, at_s=1.0), ev.JobCancelled(job=job, at_s=2.0)]
    with served(engine_with(events)) as made:
        page = Visit(browser).log_in(made, "/jobs")
        page.locator(".bulk", has_text="10,000").wait_for(timeout=60_000)
        page.wait_for_timeout(2000)
        still = page.evaluate(FRAMES, False)
        say(what="scrolling 10,000 jobs", still=still, scrolled=page.evaluate(SCROLL))
        page.close()


def lag(browser: Any) -> None:
    """200 jobs run and report an epoch each second; others are paused, and seen to be."""
    events: list[ev.Event] = [ev.NodeObserved(node=node, at_s=0.0) for node in machines(25)]
    events.append(ev.PolicySet(name="fifo", placer="consolidated", at_s=0.0))
    now = time.time()
    for job in range(1, 251):
        spec = JobSpec(name=f"j{job}", command=("x",), gpus=GpuRequest(), uses_library=True, epochs=10_000)
        events.append(ev.JobSubmitted(job=job, spec=spec, at_s=now))
    for job in range(1, 201):
        part = Part(node=f"gpu-{(job - 1) // 8 + 1:02}", gpus=((job - 1) % 8,))
        run = RunId(job, 1)
        given = Allocation(parts=(part,), gpu_type="A100")
        events += [ev.RunPlanned(run=run, allocation=given, at_s=now), ev.RunStarted(run=run, at_s=now)]
    engine = engine_with(events)
    over = threading.Event()

    def report() -> None:
        epoch = 0
        while not over.is_set():
            epoch += 1
            for job in range(1, 201):
                engine.record(ev.EpochEnded(run=RunId(job, 1), at_s=time.time(), epoch=epoch, epoch_s=1.0, gpus=1))
                over.wait(0.004)

    with served(engine) as made:
        page = Visit(browser).log_in(made, "/jobs")
        page.get_by_role("button", name="Waiting").click()
        page.evaluate(WATCH)
        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        page.wait_for_timeout(2000)
        told = {}
        for job in range(250, 234, -1):
            told[str(job)] = time.time()
            engine.record(ev.JobPaused(job=job, at_s=time.time()))
            page.wait_for_timeout(300)
        page.wait_for_timeout(2000)
        seen = page.evaluate("() => window.seen")
        over.set()
        reporter.join()
        behind = sorted(seen[job] / 1000 - at_s for job, at_s in told.items())
        say(what="behind, 200 running jobs", median_s=statistics.median(behind), worst_s=behind[-1], of=len(behind))
        page.close()


def cost() -> None:
    with tempfile.TemporaryDirectory() as folder, daemon(make_home(Path(folder) / "home"), gpus=8) as made:
        for seed in range(8):
            made.submit(**training(f"t{seed}", 5000, 1, 1, 1.0, seed))
        time.sleep(15)
        assert made.process is not None
        process = psutil.Process(made.process.pid)
        for pages in (0, 1, 20):
            readers = [_Page(made.address, made.token) for _ in range(pages)]
            time.sleep(3)
            before = process.cpu_times()
            time.sleep(COST_S)
            after = process.cpu_times()
            used = after.user + after.system - before.user - before.system
            got = sum(reader.bytes for reader in readers)
            say(what="daemon, 8 trainings, an epoch a second", pages=pages, cpu_s=used, over_s=COST_S, sent_bytes=got)
            for reader in readers:
                reader.close()


class _Page:
    """What an open page asks of the daemon: the timeline once, then the live stream."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}
        self.bytes = 0
        self._connection = http.client.HTTPConnection(*address)
        self._connection.request("GET", "/v1/timeline", headers=self._headers)
        self._connection.getresponse().read()
        self._connection.request("GET", "/v1/live", headers=self._headers)
        self._answer = self._connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(http.client.HTTPException, OSError):
            while data := self._answer.read1(65536):
                self.bytes += len(data)

    def close(self) -> None:
        self._connection.sock.shutdown(2)


def main(wanted: list[str]) -> None:
    by_name: dict[str, Callable[[Any], None]] = {"lanes": lanes, "paint": paint, "rows": rows, "lag": lag}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        for name, measure in by_name.items():
            if not wanted or name in wanted:
                measure(browser)
        browser.close()
    if not wanted or "cost" in wanted:
        cost()


if __name__ == "__main__":
    main(sys.argv[1:])
