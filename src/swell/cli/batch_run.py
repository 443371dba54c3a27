"""`swell batch FILE`: from the lines of a file to jobs that are followed to their end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from swell.cli.batch_bring import Bringing
from swell.cli.batch_follow import Batch, Follower, follow_batch
from swell.cli.batch_machines import connect
from swell.cli.batch_patterns import from_here, tell_unmatched
from swell.cli.batch_results import Results
from swell.cli.batch_room import check_fits, kinds_of, show_room
from swell.cli.common import connected, plural, print_json
from swell.cli.dry_run import dry_run
from swell.cli.node_add import pairs
from swell.cli.numbers import Count
from swell.cli.patience import patiently
from swell.cli.sending import described, prepare, send
from swell.cli.terminal import safe, say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.core.errors import SwellError
from swell.jobfile.batchfile import BatchLine, Requirements, job_document, part_of_gpu, read_batch
from swell.jobfile.choosing import Wanted
from swell.jobfile.units import parse_size_mib

EXIT_INTERRUPTED = 130
View = dict[str, Any]
Command = Callable[..., Any]


class CannotReserve(SwellError):
    """--reserve has no one meaning on these machines."""


class Several(click.Command):
    """`--machines A B` is `--machines A --machines B`, as users of ml-scheduler write it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        many = {name for p in self.params if isinstance(p, click.Option) and p.multiple for name in p.opts}
        return super().parse_args(ctx, spread(args, many))


def spread(args: Sequence[str], many: set[str]) -> list[str]:
    """Each word behind one of these options, up to the next option, is a value of it."""
    found: list[str] = []
    option, values = "", 0
    for arg in args:
        if arg.startswith("-") and arg != "-":
            option, values = (arg, 0) if arg in many else ("", 0)
            found.append(arg)
            continue
        if option and values:
            found.append(option)
        values += 1
        found.append(arg)
    return found


def _size(_: click.Context, __: click.Parameter, text: str) -> int:
    try:
        return parse_size_mib(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _part(_: click.Context, __: click.Parameter, text: str) -> float:
    try:
        return part_of_gpu(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


NO_BATCH = {
    ".py": "`swell run -- python {}`",
    **dict.fromkeys((".yaml", ".yml", ".json"), "`swell submit {}`"),
}
"""By the ending of a file, what its owner meant: its lines would run as commands of a shell."""

results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("job_results"),
    show_default=True,
    help="Where results are brought.",
)
back_option = click.option(
    "--copy-back", "back", multiple=True, metavar="PATTERN...", help="These come back.  [default: all new]"
)
OPTIONS = (
    click.option(
        "--machines",
        "--machine",
        "machines",
        multiple=True,
        metavar="M...",
        help="Only these; new ones are added first.",
    ),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only nodes with this label."),
    click.option("--gpus", type=Count(1), help="GPUs of each job.  [default: 1, with --reserve all]"),
    click.option("--no-gpu-required", is_flag=True, help="Jobs need no GPU."),
    click.option("--memory-required", default="0", callback=_size, help="Memory of each job: MiB, or 8GiB."),
    click.option("--gpu-memory-required", default="0", callback=_size, help="Memory on its GPU: MiB, or 3GiB."),
    click.option("--no-reserve-gpu", is_flag=True, help="Several jobs per GPU, by GPU memory and utilisation."),
    click.option("--num-cpus", type=Count(0), default=1, show_default=True, help="CPU cores of each job."),
    click.option("--gpu-utilization", default="0", callback=_part, help="Part of a GPU's compute: 0.5 is half."),
    click.option("--reserve", is_flag=True, help="Each job has a whole machine, with its GPUs."),
    click.option("--overwrite", is_flag=True, help="Run lines again whose results are here, and replace those."),
    click.option("--retry-failed", is_flag=True, help="Run lines again that failed; replaces their results."),
    click.option("--dry-run", "only_show", is_flag=True, help="Show what would run where; submit nothing."),
    click.option("--verbose", is_flag=True, help="Also the machines, and why jobs wait."),
    click.option("--detach", is_flag=True, help="Submit and return; `swell batch attach` follows."),
    results_option,
)


def batch_options(command: Command) -> Command:
    """What `swell batch`, `execute_batch` and `execute_remote` have in common."""
    for option in reversed(OPTIONS):
        command = option(command)
    return connected(command)


@click.command(cls=Several)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--copy", "forward", multiple=True, metavar="PATTERN...", help="Only these go to the jobs.  [default: .]")
@click.option("--exclude", multiple=True, metavar="PATTERN...", help="These do not go to the jobs.")
@back_option
@batch_options
def run(file: Path, **said: Any) -> None:
    """Run each line of FILE as a job of its own, and bring its files and output into job_results. Full bash syntax.

    A line's own needs stand in a comment behind it: python train.py #swell gpus=2 memory=8GiB

    Lines whose results are here already are skipped. Ctrl-C stops the jobs and still brings what they left."""
    sys.exit(run_lines(read_file(file), **said))


def read_file(file: Path) -> tuple[BatchLine, ...]:
    return read_batch(_text(file), _named(file))


def _text(file: Path) -> str:
    if file.suffix in NO_BATCH:
        raise click.BadParameter(
            f"{file} has no shell command per line; {NO_BATCH[file.suffix].format(file)} runs it", param_hint="FILE"
        )
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise click.BadParameter(f"cannot read {file}: {why}", param_hint="FILE") from error


def _named(file: Path) -> str:
    """As seen from here; a file elsewhere by its last part, so that its jobs keep their names."""
    try:
        return str(file.absolute().relative_to(Path.cwd()))
    except ValueError:
        return file.name


def run_lines(lines: Sequence[BatchLine], *, home: Path | None, as_json: bool, **said: Any) -> int:
    """All of it; the exit code."""
    forward, exclude, back = (from_here(said[name]) for name in ("forward", "exclude", "back"))
    client, nodes = connect(home, said["machines"])
    results = Results(root=said["results"], patterns=back)
    results.check_place()
    needs = requirements(client, said, nodes)
    todo = _to_do(client, lines, results, overwrite=said["overwrite"], retry_failed=said["retry_failed"])
    if not todo:
        say("nothing to run: all lines have results", err=True)
        return 0
    documents = [job_document(line, needs) for line in todo]
    kinds = kinds_of(client, todo, documents)
    if not as_json:
        show_room(client, kinds, verbose=said["verbose"])
    wanted = Wanted(only=forward, leave_out=(*exclude, f"/{os.path.relpath(results.root)}"))
    if said["only_show"]:
        return dry_run(client, documents, as_json=as_json)
    check_fits(kinds)
    packed = prepare(client, documents, snapshot=True, home=home, wanted=wanted)
    tell_unmatched(forward, packed)
    accepted = send(client, documents)
    batch = Batch(client=client, name=accepted["batch"], job=0 if accepted["batch"] else accepted["ids"][0])
    if said["detach"]:
        _tell_detached(batch, accepted, as_json=as_json)
        return 0
    say(f"batch {batch.ref}: {plural(len(todo), 'job')}" + (f"  {described(packed)}" if packed else ""), err=True)
    titles = {line.name: f"line {line.number}: {line.command}" for line in todo}
    return watched(batch, Follower(lines=titles, verbose=said["verbose"]), results, as_json=as_json, keep=False)


def requirements(client: Client, said: dict[str, Any], nodes: Sequence[str] = ()) -> Requirements:
    """Options -> what each job needs. `nodes`: names of the only ones that the jobs may use."""
    if said["gpu_utilization"] and not said["no_reserve_gpu"]:
        say("note: each job has its GPU to itself; --no-reserve-gpu lets several share one", err=True)
    if said["no_reserve_gpu"] and not (said["gpu_utilization"] or said["gpu_memory_required"]):
        say("note: jobs share a GPU by what they need of it; name --gpu-memory-required or --gpu-utilization", err=True)
    labels = pairs(said["labels"])
    whole = _whole_machine(client, labels, nodes) if said["reserve"] else None
    return Requirements(
        gpus=0 if said["no_gpu_required"] else said["gpus"] or (whole.gpus if whole else 1),
        cpus=whole.cores if whole else said["num_cpus"],
        memory_mib=said["memory_required"],
        gpu_memory_mib=said["gpu_memory_required"],
        utilisation=said["gpu_utilization"],
        share=said["no_reserve_gpu"],
        labels=labels,
        nodes=nodes,
    )


class Whole(NamedTuple):
    """What a job takes that has a machine to itself."""

    cores: int
    gpus: int


def _whole_machine(client: Client, labels: dict[str, str], names: Sequence[str]) -> Whole:
    """A job has a machine to itself by asking for all of it: the machines must be alike."""
    found = [node for node in client.get("/v1/nodes")["nodes"] if not names or node["name"] in names]
    nodes = [node for node in found if labels.items() <= node["labels"].items()]
    sizes = {node["name"]: Whole(max(node["cpus"], node["gpus_total"]), node["gpus_total"]) for node in nodes}
    if len(set(sizes.values())) != 1:
        shown = ", ".join(f"{name} {size.cores} and {size.gpus}" for name, size in sizes.items()) or "none"
        raise CannotReserve(
            f"--reserve needs machines with the same number of cores and of GPUs, and these have: {shown}; choose some "
            "of them with --machines or --label KEY=VALUE, or write --num-cpus and --gpus"
        )
    return next(iter(sizes.values()))


def _to_do(
    client: Client, lines: Sequence[BatchLine], results: Results, *, overwrite: bool, retry_failed: bool
) -> list[BatchLine]:
    """Lines to run; those that have results are reported first."""
    todo = []
    for line in lines:
        if not results.exist(line.name) or overwrite or (retry_failed and _failed(client, line.name)):
            todo.append(line)
        else:
            what = "skipping evaluation: delete them, or use --overwrite or --retry-failed, to run it again"
            say(safe(f"WARNING: job results already exist for line {line.number} ({line.name}), {what}"), err=True)
    return todo


def _failed(client: Client, name: str) -> bool:
    try:
        return bool(client.job(name)["state"] in ("failed", "lost", "cancelled"))
    except Refused as refused:
        if refused.status == 404:
            return False
        raise


def _tell_detached(batch: Batch, accepted: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(accepted)
        return
    say(f"batch {batch.ref}: {plural(len(accepted['ids']), 'job')}")
    say(f"next:  swell batch attach {batch.ref}  |  swell batch status {batch.ref}  |  swell batch cancel {batch.ref}")


def watched(batch: Batch, follower: Follower, results: Results, *, as_json: bool, keep: bool) -> int:
    """Follow to the end and bring results; Ctrl-C stops the jobs first. `keep`: results that are here stay."""
    missed: list[str] = []
    follower.to_stderr = as_json

    def collect(client: Client, view: View) -> None:
        if keep and results.exist(view["name"]):
            return
        try:
            patiently(lambda: results.collect(client, view), quiet=True)
        except (SwellError, OSError) as error:
            missed.append(view["name"])
            say(safe(f"WARNING: results of {view['name']} were not brought: {error}"), err=True)

    interrupted, bringing = False, Bringing(batch.client, collect)
    try:
        follow_batch(batch, follower, bringing)
    except KeyboardInterrupt:
        interrupted = True
        say("\nstopping the jobs; what they left is brought. Ctrl-C again leaves at once", err=True)
        patiently(batch.cancel, f"swell batch cancel {batch.ref}")
        follow_batch(batch, follower, bringing)
    _conclude(batch, follower, results, missed, as_json=as_json)
    return EXIT_INTERRUPTED if interrupted else 1 if follower.failed or missed else 0


def _conclude(batch: Batch, follower: Follower, results: Results, missed: Sequence[str], *, as_json: bool) -> None:
    lost = (
        f"; results of {plural(len(missed), 'job')} were not brought: swell batch fetch {batch.ref}" if missed else ""
    )
    say(safe(f"batch {batch.ref}: {follower.summary()}; results in {results.root}{lost}"), err=True)
    if as_json:
        print_json({"batch": batch.ref, "jobs": batch.views(), "results": str(results.root), "missed": list(missed)})
