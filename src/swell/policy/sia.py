"""Sia: one integer program over (GPU type, count) choices, elastic (Jayaram Subramanya et al., SOSP 2023).

For each job and each configuration it may run in (halves of a node, whole nodes): its speed there, divided by its
slowest one per GPU so that rows compare, times a restart factor where the configuration is not the present one:
(T − N·S) / (T + S), T its age, N its restarts so far, S the cost of one. Minimise Σ speed^p over the choices taken,
plus `queue` for each job that gets nothing; p = −0.5 is the paper's balance of fairness and efficiency. A job grows to
at most `growth` times what it ever had: the paper starts jobs small to learn their speed.

One binary variable a choice, one row per job and a type; HiGHS, time-capped. It begins with a greedy answer, so
that there always is one. With many choices the program is solved without asking for whole numbers, and what is not
whole in its answer (at most two choices for each GPU type) is given out greedily.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swell.core.decision import Decision, Grant, Reason
from swell.core.ids import JobId
from swell.core.resources import gpus_per_node
from swell.core.snapshot import JobView, Snapshot
from swell.policy import options as opts
from swell.policy._envelope import Floats, useful_sizes
from swell.policy._highs import Program, highs, solve
from swell.policy.base import Memory, Purse, apart, grant, remember, speed_at
from swell.ports import Random

OPTIONS: opts.Options = {
    "fairness": opts.Option(default=-0.5, low=-10, high=-0.01, doc="the power p of the paper: lower is fairer"),
    "queue": opts.Option(default=1.1, low=0, high=100, doc="what a job that gets nothing costs (λ of the paper)"),
    "growth": opts.Option(
        default=2.0, low=1, high=1000, doc="a job grows to at most this many times the most it ever had"
    ),
    "time_limit_s": opts.Option(default=4.0, low=0.01, high=60, doc="for the solver; the best answer so far is taken"),
}


_MANY = 3_000
"""Choices beyond which whole numbers are not asked for: before its first step HiGHS looks at all pairs of choices in
the row of a GPU type, without a look at the clock (12 s for 18,000 choices)."""


_WHOLE = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class _Choice:
    job: int
    grant: Grant
    milli: int
    value: float  # `queue` minus the cost of this choice: what taking it saves


class Sia:
    name = "sia"
    elastic = True
    weighs_restarts = True
    OPTIONS = OPTIONS

    def __init__(self) -> None:
        self._highs = highs(self.name)

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        grants, jobs = apart(snapshot)
        news = {job.id: _history(job, memory) for job in jobs}
        choices = _choices(jobs, news, snapshot)
        taken = self._solve(choices, jobs, snapshot) if choices else []
        purse = Purse(snapshot.capacity)
        for choice in taken:
            purse.take(jobs[choice.job], choice.grant.n, choice.grant.gpu_type)
            grants[jobs[choice.job].id] = choice.grant
        reasons: dict[JobId, tuple[Reason, ...]] = {
            job.id: purse.no_room(job, job.min) for job in jobs if job.id not in grants
        }
        return Decision(grants=grants, reasons=reasons, memory=remember(memory, news))

    def _solve(self, choices: list[_Choice], jobs: list[JobView], snapshot: Snapshot) -> list[_Choice]:
        start = _greedy(choices, snapshot)
        many = len(choices) > _MANY
        program = Program(
            gain=np.array([choice.value for choice in choices]),
            upper=np.ones(len(choices)),
            rows=[*_by_job(choices, len(jobs)), *_by_type(choices, snapshot)],
            limits=[1.0] * len(jobs) + [float(milli) for milli in snapshot.capacity.gpu_milli.values()],
            whole=not many,
            start=None if many else start,
        )
        found = solve(self._highs, program, opts.number(snapshot, OPTIONS, "time_limit_s"))
        if found is None:
            return _taken(choices, start)
        if many:
            found = max(start, _greedy(choices, snapshot, found), key=lambda x: float(program.gain @ x))
        return _taken(choices, found)


def _taken(choices: list[_Choice], x: Floats) -> list[_Choice]:
    return [choice for choice, share in zip(choices, x.tolist(), strict=True) if share > 0.5]


def _by_job(choices: list[_Choice], jobs: int) -> list[tuple[list[int], list[float]]]:
    rows: list[list[int]] = [[] for _ in range(jobs)]
    for index, choice in enumerate(choices):
        rows[choice.job].append(index)
    return [(row, [1.0] * len(row)) for row in rows]


def _by_type(choices: list[_Choice], snapshot: Snapshot) -> list[tuple[list[int], list[float]]]:
    rows = []
    for gpu_type in snapshot.capacity.gpu_milli:
        at = [index for index, choice in enumerate(choices) if choice.grant.gpu_type == gpu_type]
        rows.append((at, [float(choices[index].milli) for index in at]))
    return rows


def _greedy(choices: list[_Choice], snapshot: Snapshot, relaxed: Floats | None = None) -> Floats:
    """A feasible answer: what is whole in the relaxed one, then choices by what they save per GPU, one per job, as long
    as there is room."""
    left = dict(snapshot.capacity.gpu_milli)
    served: dict[int, None] = {}
    x = np.zeros(len(choices))
    broken = np.ones(len(choices)) if relaxed is None else relaxed < _WHOLE
    order = np.lexsort((np.array([-choice.value / choice.milli for choice in choices]), broken))
    for index in order.tolist():
        choice = choices[index]
        if choice.job not in served and choice.milli <= left[choice.grant.gpu_type] and choice.value > 0:
            x[index] = 1.0
            served[choice.job] = None
            left[choice.grant.gpu_type] -= choice.milli
    return x


def _history(job: JobView, memory: Memory) -> dict[str, float]:
    """Restarts so far, and the most GPUs it ever had."""
    jobs = memory.get("jobs")
    before = jobs.get(str(job.id), {}) if isinstance(jobs, dict) else {}
    restarts, most, at = before.get("restarts", 0.0), before.get("most", 0.0), before.get("changed_s", 0.0)
    if job.held_n and job.changed_s != at:
        restarts += 1.0
    return {"restarts": restarts, "most": max(most, float(job.held_n)), "changed_s": job.changed_s or at}


def _choices(jobs: list[JobView], news: dict[JobId, dict[str, float]], snapshot: Snapshot) -> list[_Choice]:
    power = opts.number(snapshot, OPTIONS, "fairness")
    queue = opts.number(snapshot, OPTIONS, "queue")
    growth = opts.number(snapshot, OPTIONS, "growth")
    per_node = gpus_per_node(snapshot.nodes)
    choices: list[_Choice] = []
    for index, job in enumerate(jobs):
        past = news[job.id]
        limit = max(float(job.min), growth * past["most"])
        speeds = _speeds(job, snapshot, per_node)
        slowest = min((speed / given.n for given, speed in speeds), default=1.0)
        factor = _restart_factor(job, past["restarts"], snapshot.now_s)
        for given, speed in speeds:
            if given.n <= limit:
                stays = job.allocation is not None and (given.n, given.gpu_type) == (job.held_n, _held_type(job))
                relative = job.weight * speed / slowest * (1.0 if stays or not job.held_n else factor)
                value = queue - max(relative, 1e-3) ** power
                choices.append(_Choice(index, given, given.n * job.gpu_milli, value))
    return choices


def _speeds(job: JobView, snapshot: Snapshot, per_node: dict[str, int]) -> list[tuple[Grant, float]]:
    """Configurations that exist, with their speeds."""
    found = []
    for gpu_type in job.gpu_types:
        most = snapshot.capacity.gpu_milli.get(gpu_type, 0)
        sizes = useful_sizes(job.sizes, per_node.get(gpu_type, 1))
        extra = (job.held_n,) if _held_type(job) == gpu_type and job.held_n in job.sizes else ()
        for n in sorted({*sizes, *extra}):
            speed = speed_at(job, n, gpu_type)
            if n * job.gpu_milli <= most and speed > 0:
                found.append((grant(n, gpu_type), speed))
    return found


def _held_type(job: JobView) -> str:
    return job.allocation.gpu_type if job.allocation is not None and job.held_n else ""


def _restart_factor(job: JobView, restarts: float, now_s: float) -> float:
    """1 for a job that has run long; small for a young one, or one that restarted often."""
    age_s = max(1.0, now_s - job.submitted_s)
    return max((age_s - restarts * job.restart_cost_s) / (age_s + job.stop_cost_s(now_s)), 0.01)
