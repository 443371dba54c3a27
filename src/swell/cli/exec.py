"""`swell exec JOB -- CMD`: a command beside a running job, in its directory and environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, home_option
from swell.cli.missing import Word
from swell.cli.numbers import Count
from swell.client.http import Client
from swell.core.errors import SwellError

MISSING = "Which command? swell exec 7 -- nvidia-smi, or swell exec 7 -- bash for a shell beside the job"


class CannotExec(SwellError):
    """The command was not started; the message says why and what to do."""


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("--rank", type=Count(0), default=0, show_default=True, help="Beside this process of the job.")
@click.argument("job", type=completion.JOB)
@click.argument("command", nargs=-1, required=True, type=Word(MISSING))
@home_option
def exec(home: Path | None, rank: int, job: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the directory and environment of a running JOB, with its GPUs: swell exec 7 -- nvidia-smi

    One argument is a shell line. It is not part of the job: it is yours, and goes on when the job ends.
    """
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("which command? swell exec 7 -- nvidia-smi")
    request = _request(client(home), job, rank)
    argv = ("/bin/sh", "-c", words[0]) if len(words) == 1 else words
    try:
        os.chdir(request["cwd"])
        os.execvpe(argv[0], argv, request["env"])  # noqa: S606 - it is what the user typed
    except FileNotFoundError as error:
        raise CannotExec(f"there is no program {argv[0]!r} on the job's PATH ({error.strerror})") from error


def _request(found: Client, ref: str, rank: int) -> dict[str, Any]:
    """What the job's process was started with, from the directory of its run."""
    view = found.job(ref)
    job = view["id"]
    if view["state"] != "running" or not view["where"]:
        raise CannotExec(f"job {job} is {view['state']}: exec needs one that runs; `swell ls --running` lists those")
    if view["spec"]["image"]:
        raise CannotExec(f"job {job} runs in a container; this version cannot exec there. Use `swell logs {job}`")
    _check_here(found, view)
    place = found.get(f"/v1/jobs/{job}/files")["logs"]["path"]
    path = Path(place, view["run"], str(rank), "request.json")
    try:
        request: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CannotExec(f"job {job} has no process {rank} on this machine; leave out --rank for the first") from None
    except PermissionError:
        raise CannotExec(f"job {job} belongs to another account of this machine; only that one may do this") from None
    return request


def _check_here(found: Client, view: dict[str, Any]) -> None:
    names = {place.partition(":")[0] for place in view["where"]}
    nodes = {node["name"]: node for node in found.get("/v1/nodes")["nodes"]}
    elsewhere = sorted(name for name in names if nodes.get(name, {}).get("executor", "local") != "local")
    if elsewhere or not found.address.local:
        where = ", ".join(elsewhere) or "the daemon's machine"
        raise CannotExec(
            f"job {view['id']} runs on {where}; this version can exec only on the machine where it is typed. Log in "
            f"there and use `swell exec` on that machine, or look at `swell logs {view['id']}`"
        )
