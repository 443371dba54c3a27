"""`swell tensorboard JOB…`: TensorBoard over what jobs write, for as long as they run."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json
from swell.cli.event_files import EventFiles
from swell.cli.fetch import located
from swell.cli.numbers import PORT
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.core.errors import SwellError
from swell.jobfile.units import parse_duration_s

CHECK_S = 2.0
ENDED = ("completed", "failed", "cancelled", "lost")


class NoTensorBoard(SwellError):
    """It is not installed, or there is nothing to show."""


@click.command()
@click.argument("jobs", nargs=-1, required=True, type=completion.JOB)
@click.option("--logdir", default="", help="Directory of the logs, within each job's files.  [default: all its files]")
@click.option("--port", type=PORT, default=6006, show_default=True, help="Port on this machine.")
@click.option("--linger", default="10m", show_default=True, help="How long to stay after the last job has ended.")
@connected
def tensorboard(home: Path | None, as_json: bool, jobs: tuple[str, ...], logdir: str, port: int, linger: str) -> None:
    """Start TensorBoard on what JOBS write; it stops by itself after they have ended, or at Ctrl-C."""
    argv = program()
    found = client(home)
    views = [found.job(job) for job in jobs]
    with tempfile.TemporaryDirectory(prefix="swell-tensorboard-") as folder:
        far = [files for view in views if (files := from_afar(found, view, logdir, Path(folder)))]
        here = {files.job: files.target for files in far}
        spec = ",".join(f"{_label(view)}:{_directory(found, view, logdir, here)}" for view in views)
        if as_json:
            print_json({"url": f"http://127.0.0.1:{port}", "jobs": [view["id"] for view in views], "logdir_spec": spec})
        say(
            f"TensorBoard at http://127.0.0.1:{port} until {linger} after {_ids(views)} ended; Ctrl-C ends it", err=True
        )
        with subprocess.Popen([*argv, "--logdir_spec", spec, "--host", "127.0.0.1", "--port", str(port)]) as process:
            try:
                _watch(found, [int(view["id"]) for view in views], far, parse_duration_s(linger), process)
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10.0)
                process.kill()


def program() -> list[str]:
    if installed := shutil.which("tensorboard"):
        return [installed]
    if importlib.util.find_spec("tensorboard") is not None:
        return [sys.executable, "-m", "tensorboard.main"]
    raise NoTensorBoard("TensorBoard is not installed here; `pip install tensorboard` installs it")


def from_afar(found: Client, view: dict[str, Any], logdir: str, folder: Path) -> EventFiles | None:
    """Brought here for the first time, if the job's files are elsewhere."""
    if not found.get(f"/v1/jobs/{view['id']}/files")["machine"] and found.address.local:
        return None
    files = EventFiles(job=int(view["id"]), logdir=logdir, target=folder / str(view["id"]))
    files.target.mkdir()
    files.refresh(found)
    return files


def _directory(found: Client, view: dict[str, Any], logdir: str, here: Mapping[int, Path]) -> str:
    """Where TensorBoard looks: what was brought, or the job's own directory."""
    base = here.get(int(view["id"])) or located(found, view["id"])["directory"]
    directory = Path(base, logdir)
    if "," in str(directory) or ":" in str(directory):
        raise NoTensorBoard(f"TensorBoard cannot be given {directory}: its name has a comma or a colon")
    return str(directory)


def _label(view: dict[str, Any]) -> str:
    return f"{view['name']}-{view['id']}"


def _ids(views: list[dict[str, Any]]) -> str:
    numbers = ", ".join(safe(str(view["id"])) for view in views)
    return f"job {numbers} has" if len(views) == 1 else f"jobs {numbers} have"


def _watch(
    found: Client, jobs: list[int], far: Sequence[EventFiles], linger_s: float, process: subprocess.Popen[bytes]
) -> None:
    ended_s: float | None = None
    while process.poll() is None:
        for files in far:
            files.keep_up(found)
        over = all(found.job(str(job))["state"] in ENDED for job in jobs)
        ended_s = (ended_s or time.monotonic()) if over else None
        if ended_s is not None and time.monotonic() >= ended_s + linger_s:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CHECK_S)
    if process.returncode:
        raise NoTensorBoard(f"TensorBoard ended with code {process.returncode}; what it printed is above")
