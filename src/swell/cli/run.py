"""`swell run -- CMD`: a command as a job, its output here; Ctrl-C leaves it running."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.asked_for import left_out_note
from swell.cli.common import client_or_start, connected, print_json
from swell.cli.follow import end_line, exit_code, follow
from swell.cli.missing import Word
from swell.cli.sending import described, needs_gpus, prepare, send
from swell.cli.submit import snapshot_option, tell
from swell.cli.tables import outputs_line
from swell.cli.terminal import safe, say
from swell.client.http import Client

EXIT_DETACHED = 130
OUTPUTS_S = 60.0
"""So long `run` waits for outputs to be copied; they are copied anyway."""


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--gpus", default="1", show_default=True, help="4 (fixed), 1-4 (elastic), 0 (none).")
@click.option("--name", help="Left out: made from the command.")
@click.option("--priority", shell_complete=completion.PRIORITIES, help="low, normal, high, urgent or a number.")
@click.option("-d", "--detach", is_flag=True, help="Do not wait: print the id and return.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; may be repeated.")
@click.option("--env-from-shell", multiple=True, metavar="NAME", help="Variable of this shell; may be repeated.")
@click.option("--python", help="What `python` is for it: an interpreter, or the directory of an environment.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="Variable of this shell, never shown.")
@click.option(
    "--launcher",
    shell_complete=completion.LAUNCHERS,
    help="single, per-node, per-gpu, torchrun, horovod, mpi or ps.",
)
@click.option("--gpu-type", "gpu_types", multiple=True, help="Only GPUs of this type; may be repeated.")
@click.option("--gpu-memory", help="Memory needed on each GPU, such as 6GiB.")
@click.option("--share", is_flag=True, help="May share one GPU with other jobs.")
@click.option("--cpus", type=int, help="CPU cores of each process.")
@click.option("--memory", help="Memory of each process, such as 16GiB.")
@click.option("--epochs", type=int, help="How many epochs it trains.")
@click.option("--steps", type=int, help="How many steps it trains, instead of epochs.")
@click.option("--checkpoint-dir", help="Where it keeps checkpoints: it can then be stopped and go on later.")
@click.option("--uses-library", is_flag=True, help="It calls swell's library: it can be stopped and go on later.")
@click.option("--preemptible", shell_complete=completion.PREEMPTIBLE, help="auto, restart or never.")
@click.option("--retries", type=int, help="Attempts after a failure.")
@click.option("--time-limit", help="Of running time, such as 2h.")
@click.option("--after", "depends_on", multiple=True, metavar="JOB", help="Wait until this job has completed.")
@click.option("--after-any", multiple=True, metavar="JOB", help="Wait until this job has ended, however it ends.")
@click.option("--after-failure", multiple=True, metavar="JOB", help="Run only if this job does not complete.")
@click.option("--output", "outputs", multiple=True, metavar="PATTERN", help="Copied back at its end; may be repeated.")
@click.option("--outputs-to", metavar="DIR", help="Where outputs are copied to.  [default: here]")
@click.option("--array", help="Number of copies, with ${index} in command and env.")
@click.option("--team", help="Whose quota it counts against.")
@click.option("--image", help="Container image to run in.")
@click.option("--include", multiple=True, metavar="PATTERN", help="Take this into the snapshot although it is ignored.")
@snapshot_option
@click.argument("command", nargs=-1, required=True, type=Word("Which command? swell run --gpus 1-4 -- python train.py"))
@connected
def run(home: Path | None, as_json: bool, detach: bool, snapshot: bool, **said: Any) -> None:
    """Run COMMAND as a job and show its output. Ctrl-C leaves it running.

    One argument is a shell line: swell run -- 'make data && python train.py'
    """
    document = job_document(said)
    client = client_or_start(home, needs_gpus=needs_gpus(document))
    _name_last(client, document)
    packed = prepare(client, [document], snapshot=snapshot, home=home)
    accepted = send(client, [document])
    if detach or len(accepted["jobs"]) > 1:
        tell(accepted, packed, as_json=as_json)
        return
    job = accepted["jobs"][0]["id"]
    say(f"job {job} submitted  Ctrl-C detaches" + (f"  {described(packed)}" if packed else ""), err=True)
    for note in accepted["notes"]:
        say(f"note: {note}", err=True)
    sys.exit(watch(client, job, as_json=as_json))


def _name_last(client: Client, document: dict[str, Any]) -> None:
    """`last` is a job here too, and none in a job file: there it would be another one at each submission."""
    for field in ("depends_on", "after_any", "after_failure"):
        if "last" in document.get(field, ()):
            last = str(client.job("last")["id"])
            document[field] = [last if ref == "last" else ref for ref in document[field]]


def watch(client: Client, job: int, *, as_json: bool, tail: int = 0) -> int:
    """Show the job's output (of what is there, the last `tail` bytes; 0: all) until it ends or the person leaves."""
    try:
        end = follow(client, job, tail=tail, out=sys.stderr if as_json else sys.stdout)
    except KeyboardInterrupt:
        say(f"\ndetached; job {job} goes on.  swell logs -f {job}  |  swell cancel {job}", err=True)
        return EXIT_DETACHED
    say(end_line(end), err=True)
    kept = client.get(f"/v1/jobs/{job}/files")
    view = copied(client, job)
    if note := left_out_note(view, kept):
        say(safe(f"note: {note}"), err=True)
    if as_json:
        print_json({**view, "kept": kept})
    elif view["outputs"]:
        say(safe(outputs_line(view["outputs"])), err=True)
    elif wrote(kept):
        say(f"files in {kept['directory']}  |  swell fetch {job}", err=True)
    if not as_json and kept["checkpoints"]["files"]:
        say(f"checkpoints in {kept['checkpoints']['path']}  |  swell fetch {job} --checkpoints", err=True)
    return exit_code(end)


def copied(client: Client, job: int) -> dict[str, Any]:
    """The job, once its outputs have been copied if it has any: that is done right after its end."""
    deadline = time.monotonic() + OUTPUTS_S
    while True:
        view = client.job(job)
        if not view["spec"]["outputs"] or view["outputs"] or time.monotonic() > deadline:
            return view
        time.sleep(0.1)


def wrote(kept: dict[str, Any]) -> bool:
    """Is there anything in its working copy that was not submitted? Not asked of a daemon elsewhere."""
    from swell.jobfile.outputs import wrote_anything

    submitted = Path(kept["submitted"]) if kept["submitted"] else None
    return wrote_anything(Path(kept["working_copy"]["path"]), submitted)


def job_document(said: dict[str, Any]) -> dict[str, Any]:
    """Options -> a job file. Options that are unset are left out, so that the schema's defaults hold."""
    command = said.pop("command")
    gpus = _gpus(said)
    document = {key: _listed(value) for key, value in said.items() if value not in (None, (), False, "")}
    document["command"] = command[0] if len(command) == 1 else list(command)
    document["gpus"] = gpus
    document["env"] = dict(_pair(item) for item in document.get("env", ()))
    return document


def _gpus(said: dict[str, Any]) -> Any:
    amount, types, memory, share = (said.pop(key) for key in ("gpus", "gpu_types", "gpu_memory", "share"))
    if not (types or memory or share):
        return amount
    low, _, high = amount.partition("-")
    if not (low.isdecimal() and (high or low).isdecimal()):
        raise click.BadParameter(f"{amount!r} is not a number of GPUs; write 4, or 1-4", param_hint="--gpus")
    found: dict[str, Any] = {"min": int(low), "max": int(high or low), "types": list(types), "share": share}
    return {**found, "memory": memory} if memory else found


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} has no value; write NAME=VALUE", param_hint="--env")
    return name, value
