"""From records to rows of the tables that people read. Nothing of a job's environment is in them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime

from swell.core.resources import Allocation, Node
from swell.core.state import JobRecord, Run
from swell.store import codec
from swell.store.projection import Moved
from swell.store.reported import reported_of

Value = str | int | float | bytes | None
Row = tuple[Value, ...]

JOB_COLUMNS = (
    "id name owner team batch state gpus gpus_min gpus_max nodes priority paused submitted_at started_at ended_at"
    " epochs_done epochs_total attempts failures preemptions resizes migrations waited_s ran_s gpu_s message record"
    " reported command image metrics"
)
RUN_COLUMNS = (
    "job attempt gpus gpu_type nodes planned_at started_at ended_at"
    " reason stop_why exit_reason exit_code message record"
)
NODE_COLUMNS = "name condition why gpus cpus memory_mib rack address executor"
GPU_COLUMNS = "node gpu type memory_mib health why others"
MOVE_COLUMNS = "seq job attempt at from_nodes to_nodes reason"


def job_row(job: JobRecord) -> Row:
    spec, held = job.spec, job.allocation
    return (
        job.id,
        text(spec.name),
        text(spec.user),
        text(spec.team),
        text(job.batch),
        job.state.value,
        held.gpus if held else 0,
        spec.gpus.min,
        spec.gpus.max,
        _nodes(held),
        job.priority,
        int(job.paused),
        when(job.submitted_s),
        when(job.first_started_s),
        when(job.ended_s),
        job.epochs_done,
        job.epochs_total,
        job.attempts,
        job.failures,
        job.preemptions,
        job.resizes,
        job.migrations,
        job.waited_s,
        job.ran_s,
        job.gpu_s,
        text(job.message),
        codec.encode(job),
        None,  # all of it is in the record
        *plain_columns(job),
    )


def reported_row(job: JobRecord) -> Row:
    return job.epochs_done, job.epochs_total, codec.encode(reported_of(job)), _metrics(job), job.id


def plain_columns(job: JobRecord) -> tuple[str, str, str]:
    """Command, image and last metrics, for people who read with SQL."""
    spec = job.spec
    shell = spec.command[:2] == ("/bin/sh", "-c") and len(spec.command) == 3
    return text(spec.command[2] if shell else shlex.join(spec.command)), text(spec.image), _metrics(job)


def _metrics(job: JobRecord) -> str:
    return text(json.dumps(dict(job.metrics), sort_keys=True)) if job.metrics else "{}"


def run_row(run: Run) -> Row:
    return (
        run.id.job,
        run.id.attempt,
        run.allocation.gpus,
        text(run.allocation.gpu_type),
        _nodes(run.allocation),
        when(run.planned_s),
        when(run.started_s),
        when(run.ended_s),
        text(run.reason),
        run.stop.why.value if run.stop else None,
        run.exit_reason.value if run.exit_reason else None,
        run.exit_code,
        text(run.message),
        codec.encode(run),
    )


def node_row(node: Node) -> Row:
    return (
        text(node.name),
        node.condition.value,
        text(node.why),
        len(node.gpus),
        node.cpus,
        node.memory_mib,
        text(node.rack),
        text(node.address),
        text(node.executor),
    )


def gpu_rows(node: Node) -> Iterable[Row]:
    for gpu in node.gpus:
        health, others = gpu.health.value, int(gpu.others)
        yield text(node.name), gpu.index, text(gpu.type), gpu.memory_mib, health, text(gpu.why), others


def move_row(move: Moved) -> Row:
    places = text(",".join(move.before)), text(",".join(move.after))
    return move.seq, move.run.job, move.run.attempt, when(move.at_s), *places, text(move.reason)


def _nodes(allocation: Allocation | None) -> str:
    return text(",".join(allocation.nodes)) if allocation else ""


def text(value: str) -> str:
    """As people may see it: PostgreSQL refuses NUL in text, so it is shown as the replacement character everywhere."""
    return value.replace("\0", "\ufffd") if "\0" in value else value


def when(at_s: float | None) -> str | None:
    if at_s is None:
        return None
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # beyond the calendar: a broken clock somewhere; the record has it
        return str(at_s)
