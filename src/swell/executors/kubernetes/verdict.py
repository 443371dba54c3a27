"""Decides what the statuses of a run's pods mean. Pure.

Each worker's end follows from its container's status, the termination message of `shim/pod.py`, and the cause of the
pod's end: if the cluster refused, evicted or deleted it, that is not a fault of the job. `executors.verdict` decides
what the ends mean for the run, as for machines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swell.core.events import ExitReason
from swell.core.exits import reason_of_exit
from swell.executors.kubernetes.objects import Container, Pod
from swell.executors.verdict import End, how_it_ended, why_not_started

PENDING_S = 30.0
"""A pod that the cluster has not placed by then, or whose image is unavailable, is given up, so that others get its
GPUs."""
_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff"})
_NEVER = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"})
_NOT_RUN = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
_SHUT_DOWN = frozenset({"NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
_PREEMPTED = frozenset({"Preempting", "Preempted"})
_BY_OTHERS = (
    "its pod was deleted by somebody other than Swell (a drained node, a pod of higher priority, `kubectl delete`); it "
    "goes on from its last checkpoint"
)
_LEASE_OVER = "its pod could not reach the daemon and ended its work when its lease was over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The present state of a pod for its run."""

    up: tuple[int, ...] = ()  # ranks whose program has started
    ends: tuple[End, ...] = ()
    epochs: Mapping[str, Any] | None = None  # the training's own record, from the termination message


def judge(pod: Pod, *, stopped: bool, now_s: float) -> Judged:
    """`stopped`: Swell itself has asked the run to stop."""
    words = {container.rank: last_word(container) for container in pod.containers}
    ends = [end for container in pod.containers if (end := _end(pod, container, words, stopped, now_s))]
    epochs = next((word["epochs"] for word in words.values() if word and word.get("epochs")), None)
    up = tuple(container.rank for container in pod.containers if _was_up(container, words[container.rank]))
    return Judged(up=up, ends=tuple(ends), epochs=epochs)


def lost(ranks: Sequence[int], why: str, now_s: float, reason: ExitReason = ExitReason.SHIM_LOST) -> list[End]:
    return [End(rank=rank, reason=reason, at_s=now_s, message=why) for rank in ranks]


def last_word(container: Container) -> Mapping[str, Any] | None:
    """The termination message of `shim/pod.py`; None: there is none, for example in an image without python3."""
    if container.state != "terminated" or not container.message.startswith("{"):
        return None
    try:
        found = json.loads(container.message)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "failed" in found else None


def _was_up(container: Container, word: Mapping[str, Any] | None) -> bool:
    if container.state != "terminated":
        return container.started
    return not word["failed"] if word is not None else container.reason not in _NOT_RUN


def _end(
    pod: Pod, container: Container, words: Mapping[int, Mapping[str, Any] | None], stopped: bool, now_s: float
) -> End | None:
    rank, word = container.rank, words[container.rank]
    by_others = pod.deleted_s is not None and not stopped
    if (why := _by_the_cluster(pod, now_s)) is not None:
        return End(rank=rank, reason=why[0], at_s=now_s, code=container.exit_code, message=why[1])
    if container.state == "terminated":
        return _ended(container, word, stopped, by_others, pod, _at_s(container, word, now_s))
    if (never := _never_starts(pod, container, now_s)) is not None:
        return End(rank=rank, reason=ExitReason.START_FAILED, at_s=now_s, message=never)
    if pod.over:
        return _without_status(pod, rank, stopped, now_s)
    return None


def _by_the_cluster(pod: Pod, now_s: float) -> tuple[ExitReason, str] | None:
    """The reason if the cluster ended the pod, which is never a fault of the job; None: it did not."""
    if pod.phase == "Failed" and pod.reason == "Evicted":
        return ExitReason.NODE_FULL, f"evicted by its node: {pod.message}"
    if pod.phase == "Failed" and pod.reason in _SHUT_DOWN:
        return ExitReason.NODE_LOST, f"its node was shut down: {pod.message or pod.reason}"
    if pod.phase == "Failed" and pod.reason in _PREEMPTED:
        return ExitReason.STOPPED, f"preempted by another pod of its cluster: {pod.message or pod.reason}"
    if pod.phase == "Failed" and pod.reason:  # OutOfcpu, UnexpectedAdmissionError, NodeAffinity: the kubelet's refusal
        return ExitReason.NODE_FULL, f"its node did not take the pod ({pod.reason}): {pod.message}"
    waited_s = now_s - pod.created_s if pod.created_s is not None else 0.0
    if not pod.node and pod.deleted_s is None and waited_s >= PENDING_S:
        why = pod.unschedulable or "the cluster's scheduler has not answered"
        return ExitReason.NODE_FULL, f"not placed by Kubernetes within {PENDING_S:.0f} s: {why}"
    return None


def _never_starts(pod: Pod, container: Container, now_s: float) -> str | None:
    if container.state != "waiting" or pod.deleted_s is not None:
        return None
    late = pod.created_s is not None and now_s - pod.created_s >= PENDING_S
    if container.reason in _NO_IMAGE and late:
        return f"its image cannot be had ({container.message or container.reason}); check `image:` and pull_secrets"
    if container.reason in _NEVER:
        return f"its container cannot be made ({container.reason}): {container.message}"
    return None


def _without_status(pod: Pod, rank: int, stopped: bool, now_s: float) -> End:
    """The end of a container without a status: it never ran, or its kubelet removed it before reporting (as version
    1.20 does for deleted pods)."""
    if stopped:
        return End(rank=rank, reason=ExitReason.STOPPED, at_s=now_s, message="stopped; its node reported no exit code")
    if pod.deleted_s is not None:
        return End(rank=rank, reason=ExitReason.STOPPED, at_s=now_s, message=_by_whom(pod))
    return End(rank=rank, reason=ExitReason.SHIM_LOST, at_s=now_s, message="its node reported no exit code")


def _by_whom(pod: Pod) -> str:
    """For people: what ended a pod, other than Swell."""
    return f"{pod.disrupted}; it goes on from its last checkpoint" if pod.disrupted else _BY_OTHERS


def _at_s(container: Container, word: Mapping[str, Any] | None, now_s: float) -> float:
    """When a worker ended, by its node's clock, because the first end caused the others. Never in the future. Without a
    termination message it was killed, and the whole seconds of its kubelet place it before the others."""
    told = word.get("at_s") if word is not None else container.finished_s
    return min(now_s, float(told)) if isinstance(told, int | float) else now_s


def _ended(
    container: Container, word: Mapping[str, Any] | None, stopped: bool, by_others: bool, pod: Pod, at_s: float
) -> End:
    rank = container.rank
    if word is not None and word["failed"]:
        return _not_started(rank, word, at_s)
    if container.reason in _NOT_RUN:
        message = f"its container could not be started: {container.message or container.reason}; images need /bin/sh"
        return End(rank=rank, reason=ExitReason.START_FAILED, at_s=at_s, message=message)
    code, number = _code(container, word)
    asked = bool(word["asked"]) if word is not None else False
    asked = asked or ((stopped or by_others) and (code != 0 or word is None))
    out_of_memory = container.reason == "OOMKilled"
    lease_over = word is not None and word["asked"] == "lease"
    reason = reason_of_exit(
        code=code, by_signal=number is not None, out_of_memory=out_of_memory, asked=asked, lease_over=lease_over
    )
    message = _LEASE_OVER if lease_over else how_it_ended(reason, code, number)
    if by_others and reason is ExitReason.STOPPED:
        message = _by_whom(pod)
    return End(rank=rank, reason=reason, at_s=at_s, code=code, message=message)


def _code(container: Container, word: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """The exit code, or the signal that ended it: a runtime reports 128 plus its number."""
    if word is not None:
        return word["code"], word["signal"]
    code = container.exit_code
    if code is not None and 128 < code < 192:
        return None, code - 128
    return code, None


def _not_started(rank: int, word: Mapping[str, Any], at_s: float) -> End:
    failed = word["failed"]
    if word["asked"] or failed["step"] == "stopped":
        return End(rank=rank, reason=ExitReason.STOPPED, at_s=at_s, message="stopped before it started")
    if failed["step"] in ("cwd", "exec"):
        return End(rank=rank, reason=ExitReason.START_FAILED, at_s=at_s, message=why_not_started(failed))
    advice = "; start the daemon with --advertise and an address that pods reach" if failed["step"] == "reach" else ""
    return End(rank=rank, reason=ExitReason.NODE_FULL, at_s=at_s, message=f"{failed['said']}{advice}")
