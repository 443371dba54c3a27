"""`swell sim`: what a policy would do to a cluster, before it is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from swell.cli.common import plural
from swell.cli.missing import Verbs
from swell.cli.numbers import PART, Amount, Count
from swell.cli.terminal import say
from swell.core.spelling import instead_of
from swell.jobfile.units import parse_duration_s

if TYPE_CHECKING:
    from rich.table import Table

    from swell.core.snapshot import Options
    from swell.sim.simulate import Case, OptionValue, Outcome

COLUMNS = (
    ("mean_jct_s", "mean s", 0),
    ("median_jct_s", "median s", 0),
    ("p99_jct_s", "p99 s", 0),
    ("makespan_s", "makespan s", 0),
    ("restarts_per_job", "restarts/job", 2),
    ("gpu_hours_per_job", "GPU h/job", 2),
    ("lost_gpu_hours", "lost GPU h", 1),
    ("worst_rho", "worst ρ", 2),
    ("rho_above_1", "ρ > 1", 3),
    ("wall_s", "wall s", 1),
)


Number = TypeVar("Number", int, float)
GENERAL = ("starvation_s", "min_run_s", "move_interval_s", "max_moves", "share_overload_milli")
WHICH = ("workload", "policy", "batch", "load")
FIRST_LEFT_OUT = (
    *("wall s", "batch", "load", "ρ > 1", "lost GPU h", "GPU h/job"),
    *("median s", "restarts/job", "makespan s", "p99 s"),
)
"""Where a terminal is narrow; summary.json has all."""
PADDING = 2
WIDE = 160
"""Columns of a table that goes to a file or a pipe."""


@click.group(cls=Verbs)
def sim() -> None:
    """Simulate policies on a workload, compare them, and draw what happened."""


@sim.command(short_help="Run policies on workloads.")
@click.option(
    "--workload", "workload", type=click.Path(exists=True, path_type=Path), help="File with the jobs; more may follow."
)
@click.argument("more", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", default="auto", help="pollux, sia, jobs, log, philly, helios or alibaba.")
@click.option(
    "--profiles", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Measured applications."
)
@click.option("--cluster", default="", help="Nodes × GPUs, with types: 16x4 or 6x4xT4,3x8xA100. Default: what fits.")
@click.option("--policy", "policies", default="", help="One or more, joined by commas. Default: the default policy.")
@click.option("--placer", default="", help="Default: the default placer.")
@click.option(
    "--interval",
    "interval_s",
    type=Amount(0),
    default=60.0,
    show_default=True,
    help="Seconds between decisions; 0: at each event.",
)
@click.option(
    "--restart-cost", "restart_s", type=Amount(0), default=30.0, show_default=True, help="Seconds a (re)start takes."
)
@click.option(
    "--checkpoint-every",
    default="0",
    show_default=True,
    metavar="TIME",
    help="Jobs save only so often (30m): a stop waits for that. 0: wherever they are asked to stop.",
)
@click.option("--batch", type=click.Choice(["fixed", "adaptive"]), default="fixed", show_default=True)
@click.option(
    "--clairvoyant/--honest", default=False, help="Policies know true speeds, or what a daemon would know (default)."
)
@click.option(
    "--load", "loads", default="1", show_default=True, help="Thin (0.5) or repeat (2) the arrivals; commas for several."
)
@click.option(
    "--draw",
    "draws",
    default="0",
    show_default=True,
    help="Draw jobs and arrival times anew from the workload, by this seed; commas for several; 0: as they are.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of a policy (knob=8) or of decisions in general (starvation_s=3600).",
)
@click.option(
    "--elastic",
    type=Amount(0),
    default=0.0,
    help="Jobs of a trace may have up to this many times the GPUs they asked for.",
)
@click.option(
    "--noise", "noise", type=Amount(0), default=0.0, show_default=True, help="Relative error of what jobs report."
)
@click.option("--stragglers", type=PART, default=0.0, show_default=True, help="Part of the runs that go at half speed.")
@click.option(
    "--failures",
    "failure_hours",
    type=Amount(0),
    default=0.0,
    help="Mean hours between two failures of a node; 0: none.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--processes", type=Count(0), default=0, help="How many side by side. Default: one per core.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Directory for the results."
)
def run(
    workload: Path | None,
    more: tuple[Path, ...],
    format_: str,
    profiles: Path | None,
    cluster: str,
    policies: str,
    placer: str,
    interval_s: float,
    restart_s: float,
    checkpoint_every: str,
    batch: str,
    clairvoyant: bool,
    loads: str,
    draws: str,
    options: tuple[str, ...],
    elastic: float,
    noise: float,
    stragglers: float,
    failure_hours: float,
    seed: int,
    processes: int,
    out: Path,
) -> None:
    """Run every policy on every workload; write what came of them to the directory --out."""
    from swell.placement.registry import DEFAULT_PLACER
    from swell.policy.registry import DEFAULT_POLICY
    from swell.sim.comparison import LANES
    from swell.sim.noise import Noise
    from swell.sim.simulate import FORMATS, Case
    from swell.sim.simulate_many import write

    workloads = ((workload,) if workload else ()) + more
    if not workloads:
        raise click.UsageError("nothing to simulate; say which jobs with --workload FILE")
    if format_ not in FORMATS:
        raise click.UsageError(f"there is no format {format_!r}; {instead_of(format_, FORMATS)}")
    said = parse_options(options)
    chosen = [policy.strip() for policy in (policies or DEFAULT_POLICY).split(",")]
    check_options(said, chosen)
    base = Case(
        workload=workloads[0],
        policy=chosen[0],
        cluster=cluster,
        format=format_,
        profiles=profiles,
        placer=placer or DEFAULT_PLACER,
        interval_s=interval_s,
        restart_s=restart_s,
        checkpoint_every_s=_seconds("--checkpoint-every", checkpoint_every),
        adaptive=batch == "adaptive",
        clairvoyant=clairvoyant,
        elastic=elastic,
        seed=seed,
        noise=Noise(report=noise, straggler=stragglers),
        failure_hours=failure_hours,
        options=general_options(said),
        lanes=LANES,
    )
    several = [
        replace(base, load=load, draw=draw)
        for load in numbers("--load", loads, float)
        for draw in numbers("--draw", draws, int)
    ]
    outcomes = _with_progress(_each_on_each(several, chosen, workloads, said), processes)
    write(outcomes, out)
    _show(outcomes, out)


def _each_on_each(
    bases: Sequence[Case], policies: Sequence[str], workloads: Sequence[Path], said: Mapping[str, OptionValue]
) -> list[Case]:
    """Every policy, with the options that it has, in each of these cases on every workload."""
    from swell.sim.workload import name_of_draw

    return [
        replace(base, policy=policy, policy_options=own, workload=path, name=name_of_draw(name, base.draw))
        for policy in policies
        for own in [policy_options(policy, said)]
        for base in bases
        for path, name in zip(workloads, names(workloads), strict=True)
    ]


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def numbers(option: str, text: str, kind: type[Number]) -> list[Number]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} is one number or several with commas between them, not {text!r}") from None


def names(paths: Sequence[Path]) -> list[str]:
    """What workloads are called in results: their files' names, with the directory's where two would be the same."""
    stems = [path.name.partition(".")[0] for path in paths]
    return [
        stem if stems.count(stem) == 1 else f"{path.resolve().parent.name}/{stem}"
        for path, stem in zip(paths, stems, strict=True)
    ]


def parse_options(options: Sequence[str]) -> dict[str, OptionValue]:
    """`key=value` with numbers and true/false read as such."""
    parsed: dict[str, OptionValue] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise click.UsageError(f"{option!r} is not an option of a policy; write KEY=VALUE, such as queues=2")
        parsed[key] = _value(value)
    return parsed


def check_options(said: Mapping[str, OptionValue], policies: Sequence[str]) -> None:
    """An option that nobody has is a mistake; so is a value that a policy does not take."""
    from swell.policy.options import check
    from swell.policy.registry import options_of

    known = set(GENERAL)
    for policy in policies:
        declared = options_of(policy)
        known.update(declared)
        check(policy, declared, policy_options(policy, said))
    for name in said:
        if name not in known:
            raise click.UsageError(f"nobody has an option {name!r}; {instead_of(name, sorted(known))}")


def general_options(said: Mapping[str, OptionValue]) -> Options:
    """Those of `said` that hold for any policy, on top of the defaults."""
    from swell.core.snapshot import Options

    general = {name: type(getattr(Options(), name))(value) for name, value in said.items() if name in GENERAL}
    return Options(**general)


def policy_options(policy: str, said: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Those of `said` that this policy has; several policies may be given options of one of them."""
    from swell.policy.registry import options_of

    declared = options_of(policy)
    return {name: value for name, value in said.items() if name in declared}


def _value(text: str) -> OptionValue:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _with_progress(cases: Sequence[Case], processes: int) -> list[Outcome]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from swell.sim.simulate_many import run_cases

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=len(cases))
        return run_cases(cases, processes, lambda _: progress.advance(task))


def _show(outcomes: Sequence[Outcome], out: Path) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    console.print(_table([dict(outcome.summary) for outcome in outcomes], console.width))
    for line in never_ended(outcomes):
        console.print(line, highlight=False)
    console.print(f"written to {out}; `swell sim report {out}` makes a page of it")


def never_ended(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each result that leaves jobs out: its times are of the others alone."""
    return [
        f"note: {outcome.name}, {outcome.case.policy}: times are without {plural(int(str(unfinished)), 'job')} that "
        "never ended; one that asks for more than the cluster or its largest node has is refused"
        for outcome in outcomes
        if (unfinished := outcome.summary["unfinished"])
    ]


def _table(summaries: Sequence[dict[str, object]], room: int) -> Table:
    from rich.table import Table

    head = [*WHICH, *(title for _, title, _ in COLUMNS)]
    rows = [
        [str(figures.get(key, "")) for key in WHICH] + [_number(figures.get(key), digits) for key, _, digits in COLUMNS]
        for figures in summaries
    ]
    shown = fitting(head, rows, room)
    table = Table(*(head[i] for i in shown), box=None)
    for row in rows:
        table.add_row(*(row[i] for i in shown))
    return table


def fitting(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Which columns a terminal has room for: half a figure says nothing. What tells two rows apart stays."""
    widths = [max(len(row[i]) for row in (head, *rows)) + PADDING for i in range(len(head))]
    shown = list(range(len(head)))
    for title in FIRST_LEFT_OUT:
        if sum(widths[i] for i in shown) <= room:
            break
        column = head.index(title)
        if title not in WHICH or len({row[column] for row in rows}) <= 1:
            shown.remove(column)
    return shown


def _number(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


@sim.command(short_help="Make a workload from a seed.")
@click.option("--jobs", type=Count(1), default=160, show_default=True)
@click.option("--hours", type=Amount(0, min_open=True), default=8.0, show_default=True, help="Over which they arrive.")
@click.option("--gpus", type=Count(1), default=64, show_default=True, help="Of the cluster: nobody asks for more.")
@click.option("--families", type=Count(1), default=20, show_default=True, help="Kinds of jobs, few of them frequent.")
@click.option("--elastic", type=PART, default=0.7, show_default=True, help="Part of the jobs that may grow and shrink.")
@click.option(
    "--median",
    type=Amount(0, min_open=True),
    default=780.0,
    show_default=True,
    help="Of the durations, in seconds.",
)
@click.option(
    "--sigma", type=Amount(0), default=2.0, show_default=True, help="Of their logarithm: how long the tail is."
)
@click.option("--alike", type=PART, default=0.0, show_default=True, help="How much a family says of a length.")
@click.option("--reversed", is_flag=True, help="From the middle on, long families are short, short ones long.")
@click.option(
    "--estimate-off", default=0.0, show_default=True, help="Factor by which users' estimates are off; 0: none."
)
@click.option(
    "--silent", type=PART, default=0.0, show_default=True, help="Part of the jobs that report nothing before they end."
)
@click.option(
    "--unstoppable", type=PART, default=0.0, show_default=True, help="Part of the silent jobs that cannot be stopped."
)
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write, .yaml.")
def generate(median: float, out: Path, **recipe: Any) -> None:
    """Make a workload from a seed, by published distributions; it can be read, changed, and run."""
    from swell.sim.generate import Recipe
    from swell.sim.generate import generate as make
    from swell.sim.swell_workloads import write_jobs

    made = make(Recipe(median_s=median, **recipe))
    write_jobs(made, out)
    nodes = f"1x{recipe['gpus']}" if recipe["gpus"] <= 8 else f"{-(-recipe['gpus'] // 4)}x4"
    jobs = len(made.arrivals)
    say(f"{jobs} jobs written to {out}; run them with `swell sim run --workload {out} --cluster {nodes} --out DIR`")


@sim.command(short_help="Put results side by side, best first.")
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def compare(directories: tuple[Path, ...]) -> None:
    """Put results side by side: mean completion times of every policy on every workload, best first."""
    from rich.console import Console

    from swell.sim.simulate_many import read_summary

    summaries = [figures for directory in directories for figures in read_summary(directory)]
    Console(width=None if Console().is_terminal else WIDE).print(_side_by_side(summaries))


def _side_by_side(summaries: Sequence[dict[str, object]]) -> Table:
    from rich.table import Table

    cells: dict[str, dict[str, float]] = {}
    for figures in summaries:
        row = f"{figures['policy']} ({figures['batch']}{', told' if figures.get('clairvoyant') else ''})"
        load = "" if figures.get("load") == 1 else f" ×{figures.get('load')}"
        cells.setdefault(row, {})[f"{figures['workload']}{load}"] = float(str(figures["mean_jct_s"]))
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    table = Table("mean completion time, s", *columns, "mean", box=None)
    means = {row: sum(values.values()) / len(values) for row, values in cells.items()}
    for row in sorted(cells, key=lambda row: (-len(cells[row]), means[row])):
        table.add_row(row, *(_number(cells[row].get(column), 0) for column in columns), _number(means[row], 0))
    return table


@sim.command(short_help="Show results in one HTML file.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--pictures", is_flag=True, help="Draw SVG and PNG files instead, for papers and slides.")
def report(directory: Path, pictures: bool) -> None:
    """Show the results in DIRECTORY: figures, GPUs over time and jobs of every policy, in one HTML file."""
    from swell.sim.report import draw
    from swell.sim.report import report as write_page
    from swell.web.assets import REPORT

    if not pictures:
        say(f"written: {write_page(directory, REPORT)}")
        return
    try:
        drawn = draw(directory)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"pictures need {error.name}: pip install 'swell[sim]'") from error
    say(f"written to {directory}: {', '.join(path.name for path in drawn)}, and the same as PNG")
