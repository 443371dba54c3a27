"""Hypothesis strategies for every value of the core, for any suite: `from strategies import events, job_specs, …`.

`events()` are any values a log could hold, one by one; `histories()` are logs that the law allows, in order.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from hypothesis import strategies as st

from swell.core import events as ev
from swell.core.accounts import Role
from swell.core.events import EVENT_TYPES, Event, ExitReason, Saves, StopWhy
from swell.core.ids import RunId
from swell.core.job import (
    GpuRequest,
    IfUnreachable,
    JobSpec,
    Launcher,
    Mount,
    PodOptions,
    PodVolume,
    Preemptible,
    RestartPolicy,
    Roles,
)
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Cap, Capped, Contact, Gpu, GpuHealth, Node, NodeCondition, Part, Share, Ssh
from swell.core.state import (
    CheckpointCopy,
    JobRecord,
    JobState,
    Run,
    State,
    StopRecord,
    Withdrawal,
    may_be_withdrawn,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Any text that UTF-8 can carry."""
numbers = st.floats(allow_nan=False)
times_s = st.floats(min_value=0, max_value=4e9, allow_nan=False)
whole = st.integers(min_value=0, max_value=2**40)
job_ids = st.integers(min_value=1, max_value=2**40)
run_ids = st.builds(RunId, job_ids, st.integers(min_value=1, max_value=1000))
texts = st.dictionaries(names, names, max_size=3)


def _few(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=3).map(tuple)


_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": names,
    "int": whole,
    "bool": st.booleans(),
    "float": numbers,
    "float | None": st.none() | numbers,
    "int | None": st.none() | st.integers(-255, 255),
    "Saves | None": st.none() | st.sampled_from(Saves),
    "JobId": job_ids,
    "RunId": run_ids,
    "tuple[str, ...]": _few(names),
    "tuple[int, ...]": _few(whole),
    "tuple[int, int] | None": st.none() | st.tuples(whole, whole),
    "Mapping[str, str]": texts,
    "Mapping[str, float]": st.dictionaries(names, numbers, max_size=3),
    "Mapping[str, float | int | str | bool]": st.dictionaries(
        names, numbers | st.integers(-(2**62), 2**62) | names | st.booleans(), max_size=3
    ),
    "Mapping[str, object]": st.dictionaries(
        names,
        st.recursive(
            st.none() | st.booleans() | whole | numbers | names,
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
            max_leaves=4,
        ),
        max_size=3,
    ),
    **{
        kind.__name__: st.sampled_from(kind)
        for kind in (
            StopWhy,
            Saves,
            ExitReason,
            IfUnreachable,
            Launcher,
            Preemptible,
            RestartPolicy,
            GpuHealth,
            Capped,
            NodeCondition,
            Contact,
            JobState,
            Role,
        )
    },
}


def _values(kind: type) -> st.SearchStrategy[Any]:
    """Any value of a dataclass of the core: every field drawn by its declared type."""
    drawn: dict[str, st.SearchStrategy[Any]] = {}
    for one in fields(kind):
        declared = str(one.type)
        assert declared in _BY_TYPE, f"{kind.__name__}.{one.name}: no strategy for {declared}; add one here"
        drawn[one.name] = times_s if one.name == "at_s" else _BY_TYPE[declared]
    return st.builds(kind, **drawn)


def _add(kind: type) -> st.SearchStrategy[Any]:
    values = _BY_TYPE[kind.__name__] = _values(kind)
    _BY_TYPE[f"{kind.__name__} | None"] = st.none() | values
    _BY_TYPE[f"tuple[{kind.__name__}, ...]"] = _few(values)
    return values


_BY_TYPE["ExitReason | None"] = st.none() | _BY_TYPE["ExitReason"]
gpu_requests = _add(GpuRequest)
mounts = _add(Mount)
pod_volumes = _add(PodVolume)
pod_options = _add(PodOptions)
roles = _add(Roles)
job_specs = _add(JobSpec)
gpus = _add(Gpu)
caps = _add(Cap)
ssh_addresses = _add(Ssh)
nodes = _add(Node)
shares = _add(Share)
parts = _add(Part)
allocations = _add(Allocation)
stop_records = _add(StopRecord)
withdrawals = _add(Withdrawal)
runs = _add(Run)
batchings = _add(ev.Batching)
copied_outputs = _add(ev.CopiedOutputs)
checkpoint_copies = _add(CheckpointCopy)
job_records = _add(JobRecord)
events_by_name: dict[str, st.SearchStrategy[Any]] = {name: _values(kind) for name, kind in EVENT_TYPES.items()}
assert set(EVENT_TYPES.values()) == {kind for group in get_args(ev.Event) for kind in (get_args(group) or (group,))}


def events() -> st.SearchStrategy[Event]:
    """Any event, of any kind, alone."""
    return st.one_of(*events_by_name.values())


NODES = ("n1", "n2")
_PLACES = st.sampled_from(
    [
        Allocation(parts=(Part(node=node, gpus=gpus, cpus=1),), gpu_type="a")
        for node in NODES
        for gpus in ((0,), (1,), (0, 1))
    ]
    + [Allocation(parts=tuple(Part(node=node, gpus=(0, 1), cpus=2) for node in NODES), gpu_type="a")]
)


@st.composite
def histories(draw: st.DrawFn, *, max_events: int = 40) -> list[Event]:
    """A log that the law allows, of a few jobs that live through everything: plans, epochs, stops, losses, ends."""
    state = State()
    log: list[Event] = []
    for _ in range(draw(st.integers(0, max_events))):
        event = draw(_next_event(state, at_s=1e9 + len(log)))
        apply(state, event)
        log.append(event)
    return log


def _next_event(state: State, at_s: float) -> st.SearchStrategy[Event]:
    spec = st.builds(
        JobSpec,
        name=st.sampled_from(["train", "tune"]),
        command=st.just(("train",)),
        retries=st.integers(0, 2),
        uses_library=st.booleans(),
        restart=st.sampled_from(RestartPolicy),
    )
    key = st.sampled_from(["", f"key-{state.last_job + 1}"])
    choices: list[st.SearchStrategy[Event]] = [
        st.builds(ev.JobSubmitted, job=st.just(state.last_job + 1), spec=spec, at_s=st.just(at_s), key=key),
        _node_event(at_s),
        st.builds(ev.IdsSkipped, through=st.integers(0, state.last_job + 3), at_s=st.just(at_s)),
    ]
    if state.jobs:
        job = st.sampled_from(list(state.jobs.values()))
        choices += [job.flatmap(lambda job: _job_event(job, at_s))] * 4
    return st.one_of(*choices)


_PAIRS = tuple((Gpu(index=0, type="a"), Gpu(index=1, type="a", health=health)) for health in GpuHealth)


def _node_event(at_s: float) -> st.SearchStrategy[Event]:
    at, name = st.just(at_s), st.sampled_from(NODES)
    node = st.builds(Node, name=name, gpus=st.sampled_from(_PAIRS))
    return st.one_of(
        st.builds(ev.NodeObserved, node=node, at_s=at),
        st.builds(ev.NodeConditionChanged, node=name, condition=st.sampled_from(NodeCondition), at_s=at, why=names),
        st.builds(ev.NodeRemoved, node=name, at_s=at),
        st.builds(
            ev.NodeContactChanged, node=name, contact=st.sampled_from(Contact), at_s=at, boot_id=names, why=names
        ),
        st.builds(ev.PolicySet, name=st.sampled_from(["fifo", "elastic-fifo"]), at_s=at),
        st.builds(ev.PolicyRemembered, memory=st.just({"rounds": [1, 2]}), at_s=at),
    )


def _job_event(job: JobRecord, at_s: float) -> st.SearchStrategy[Event]:
    """Something that may happen to this job now, or a late report of a run that is over."""
    at = st.just(at_s)
    edits: list[st.SearchStrategy[Event]] = [
        st.builds(ev.JobPaused, job=st.just(job.id), at_s=at),
        st.builds(ev.JobResumed, job=st.just(job.id), at_s=at),
        st.builds(ev.PriorityChanged, job=st.just(job.id), priority=st.integers(-5, 5), at_s=at),
        st.builds(ev.JobUpdated, job=st.just(job.id), at_s=at, time_limit_s=st.sampled_from([None, 0.0, 60.0])),
        st.builds(ev.CheckpointCopied, job=st.just(job.id), at_s=at, epoch=st.integers(0, 9), problem=names),
        st.builds(ev.JobRewound, job=st.just(job.id), at_s=at, epoch=st.integers(0, 9), why=names),
    ]
    late: list[st.SearchStrategy[Event]] = [st.builds(ev.RunStarted, run=st.just(RunId(job.id, 99)), at_s=at)]
    if job.ended:
        copied = st.builds(ev.CopiedOutputs, into=names, files=st.integers(0, 9), problem=names)
        after = [
            st.builds(ev.JobRemoved, job=st.just(job.id), at_s=at),
            st.builds(ev.JobRequeued, job=st.just(job.id), at_s=at),
            st.builds(ev.OutputsCopied, job=st.just(job.id), at_s=at, copied=copied),
        ]
        return st.one_of(*after, *edits, *late)
    if not job.holding:
        plan = st.builds(ev.RunPlanned, run=st.just(RunId(job.id, job.attempts + 1)), allocation=_PLACES, at_s=at)
        return st.one_of(plan, plan, st.builds(ev.JobCancelled, job=st.just(job.id), at_s=at), *edits, *late)
    run = st.just(RunId(job.id, job.attempts))
    if may_be_withdrawn(job):
        edits.append(st.builds(ev.RunStopWithdrawn, run=run, at_s=at, reason=names, until_s=times_s))
    return st.one_of(
        st.builds(ev.RunPreparing, run=run, at_s=at, detail=st.text(max_size=3)),
        st.builds(ev.RunStarted, run=run, at_s=at),
        st.builds(ev.TrainingBegan, run=run, at_s=at, epochs=st.integers(0, 9)),
        st.builds(ev.EpochEnded, run=run, at_s=at, epoch=st.integers(0, 9), gpu_memory_mib=st.integers(0, 99)),
        st.builds(ev.RunStopRequested, run=run, why=st.sampled_from(StopWhy), at_s=at),
        st.builds(ev.StopAgreed, run=run, epoch=st.integers(0, 9), at_s=at),
        st.builds(ev.RunResized, run=run, allocation=_PLACES, at_s=at),
        st.builds(ev.RunEnded, run=run, reason=st.sampled_from(ExitReason), at_s=at),
        *edits,
        *late,
    )
