"""Explains the size of a running job: what more GPUs would gain, which jobs hold them, what would change it. Pure;
`daemon.explaining` calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swell.core.capacity import most_together, need_of_spec
from swell.core.snapshot import Speed
from swell.core.state import JobRecord, State, held_gpus
from swell.plan.explain import duration, gpus
from swell.ports import Remaining

HOLDERS = 3
"""At most this many of the jobs that hold the other GPUs are named."""
NOTHING = 0.01
"""A relative gain of speed below this counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain from a job's present size to its next larger one."""

    size: int
    more: int
    faster: float  # 0.5: 1.5 times as fast
    per_gpu: float  # speed per further GPU, relative to its speed on one GPU
    saved_s: float | None  # None: its remaining time is unknown


def of_size(
    state: State,
    record: JobRecord,
    speed_of: Callable[[JobRecord], Speed],
    remaining: Remaining,
    restart_cost_s: float,
) -> list[str]:
    """Sentences about the size of a run; none for jobs without GPUs of their own."""
    held = record.allocation
    if held is None or record.spec.cpu_only or record.spec.gpus.share:
        return []
    speed = speed_of(record)
    one = _rate(record, speed, 1)
    sentences = [f"{gpus(held.gpus)} make it {_rate(record, speed, held.gpus) / one:.1f} times as fast as one"]
    if held.gpus == 1 or one <= 0.0:
        sentences = []
    larger = [size for size in record.spec.gpus.sizes() if size > held.gpus]
    if not larger:
        return [*sentences, _limited(state, record) if record.may_be_resized else _fixed(record)]
    if not record.may_be_resized:
        return [*sentences, _fixed(record)]
    gain = _gain(record, speed, larger[0], remaining)
    sentences.append(_worth(gain, restart_cost_s))
    return sentences if gain.faster < NOTHING else [*sentences, *_whose(state, record, gain, speed_of)]


def _limited(state: State, record: JobRecord) -> str:
    """Advises a larger maximum only if the cluster has more GPUs for it; otherwise that would be refused."""
    limit = record.spec.gpus.max
    asked = f"it asked for no more than {gpus(limit)}"
    need = need_of_spec(record.spec, limit, record.allocation.gpu_type if record.allocation else "")
    nodes = [node for node in state.nodes.values() if need.accepts(node)]
    counts = [sum(gpu.type == need.gpu_type for gpu in node.gpus) for node in nodes]
    if most_together(nodes, counts, one_node=need.one_node) <= limit:
        return f"{asked}, and there are no more for it"
    return f"{asked}; `swell update {record.id} gpus={record.spec.gpus.min}-{limit + 1}` would let it have more"


def _fixed(record: JobRecord) -> str:
    why = record.spec.why_not_stopped
    return f"its size stays as it is until it ends{f': {why}' if why else ''}"


def _rate(record: JobRecord, speed: Speed, size: int) -> float:
    """The speed at this size, on as many nodes as it has now (at most one per GPU)."""
    held = record.allocation
    assert held is not None
    return speed.rate(size, max(1, min(len(held.parts), size)), held.gpu_type)


def _gain(record: JobRecord, speed: Speed, size: int, remaining: Remaining) -> Gain:
    held = record.allocation
    assert held is not None
    now, then, one = (_rate(record, speed, n) for n in (held.gpus, size, 1))
    left_s = remaining.at_speed_1_s if remaining.known and now > 0.0 and then > 0.0 else None
    return Gain(
        size=size,
        more=size - held.gpus,
        faster=then / now - 1.0 if now > 0.0 else 0.0,
        per_gpu=(then - now) / (size - held.gpus) / one if one > 0.0 else 0.0,
        saved_s=None if left_s is None else left_s / now - left_s / then,
    )


def _worth(gain: Gain, restart_cost_s: float) -> str:
    if gain.faster < NOTHING:
        return f"{gpus(gain.size)} would not make it faster"
    sooner = f", so it would end {duration(gain.saved_s)} sooner" if gain.saved_s else ""
    about = f"about {duration(restart_cost_s)}" if round(restart_cost_s) else "less than a second"
    cost = f", for a restart of {about}" if restart_cost_s > 0.0 else ""
    return f"{gpus(gain.size)} would make it {gain.faster:.0%} faster{sooner}{cost}"


def _whose(state: State, record: JobRecord, gain: Gain, speed_of: Callable[[JobRecord], Speed]) -> list[str]:
    """Which jobs hold the GPUs it lacks, or that enough are free."""
    holders = [
        other
        for other in map(state.jobs.__getitem__, state.active)
        if other.id != record.id and other.allocation is not None and other.allocation.gpus
        if other.allocation.gpu_type == (record.allocation.gpu_type if record.allocation else "")
    ]
    free = _free(state, record)
    if free >= gain.more:
        return [f"{gpus(free)} that it could use {'is' if free == 1 else 'are'} idle at present"]
    holders.sort(key=lambda other: (-(other.allocation.gpus if other.allocation else 0), other.id))
    named = [_holder(other, gain, speed_of(other)) for other in holders[:HOLDERS]]
    more = len(holders) - HOLDERS
    return [*named, f"{more} more jobs have the others"] if more > 0 else named


def _holder(other: JobRecord, gain: Gain, speed: Speed) -> str:
    held = other.allocation
    assert held is not None
    who = f"job {other.id} ({other.spec.name}, priority {other.priority}) has {gpus(held.gpus)}"
    if not other.may_be_stopped:
        return f"{who} until it ends: {other.spec.why_not_stopped or 'it cannot be stopped'}"
    smaller = [size for size in other.spec.gpus.sizes() if size < held.gpus]
    if not smaller:
        return f"{who}, the least that it runs on"
    now, less, one = (_rate(other, speed, n) for n in (held.gpus, smaller[-1], 1))
    worth = (now - less) / (held.gpus - smaller[-1]) / one if one > 0.0 else 0.0
    here = f"and would be worth {gain.per_gpu:.2f} here"
    return f"{who}: the last one is worth {worth:.2f} of its first GPU to that job, {here}"


def _free(state: State, record: JobRecord) -> int:
    """Free GPUs of its type, on machines that take jobs."""
    held = held_gpus(state)
    wanted = record.allocation.gpu_type if record.allocation else ""
    return sum(
        1
        for node in state.nodes.values()
        if node.schedulable
        for gpu in node.usable_gpus()
        if (node.name, gpu.index) not in held
        if gpu.type == wanted
    )
