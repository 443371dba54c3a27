"""What `swell top` draws: machines, jobs, one job, its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from swell.cli.show import command_line
from swell.cli.tables import COLOURS, eta, holds, job_head, job_row, progress, state
from swell.cli.terminal import safe, visible
from swell.cli.top_keys import View
from swell.jobfile.units import format_duration

if TYPE_CHECKING:
    from rich.console import Group

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
KEYS = "q leave  s sort  / filter  ↑↓ choose  Enter job  l log"
Job = dict[str, Any]
NONE_CHOSEN = -1
_ORDER = {"running": 0, "stopping": 0, "starting": 0, "queued": 1}
SORTED_BY: Mapping[str, Callable[[Job], Any]] = {
    "state": lambda job: _ORDER.get(job["state"], 2),
    "gpus": lambda job: -job["gpus"]["held"],
    "waited": lambda job: -job["waited_s"],
    "ran": lambda job: -job["ran_s"],
    "priority": lambda job: -job["priority"],
    "name": lambda job: job["name"],
    "user": lambda job: job["user"],
}


def shown_jobs(jobs: Sequence[Job], view: View) -> list[Job]:
    """Those that the filter names, in the order that was chosen; equal ones as they came."""
    word = view.filter.lower()
    found = [job for job in jobs if word in f"{job['id']} {job['name']} {job['user']} {state(job)}".lower()]
    return sorted(found, key=SORTED_BY[view.sort])


def picture(look: dict[str, Any], keys: View | None, height: int) -> Group:
    """`keys`: what was pressed so far; None: nobody presses any, so none is offered and no job is chosen."""
    from rich.console import Group
    from rich.text import Text

    counts = " ".join(f"{count} {name}" for name, count in look["health"].get("jobs", {}).items() if count)
    parts: list[Any] = [Text(safe(f"policy {look['health'].get('policy', '')}   {counts}"), style="bold")]
    parts += [Text(safe(node_line(node))) for node in look["nodes"][: max(1, height // 4)]]
    view = keys or View()
    jobs = shown_jobs(look["jobs"], view)
    room = max(3, height - len(parts) - 5)
    first = max(0, view.chosen - room + 1)
    table = _Jobs(jobs[first : first + room], view.chosen - first if keys else NONE_CHOSEN)
    more = len(jobs) - min(len(jobs), room)
    foot = f"filter: {view.filter}█" if view.typing else f"{KEYS}   by {view.sort}"
    foot += f"   filter: {view.filter} (Esc clears)" if view.filter and not view.typing else ""
    left_out = [Text(f"+{more} more")] if more else []
    return Group(*parts, table, *left_out, *([Text(safe(foot), style="dim")] if keys else []))


class _Jobs:
    """The table, with the columns that the width has room for."""

    def __init__(self, jobs: Sequence[Job], chosen: int) -> None:
        self._jobs, self._chosen = jobs, chosen

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.table import Table
        from rich.text import Text

        head = job_head(options.max_width, self._jobs)
        rows = [job_row(job, head) for job in self._jobs]
        table = Table(box=None, pad_edge=False, expand=True)
        for index, name in enumerate(head):
            least = max((len(row[0]) for row in rows), default=2) if index == 0 else None
            wide = 1 if name == "WHY" else None
            table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least, ratio=wide)
        for index, (job, row) in enumerate(zip(self._jobs, rows, strict=True)):
            style = "reverse" if index == self._chosen else COLOURS.get(state(job), "")
            table.add_row(*(Text(safe(cell)) for cell in row), style=style)
        yield table


def job_picture(job: Job, height: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    lines = [
        ("job", f"{job['id']}  {job['name']}"),
        ("state", f"{state(job)}  {holds(job)}".strip()),
        ("why", job["why"]),
        ("user", job["user"]),
        ("command", command_line(job["spec"]["command"])),
        ("progress", progress(job)),
        ("eta", eta(job)),
        ("waited", format_duration(job["waited_s"])),
        ("ran", format_duration(job["ran_s"])),
        ("metrics", " ".join(f"{name}={value:.4g}" for name, value in job["metrics"].items())),
        ("message", job["message"]),
    ]
    shown = [Text(f"{label:<12} {safe(value)}") for label, value in lines if value][: height - 2]
    return Group(*shown, Text("Esc back  l log", style="dim"))


def log_picture(job: Job, log: str, height: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    lines = log.replace("\r", "\n").splitlines()[-max(1, height - 3) :]
    title = Text(safe(f"job {job['id']}  {job['name']}  {state(job)}"), style="bold")
    shown = [Text(visible(line), no_wrap=True, overflow="ellipsis") for line in lines] or [Text("nothing printed yet")]
    return Group(title, *shown, Text("Esc back  Enter job", style="dim"))


def node_line(node: dict[str, Any]) -> str:
    """One character per GPU: the job's letter, `.` free, `x` not usable, `o` somebody else's; then what jobs hold."""
    marks = "".join(_mark(gpu) for gpu in node["gpus"])
    legend = sorted({job for gpu in node["gpus"] for job in gpu["jobs"]})
    named = "  ".join(f"{LETTERS[job % len(LETTERS)]}={job}" for job in legend)
    cpus = f"CPUs {node['cpus_held']}/{node['cpus']}"
    memory = f"memory {node['memory_held_mib'] / 1024:.0f}/{node['memory_mib'] / 1024:.0f} GiB"
    held = node["gpus_total"] - node["gpus_free"]
    return f"{node['name']:<16} [{marks}] GPUs {held}/{node['gpus_total']}  {cpus}  {memory} in use  {named}".rstrip()


def _mark(gpu: dict[str, Any]) -> str:
    if gpu["jobs"]:
        return LETTERS[gpu["jobs"][0] % len(LETTERS)]
    if gpu["health"] != "ok":
        return "x"
    return "o" if gpu["others"] else "."
