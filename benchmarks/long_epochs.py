"""Jobs that save only every 10, 30 or 60 minutes: decisions charged with the work since the last checkpoint, or not.

    python -m benchmarks.long_epochs --data ../shared/data            # writes docs/figures/long-epochs.md

Simulates the four Pollux workloads (16 x 4 GPUs, fixed batch sizes, speeds learned). A stop waits for the next
checkpoint, as in the daemon; a preemption that cannot foresee one kills after its wait, and loses what was not saved.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import fmean

from swell.sim.simulate import Case
from swell.sim.simulate_many import run_cases

POLICIES = ("swell", "elastic-srjf")
EVERY_MIN = (0, 10, 30, 60)
WORKLOADS = (1, 2, 3, 4)
KEPT = ("mean_jct_s", "lost_gpu_hours", "gpu_hours_per_job", "jobs", "restarts_per_job", "worst_rho")
Key = tuple[str, int, bool]  # policy, minutes between checkpoints, charged
Figures = Mapping[str, float]

PAGE = """# Long epochs: checkpoints every 10, 30 and 60 minutes

Made by `python -m benchmarks.long_epochs --data DIR` with Python {python} on {day}. The four Pollux workloads: 160 jobs
each, 16 x 4 GPUs, fixed batch sizes, speeds learned, a decision per minute, restarts of 30 s. Runs write a checkpoint
only every so many minutes. A voluntary stop waits for it. A preemption waits too where it can foresee the checkpoint;
else it kills the run after eight minutes, and the work since the last checkpoint is lost.

*Not charged*: decisions take a stop for 30 s. *Charged*: for 30 s and the time until the run's next checkpoint, or the
work since its last one where the next cannot be foreseen. With checkpoints wherever a run is asked to stop (the first
line of each policy) both decide the same, to the digit.

Simulated times do not depend on the machine. Mean completion time is over all jobs of the four workloads; GPU hours
are sums over the four.

{table}
"""


def cases(data: Path, policies: Iterable[str], minutes: Iterable[int]) -> list[tuple[Key, Case]]:
    found = []
    for policy in policies:
        for every_min in minutes:
            for charged in (False, True) if every_min else (True,):
                for number in WORKLOADS:
                    case = Case(
                        workload=data / "pollux" / "workloads" / f"workload-{number}.csv",
                        profiles=data / "pollux" / "profiles",
                        policy=policy,
                        checkpoint_every_s=60.0 * every_min,
                        charge_unsaved=charged,
                    )
                    found.append(((policy, every_min, charged), case))
    return found


def measured(chosen: Sequence[tuple[Key, Case]], processes: int) -> dict[Key, list[Figures]]:
    outcomes = run_cases([case for _, case in chosen], processes)
    found: dict[Key, list[Figures]] = {}
    for (key, _), outcome in zip(chosen, outcomes, strict=True):
        figures = {name: float(str(outcome.summary[name])) for name in KEPT}
        found.setdefault(key, []).append(figures)
    return found


def table(found: Mapping[Key, list[Figures]]) -> str:
    columns = ("mean completion s", "each workload", "lost GPU h", "GPU h in all", "restarts/job", "worst ρ")
    lines = [f"| policy | checkpoints | | {' | '.join(columns)} |", "|---" * 9 + "|"]
    for (policy, minutes, charged), runs in found.items():
        every = f"every {minutes} min" if minutes else "where asked"
        how = ("charged" if charged else "not charged") if minutes else ""
        mean = fmean(run["mean_jct_s"] for run in runs)
        each = " ".join(f"{run['mean_jct_s']:.0f}" for run in runs)
        lost = sum(run["lost_gpu_hours"] for run in runs)
        hours = sum(run["gpu_hours_per_job"] * run["jobs"] for run in runs)
        restarts, worst = fmean(run["restarts_per_job"] for run in runs), max(run["worst_rho"] for run in runs)
        cells = (f"**{mean:.0f}**", each, f"{lost:.1f}", f"{hours:.0f}", f"{restarts:.2f}", f"{worst:.2f}")
        lines.append(f"| {policy} | {every} | {how} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_epochs", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with pollux/workloads and pollux/profiles")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--minutes", default=",".join(map(str, EVERY_MIN)))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/long-epochs.md"))
    chosen = parser.parse_args()
    minutes = [int(part) for part in chosen.minutes.split(",")]
    found = measured(cases(chosen.data, chosen.policies.split(","), minutes), chosen.processes)
    made = table(found)
    print(made)
    page = PAGE.format(python=platform.python_version(), day=date.today(), table=made)
    chosen.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
