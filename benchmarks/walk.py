"""Which files of the package does one job pass through, from `swell submit` to its end, and in which order?

    python -m benchmarks.walk > walk.txt

A real daemon with one slot runs two jobs: the first trains with the library, the second has a higher priority, so that
the first is stopped at a checkpoint and resumes when the second has ended. Every process (command line, daemon, shim,
training) notes each file of the package when a function of it is called for the first time; what only starting the
daemon needs is left out. Runs in a copy of `src`, since a shim is started without site-packages and its own file has to
load the notes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 180.0
FUTURE = "from __future__ import annotations\n"
TRACER = """
def _trace():
    import os, signal, sys, threading, time
    out = os.open({notes!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen = set()
    def enter(frame, event, _):
        code = frame.f_code
        path = code.co_filename
        if event != "call" or not code.co_flags & 1 or path in seen:
            return
        seen.add(path)
        _, found, file = path.rpartition("/swell/sdk/")  # the library is sent to where jobs run
        if not found:
            _, found, file = path.partition({root!r})
        if found:
            who = " ".join(sys.argv[:3]) if hasattr(sys, "argv") else ""
            file = "sdk/" + file if "sdk" in found else file
            line = (time.time_ns(), os.getpid(), who, file, code.co_name)
            os.write(out, ("\\t".join(map(str, line)) + "\\n").encode())
    signal.signal(signal.SIGUSR2, lambda *_: seen.clear())
    threading.setprofile(enter)
    sys.setprofile(enter)
_trace()
"""
FIRST = """
name: first
command: python train.py
gpus: 1
epochs: 40
priority: low
env:
  PYTHONPATH: {source}
"""
SECOND = """
name: second
command: "true"
gpus: 1
priority: urgent
"""
TRAIN = """
import pathlib, time, swell
with swell.training() as run:
    done = run.load(default=0)
    for epoch in run.epochs():
        time.sleep(0.2)
        pathlib.Path(f"{files}/epoch-{epoch}").touch()
        run.log(loss=1.0 / (epoch + 1))
        done += 1
        run.save(done)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The first call into a file by a process."""

    at_ns: int
    process: str
    file: str
    function: str


def traced_source(directory: Path) -> tuple[Path, Path]:
    """(a copy of `src` whose processes write notes, the notes)."""
    source, notes = directory / "src", directory / "notes.tsv"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    tracer = TRACER.format(notes=str(notes), root=str(source / "swell") + "/")
    (source / "sitecustomize.py").write_text(tracer)
    shim = source / "swell" / "shim" / "shim.py"
    shim.write_text(shim.read_text().replace(FUTURE, FUTURE + tracer, 1))
    return source, notes


class Cluster:
    """A daemon of the traced copy, and the command line that talks to it."""

    def __init__(self, directory: Path, source: Path) -> None:
        self.files = directory / "files"
        self.files.mkdir()
        for name, text in (("first.yaml", FIRST), ("second.yaml", SECOND), ("train.py", TRAIN)):
            filled = text.replace("{source}", str(source)).replace("{files}", str(self.files))
            (self.files / name).write_text(filled)
        self.home = directory / "home"
        search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PYTHONPATH": str(source), "SWELL_HOME": str(self.home), "PATH": search}
        command = [sys.executable, "-m", "swell", "serve", "--home", str(self.home), "--gpus", "1"]
        self.daemon = subprocess.Popen(command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def swell(self, *words: str) -> str:
        command = [sys.executable, "-m", "swell", *words]
        done = subprocess.run(command, env=self.env, cwd=self.files, capture_output=True, text=True, check=False)
        return done.stdout

    def wait_for(self, path: Path) -> None:
        ends_s = time.monotonic() + LIMIT_S
        while not path.exists():
            if time.monotonic() > ends_s:
                raise SystemExit(f"{path.name} is not there after {LIMIT_S:.0f} s")
            time.sleep(0.1)


def live(cluster: Cluster) -> int:
    """The life of the first job; returns when it began, in nanoseconds."""
    cluster.wait_for(cluster.home / "daemon.json")
    cluster.swell("ls")  # the daemon answers
    cluster.daemon.send_signal(signal.SIGUSR2)  # forget what starting needed
    began_ns = time.time_ns()
    cluster.swell("submit", "first.yaml")
    cluster.wait_for(cluster.files / "epoch-2")
    cluster.swell("submit", "second.yaml")
    cluster.swell("wait", "1")
    return began_ns


def entries(notes: Path, began_ns: int) -> Iterator[Entry]:
    for line in notes.read_text().splitlines():
        at, _, who, file, function = line.split("\t")
        if int(at) >= began_ns:
            yield Entry(at_ns=int(at), process=_process(who, file), file=file, function=function)


def _process(words: str, file: str) -> str:
    if "train.py" in words:
        return "training"
    if "shim" in words or (not words and file.startswith("shim/")):
        return "shim"
    if "helper" in words:
        return "helper"
    return "daemon" if " serve" in words or not words else "command line"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="walk-") as name:
        directory = Path(name)
        source, notes = traced_source(directory)
        cluster = Cluster(directory, source)
        try:
            began_ns = live(cluster)
        finally:
            cluster.daemon.terminate()
            cluster.daemon.wait(timeout=60)
        walk = sorted(entries(notes, began_ns), key=lambda entry: entry.at_ns)
    first = {(entry.process, entry.file): entry for entry in reversed(walk)}
    ordered = sorted(first.values(), key=lambda entry: entry.at_ns)
    for number, entry in enumerate(ordered, start=1):
        print(f"{number:3}  {(entry.at_ns - began_ns) / 1e9:7.2f} s  {entry.process:12}  {entry.file}:{entry.function}")
    files = {entry.file for entry in ordered}
    print(f"{len(files)} files of {sum(1 for _ in (ROOT / 'src' / 'swell').rglob('*.py'))}")
    print(Counter(file.split("/")[0] for file in files).most_common())


if __name__ == "__main__":
    main()
