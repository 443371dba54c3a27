"""Explains why a job waits or has its allocation: turns reasons into sentences with numbers. Pure; the daemon's
`explaining` and the API's lists call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swell.core.decision import Detail, Reason, ReasonCode
from swell.core.events import Saves, StopWhy
from swell.core.ids import JobId
from swell.core.state import JobRecord, JobState, State
from swell.core.staying import stay_of
from swell.core.unsaved import has_boundaries, unsaved_of
from swell.plan.closed_nodes import closed_nodes
from swell.plan.held_back import HeldBack

WAITS_FOR_CHECKPOINT = frozenset({StopWhy.PREEMPTED, StopWhy.PAUSED, StopWhy.RESIZING, StopWhy.MIGRATING})
AHEAD_LISTED = 100
"""At most this many of the jobs ahead are named; all are counted."""
HOLDERS_NAMED = 3
"""At most this many of the jobs that keep their GPUs until they end are named."""
JOBS_NAMED = 5
"""At most this many of the jobs that it depends on are named."""
NODES_NAMED = 5
"""At most this many of the nodes that run no containers are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A job that holds, or comes first for, what this one waits for."""

    job: JobId
    name: str
    user: str
    state: str
    gpus: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    job: JobId
    summary: str  # one line, the WHY column
    sentences: tuple[str, ...]
    ahead: tuple[Ahead, ...] = ()  # the first AHEAD_LISTED of them
    ahead_count: int = 0
    advice: str = ""  # the cheapest change that would let it start
    missing: str = ""  # the part of this answer that is not computed yet, or took too long
    starts: str = ""  # when it will start and end, by the forecast
    trouble: str = ""  # why there are no decisions at present; the rest is then from the last one


def sentence(reason: Reason) -> str:
    return _SENTENCES[reason.code](reason.detail)


def summary(record: JobRecord, reasons: Sequence[Reason], now_s: float) -> str:
    """One line for tables: the job's situation, or the first reason why it waits."""
    if record.ended:
        return record.message
    if record.state is JobState.STOPPING and record.run and record.run.stop:
        stop = record.run.stop
        if stop.why is StopWhy.PAUSED:
            return f"stops at its next checkpoint, then {'is held' if record.paused else 'goes on: it was resumed'}"
        return f"{stop.why}: {stop.reason}" if stop.reason else str(stop.why)
    if record.holding and record.run:
        return f"preparing: {record.run.preparing}" if record.run.preparing else record.run.reason
    current = of_now(record, reasons, now_s)
    if current:
        return sentence(_with_now(current[0], now_s))
    return "waits for the next decision"


def of_now(record: JobRecord, reasons: Sequence[Reason], now_s: float) -> Sequence[Reason]:
    """The reasons of the last decision, without those that no longer hold, and with a pause since then."""
    if record.paused and not record.holding:
        return (Reason(code=ReasonCode.PAUSED),)
    return [reason for reason in reasons if not _over(reason, now_s)]


def _over(reason: Reason, now_s: float) -> bool:
    waited = reason.code is ReasonCode.BACKOFF and float(reason.detail.get("until_s", now_s + 1.0)) <= now_s
    return waited or reason.code is ReasonCode.PAUSED


def explain(state: State, record: JobRecord, reasons: Sequence[Reason], now_s: float) -> Explanation:
    sentences = [_standing(record, now_s), _leaves(record, now_s), *_withdrawn(record, now_s)]
    sentences += [record.rewound, _stays(state, record)]
    known = [reason for reason in of_now(record, reasons, now_s) if reason.code is not ReasonCode.STOPPING]
    sentences += [sentence(_with_now(reason, now_s)) for reason in known]
    sentences += [] if record.ended else _left_out(state, record)
    ahead, count = ((), 0) if record.ended or record.holding else _ahead(state, record, now_s)
    if not record.ended and not record.holding and not record.paused:
        sentences += [*closed_nodes(state, record), *_held_for_good(state, record)]
    return Explanation(
        job=record.id,
        summary=summary(record, reasons, now_s),
        sentences=tuple(dict.fromkeys(text for text in sentences if text)),
        ahead=ahead,
        ahead_count=count,
    )


def _standing(record: JobRecord, now_s: float) -> str:
    if record.ended:
        return f"{record.state}: {record.message}" if record.message else f"{record.state}"
    if record.holding and record.run and record.run.preparing:
        image = f"its node fetches the image {record.spec.image} " if record.spec.image else ""
        return f"preparing run {record.run.id}: {image}({record.run.preparing})"
    if record.holding and record.run:
        return f"{record.state} as run {record.run.id}: {record.run.reason}"
    waited_s = max(0.0, now_s - record.queued_since_s)
    return f"queued for {duration(waited_s)} with priority {record.priority}"


def _leaves(record: JobRecord, now_s: float) -> str:
    """When a stopping run will leave, if it waits for a checkpoint."""
    run = record.run
    stop = run.stop if run is not None and record.state is JobState.STOPPING else None
    if run is None or stop is None or stop.why not in WAITS_FOR_CHECKPOINT or not has_boundaries(record, run):
        return ""
    if run.began_s is None and run.saved_s is not None and run.saved_s > stop.at_s:
        return "has written a checkpoint and was told to end"
    if stop.agreed is not None and record.unit == "epoch":
        epoch, step = stop.agreed
        return "all its workers leave " + (f"at step {step} of epoch {epoch + 1}" if step else f"after {epoch} epochs")
    if stop.agreed is not None and run.saves is not Saves.OWN:
        return f"all its workers leave at step {stop.agreed[1]}"
    if run.saves is Saves.ANYWHERE:
        return "trains on until its workers have agreed on a step"
    in_s = unsaved_of(run, now_s).boundary_in_s(now_s)
    when = "when that comes is not known" if in_s is None else f"that is expected in {duration(in_s)}"
    return f"trains on until its next checkpoint; {when}"


def _stays(state: State, record: JobRecord) -> str:
    stay = None if record.ended else stay_of(record, state.nodes)
    return f"stays on {' or '.join(stay.nodes)}, which has its files: {stay.why}" if stay else ""


def _withdrawn(record: JobRecord, now_s: float) -> list[str]:
    """The last resize or move that was withdrawn, until the next checkpoint."""
    withdrawn = record.run.withdrawn if record.run and record.state is JobState.RUNNING else None
    if withdrawn is None:
        return []
    what = "move" if withdrawn.why is StopWhy.MIGRATING else "resize"
    change = f" ({withdrawn.change})" if withdrawn.change else ""
    ago = duration(max(0.0, now_s - withdrawn.at_s))
    again = f"; it is left as it is until its next checkpoint, or {_for(withdrawn.until_s - now_s)}"
    text = f"its {what}{change} was withdrawn {ago} ago: {withdrawn.reason}"
    return [text + (again if withdrawn.until_s > now_s else "")]


def _left_out(state: State, record: JobRecord) -> list[str]:
    """Nodes that its own requirements exclude."""
    spec = record.spec
    sentences = [f"it names its nodes: {', '.join(spec.nodes)}; no other is considered"] if spec.nodes else []
    unable = [node for node in state.nodes.values() if node.no_containers and spec.image]
    return sentences + [
        f"not on {node.name}, because it has an image: {node.no_containers}" for node in unable[:NODES_NAMED]
    ]


def _for(seconds: float) -> str:
    return f"for {duration(seconds)} more"


def _held_for_good(state: State, record: JobRecord) -> list[str]:
    """Jobs that cannot be preempted and hold GPUs it could use: it waits for their end."""
    holders = [
        other
        for other in map(state.jobs.__getitem__, state.active)
        if other.holding and other.state is not JobState.STOPPING and not other.may_be_stopped
        if other.allocation is not None and other.allocation.gpus and _competes(record, other)
    ]
    sentences = [_holds_for_good(other) for other in holders[:HOLDERS_NAMED]]
    more = len(holders) - HOLDERS_NAMED
    others = "1 more job holds GPUs" if more == 1 else f"{more} more jobs hold GPUs"
    return [*sentences, f"{others} and cannot be stopped"] if more > 0 else sentences


def _holds_for_good(other: JobRecord) -> str:
    held = other.allocation.gpus if other.allocation else 0
    return f"job {other.id} ({other.spec.name}) keeps {gpus(held)} until it ends: {other.spec.why_not_stopped}"


def _ahead(state: State, record: JobRecord, now_s: float) -> tuple[tuple[Ahead, ...], int]:
    """The first of the jobs that hold what it waits for, or that come before it in the queue, and their number. Jobs of
    lower priority do not count: they are preempted for it, or `_held_for_good` names them."""
    listed: list[Ahead] = []
    count = 0
    priority, since = record.priority, (record.submitted_s, record.id)
    held_back = HeldBack(state, now_s)
    for other in map(state.jobs.__getitem__, state.active):
        if other.priority < priority or other.id == record.id:
            continue
        waits = other.state is JobState.QUEUED
        if waits and other.priority == priority and (other.submitted_s, other.id) >= since:
            continue
        if waits and held_back.reason(other) is not None:
            continue
        if _competes(record, other):
            count += 1
            if count <= AHEAD_LISTED:
                listed.append(_as_ahead(other))
    return tuple(listed), count


def _as_ahead(other: JobRecord) -> Ahead:
    return Ahead(
        job=other.id,
        name=other.spec.name,
        user=other.spec.user,
        state=other.state,
        gpus=other.allocation.gpus if other.allocation else other.spec.gpus.min,
        priority=other.priority,
    )


def _competes(record: JobRecord, other: JobRecord) -> bool:
    """Whether this job could use what the other one holds or would get. A job without GPUs competes only with other
    such jobs."""
    if record.spec.cpu_only or other.spec.cpu_only:
        return record.spec.cpu_only and other.spec.cpu_only
    mine, theirs = record.spec.gpus.types, other.spec.gpus.types
    if other.state is not JobState.QUEUED and other.allocation is not None and other.allocation.gpu_type:
        theirs = (other.allocation.gpu_type,)
    if not mine and not theirs:
        return True
    common = [t for t in mine if t in theirs] if mine and theirs else mine or theirs
    return any(t not in record.spec.gpus.exclude and t not in other.spec.gpus.exclude for t in common)


def _with_now(reason: Reason, now_s: float) -> Reason:
    """Add the time that is left until an absolute time."""
    until = reason.detail.get("until_s")
    if until is None:
        return reason
    return Reason(code=reason.code, detail={**reason.detail, "in_s": max(0.0, float(until) - now_s)})


def duration(seconds: float) -> str:
    """For people: 45 s, 12 min, 3.5 h, 2.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def gpus(count: Detail) -> str:
    """For people: 1 GPU, 3 GPUs."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _behind(ahead: Detail, first: Detail | None) -> str:
    """The job's number comes early in the text, because tables cut long texts."""
    if first is None:
        return "one job comes first" if ahead == 1 else f"{ahead} jobs come first"
    return f"job {first} comes first" if ahead == 1 else f"job {first} and {int(ahead) - 1} more come first"


def _depends(jobs: Sequence[str], only: Detail | None) -> str:
    more = f" and {len(jobs) - JOBS_NAMED} more" if len(jobs) > JOBS_NAMED else ""
    which = f"job{'s' if len(jobs) > 1 else ''} {', '.join(jobs[:JOBS_NAMED])}{more}"
    if only != "failure":
        return f"waits for the end of {which}"
    return f"runs if none of {which} completes" if len(jobs) > 1 else f"runs if {which} does not complete"


def _in(detail: Mapping[str, Detail]) -> str:
    return duration(float(detail.get("in_s", 0.0)))


def _settles(detail: Mapping[str, Detail]) -> str:
    left = _in(detail)
    return "until the next decision" if left == duration(0.0) else f"for another {left}"


def _not_worth(detail: Mapping[str, Detail]) -> str:
    """A change is not worth it if it saves less than the restart and the GPUs' worth to other jobs."""
    if "cost_s" not in detail:
        return "a change would cost more than it brings"
    cost_s, gain_s = float(detail["cost_s"]), float(detail.get("gain_s", 0.0))
    wait_s = float(detail.get("wait_s", 0.0))
    unsaved = f" and {duration(wait_s)} of work that is not saved yet" if wait_s else ""
    if gain_s <= cost_s + wait_s:
        return f"a change would cost more than it brings (cost {cost_s:.0f} s{unsaved}, gain {gain_s:.0f} s)"
    return (
        f"a change would save it {gain_s:.0f} s for a restart of {cost_s:.0f} s{unsaved}: less than what the GPUs are "
        "worth to other jobs and the restart together"
    )


_SENTENCES: Mapping[ReasonCode, Callable[[Mapping[str, Detail]], str]] = {
    ReasonCode.GRANTED: lambda d: f"gets {d.get('n', 'what it needs')}",
    ReasonCode.CAPACITY: lambda d: f"needs {gpus(d.get('needs', '?'))}, free for it: {d.get('free', 0)}",
    ReasonCode.BEHIND: lambda d: _behind(d.get("ahead", "other"), d.get("first")),
    ReasonCode.FRAGMENTED: lambda d: (
        "enough GPUs are free in all, but not where it could use them"
        + (f" (needs {d['needs']}, the roomiest node has {d['largest']})" if "largest" in d else "")
    ),
    ReasonCode.SHAPE: lambda d: (
        f"no node as configured could hold it: needs {d.get('needs', '?')}, the largest has {d.get('largest', '?')}"
    ),
    ReasonCode.GPU_TYPE: lambda d: (
        f"none of the GPU types it accepts is available (accepts {d['accepts']})"
        if "accepts" in d
        else "no machine with a usable GPU takes jobs at present"
    ),
    ReasonCode.NODES: lambda d: (
        "no node that it may use takes jobs at present" + (f" (it may use {d['accepts']})" if "accepts" in d else "")
    ),
    ReasonCode.MEMORY: lambda d: (
        f"not enough {d.get('what', 'CPU or memory')} is free"
        + (f": needs {d['needs']}, {d.get('free', 0)} free" if "needs" in d else "")
    ),
    ReasonCode.QUOTA: lambda d: (
        f"team {d.get('team', '?')} uses {d.get('used', '?')} of its {d.get('quota', '?')} GPUs and others are waiting"
    ),
    ReasonCode.LIMIT: lambda d: (
        f"{d.get('user') or 'its user'} may run {d.get('limit', '?')} jobs at the same time; it starts when one "
        "of them ends (`swell quota`)"
    ),
    ReasonCode.BUDGET: lambda d: (
        f"team {d.get('team', '?')} has used {d.get('used', '?')} of its {d.get('budget', '?')} GPU hours of this "
        f"month; it goes on in {_in(d)}, when the next month begins (UTC), or when an operator raises options.budgets"
    ),
    ReasonCode.NAMESPACE: lambda d: (
        f"{d.get('why', 'its namespace may have no more')}; it needs {d.get('needs', '?')} {d.get('what', '')} and "
        f"{d.get('left', 0)} are left"
    ),
    ReasonCode.STARVED: lambda d: f"has waited {duration(float(d.get('waited_s', 0)))}, so it goes ahead of its order",
    ReasonCode.PAUSED: lambda _: "paused; `swell resume` lets it go on",
    ReasonCode.CLEANING: lambda d: (
        "a machine of its last run was lost; what is left of that run on "
        f"{d.get('nodes', 'its other machines')} has to be gone first"
    ),
    ReasonCode.FILES: lambda d: (
        f"waits for {d.get('nodes', 'its machine')}, which has its files: {d.get('why', 'there is no copy')}"
    ),
    ReasonCode.BACKOFF: lambda d: f"{d.get('why', 'failed before')}; tried again in {_in(d)}",
    ReasonCode.DEPENDS: lambda d: _depends(str(d.get("jobs", "?")).split(", "), d.get("only")),
    ReasonCode.FREEING: lambda d: (
        f"its GPUs are being freed by job {d.get('by', '?')}"
        + (f", at a checkpoint that is expected in {_in(d)}" if "in_s" in d else "")
    ),
    ReasonCode.NO_GAIN: lambda d: f"more than {d.get('at', 'its')} GPUs would not make it faster",
    ReasonCode.NOT_WORTH: _not_worth,
    ReasonCode.PINNED: lambda _: (
        "cannot resume (no library, no checkpoint directory), so it is left alone until it ends"
    ),
    ReasonCode.SETTLING: lambda d: "changed a moment ago; left alone " + _settles(d),
    ReasonCode.STOPPING: lambda _: "is stopping",
}
