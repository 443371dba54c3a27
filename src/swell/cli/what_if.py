"""`swell what-if`: what a change would do to the jobs there are. Nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json, table
from swell.cli.sending import as_if_sent
from swell.cli.submit import in_files, read_jobs
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.jobfile.units import format_duration

SHOWN = 20
BUSY = 503
AGAIN_S = 5.0


@click.command("what-if")
@click.option("--policy", default="", shell_complete=completion.policies, help="Under another policy.")
@click.option("--placer", default="", help="With another placer.")
@click.option("--add-nodes", default="", metavar="2x8xA100", help="With more nodes: how many, GPUs each, type.")
@click.option("--remove-node", "remove_nodes", multiple=True, metavar="NODE", help="Without this node.")
@click.option("--submit", "files", multiple=True, type=click.Path(exists=True, path_type=Path), help="With these jobs.")
@connected
def what_if(
    home: Path | None,
    as_json: bool,
    policy: str,
    placer: str,
    add_nodes: str,
    remove_nodes: tuple[str, ...],
    files: tuple[Path, ...],
) -> None:
    """See when every job would start and end, as things are and after a change."""
    if not (policy or placer or add_nodes or remove_nodes or files):
        raise click.UsageError("say what would change: --policy, --placer, --add-nodes, --remove-node or --submit")
    daemon = client(home)
    read = [job for path in files for job in read_jobs(path)]
    as_if_sent(daemon, [job.document for job in read])
    body = {
        "policy": policy,
        "placer": placer,
        "add_nodes": add_nodes,
        "remove_nodes": list(remove_nodes),
        "submit": [job.document for job in read],
    }
    try:
        view = _asked(daemon, body)
    except Refused as refused:
        raise (in_files(refused, read, []) if refused.problems else refused) from refused
    if as_json:
        print_json(view)
        return
    _tell(view)


def _asked(daemon: Client, body: Mapping[str, object]) -> dict[str, Any]:
    """The answer; a daemon that has too much to work out is asked once more."""
    try:
        answer: dict[str, Any] = daemon.post("/v1/what-if", body)
    except Refused as error:
        if error.status != BUSY:
            raise
        say(f"{error}; asking once more in {AGAIN_S:.0f} s", err=True)
        time.sleep(AGAIN_S)
        answer = daemon.post("/v1/what-if", body)
    return answer


def _tell(view: dict[str, Any]) -> None:
    before, after = view["before"], view["after"]
    if not view["jobs"]:
        say("no job is waiting or running; there is nothing to compare")
        return
    rows = [(name, _time(before[key]), _time(after[key])) for name, key in _SUMMARY]
    say(table(("", "NOW", "THEN"), rows))
    jobs = [(str(j["job"]), j["name"], _when(j["before"]), _when(j["after"])) for j in view["jobs"][:SHOWN]]
    say(table(("ID", "NAME", "ENDS NOW", "ENDS THEN"), jobs))
    if len(view["jobs"]) > SHOWN:
        say(f"… and {len(view['jobs']) - SHOWN} more; --json has them all")


_SUMMARY = (("mean until done", "mean_s"), ("p99 until done", "p99_s"), ("last one done", "last_s"))


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _when(outlook: dict[str, float] | None) -> str:
    return "-" if outlook is None else f"in {format_duration(outlook['ends_in_s'])}"
