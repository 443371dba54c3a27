"""Turns what executors observe into events: runs that started or ended and why, nodes that came or changed. Pure;
`daemon.observing` calls it."""

from __future__ import annotations

from dataclasses import fields, replace

from swell.core import events as ev
from swell.core.cluster_changes import kept_facts
from swell.core.contact import runs_on
from swell.core.events import Event, ExitReason, StopWhy
from swell.core.exits import reason_when_stopping
from swell.core.observations import (
    Adopted,
    CheckpointKept,
    FilesFound,
    GpusMeasured,
    NodeGone,
    NodeHeard,
    NodeSeen,
    Observation,
    Rewound,
    RunFetching,
    RunGone,
    RunProgress,
    RunUp,
)
from swell.core.resources import Gpu, Node
from swell.core.state import JobRecord, State

FALL_MIB = 1024
"""A fall of the memory that others use on a GPU is recorded only if it is at least this large, or to zero."""


def events_seen(state: State, seen: Observation, *, signalled: bool) -> list[Event]:
    """The events of one observation; none if it is known already. `signalled`: this daemon sent, or may have sent, a
    signal to the run."""
    if isinstance(seen, NodeSeen):
        return _node(state, seen)
    if isinstance(seen, NodeGone):
        return _gone(state, seen)
    if isinstance(seen, FilesFound | Adopted | NodeHeard | GpusMeasured):
        return []
    if isinstance(seen, CheckpointKept):
        return checkpoint_kept(state, seen)
    record = state.jobs.get(seen.run.job)
    if record is None or record.run is None or record.run.id != seen.run or not record.holding:
        return []
    if isinstance(seen, RunFetching):
        known = record.run.started_s is not None or record.run.preparing == seen.detail
        return [] if known else [ev.RunPreparing(run=seen.run, at_s=seen.at_s, detail=seen.detail)]
    if isinstance(seen, RunUp):
        return [] if record.run.started_s is not None else [ev.RunStarted(run=seen.run, at_s=seen.at_s)]
    if isinstance(seen, RunProgress):
        return _progress(record, seen)
    if isinstance(seen, Rewound):
        news = record.run.began_s is None and seen.epoch < record.epochs_done
        return [ev.JobRewound(job=record.id, epoch=seen.epoch, at_s=seen.at_s, why=seen.why)] if news else []
    return [
        ev.RunEnded(
            run=seen.run,
            reason=reason_when_stopping(record, seen.reason, seen.exit_code, signalled=signalled, ended_s=seen.at_s),
            at_s=seen.at_s,
            exit_code=seen.exit_code,
            message=_message(record, seen),
        )
    ]


def checkpoint_kept(state: State, seen: CheckpointKept) -> list[Event]:
    """The event of a copied checkpoint; none if it is known, because executors repeat the same problem."""
    record = state.jobs.get(seen.job)
    if record is None:
        return []
    known, event = record.copy, ev.CheckpointCopied(**{f.name: getattr(seen, f.name) for f in fields(seen)})
    same = known is not None and (known.problem, known.shared_by) == (seen.problem, seen.shared_by)
    if same and known is not None and (seen.problem or (known.epoch, known.bytes) == (seen.epoch, seen.bytes)):
        return []
    return [event]


def _progress(record: JobRecord, seen: RunProgress) -> list[Event]:
    """Progress that the run made without a daemon. It has no times; only the run's own reports have speeds."""
    events: list[Event] = []
    done = record.epochs_done
    if record.run is not None and record.run.began_s is None:
        done = seen.resumed
        events.append(ev.TrainingBegan(run=seen.run, at_s=seen.began_s, epoch=done, epochs=seen.total, unit=seen.unit))
    if seen.epochs > done:
        events.append(ev.EpochEnded(run=seen.run, at_s=seen.at_s, epoch=seen.epochs, count=seen.epochs - done))
    return events


def _message(record: JobRecord, gone: RunGone) -> str:
    stop = record.run.stop if record.run else None
    if stop is None:
        return gone.message
    if stop.why is StopWhy.TIMED_OUT:
        return stop.reason
    if stop.why is StopWhy.CANCELLED:
        return stop.reason or (f"cancelled by {stop.by}" if stop.by else "cancelled")
    return gone.message


def _node(state: State, seen: NodeSeen) -> list[Event]:
    known = state.nodes.get(seen.node.name)
    if known is None and seen.node.executor == "ssh":  # it was removed while it was looked at
        return []
    node = seen.node if known is None else _steadied(known, seen.node)
    if known is not None and known == kept_facts(known, node):
        return []
    return [ev.NodeObserved(node=node, at_s=seen.at_s)]


def _gone(state: State, seen: NodeGone) -> list[Event]:
    """End the runs of a node that has left its cluster, and remove the node."""
    if seen.node not in state.nodes:
        return []
    why = f"{seen.node} has left its cluster"
    ends = [
        ev.RunEnded(run=job.run.id, reason=ExitReason.NODE_LOST, at_s=seen.at_s, message=why)
        for job in runs_on(state, seen.node)
        if job.run is not None
    ]
    return [*ends, ev.NodeRemoved(node=seen.node, at_s=seen.at_s)]


def _steadied(known: Node, seen: Node) -> Node:
    """`seen` with the memory use of others as `_steadied_gpu` keeps it. The result is what is recorded, so that a
    change on one GPU does not record the noise of the others."""
    if len(seen.gpus) != len(known.gpus):
        return seen
    return replace(seen, gpus=tuple(map(_steadied_gpu, known.gpus, seen.gpus)))


def _steadied_gpu(known: Gpu, seen: Gpu) -> Gpu:
    """Keeps the recorded memory use of others if it fell only a little, so that noise makes no events. A rise counts
    at once, so that no job is placed on memory that is in use."""
    fell_mib = known.others_memory_mib - seen.others_memory_mib
    little = 0 < fell_mib < FALL_MIB and seen.others_memory_mib > 0
    return replace(seen, others_memory_mib=known.others_memory_mib) if little else seen
