"""What statuses of pods mean: whose fault an end was, and the sentence for it."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core.events import ExitReason
from swell.executors.kubernetes.objects import Pod
from swell.executors.kubernetes.verdict import judge
from swell.executors.verdict import End
from unit.executors.pods.pod_values import CREATED_S, last_word, pod, terminated

RUNNING: dict[str, Any] = {"running": {"startedAt": "2027-01-15T08:00:01Z"}}
WAITING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
LATER_S = CREATED_S + 60
DELETED = {"deletionTimestamp": "2027-01-15T08:00:30Z", "deletionGracePeriodSeconds": 30}


def end(found: Pod, *, stopped: bool = False, now_s: float = LATER_S) -> End:
    ends = judge(found, stopped=stopped, now_s=now_s).ends
    assert ends, "it has not ended"
    return ends[0]


def ended(found: Pod, **more: Any) -> tuple[ExitReason, int | None]:
    one = end(found, **more)
    return one.reason, one.code


def test_a_running_pod_has_not_ended_and_is_up() -> None:
    judged = judge(pod(RUNNING, RUNNING), stopped=False, now_s=LATER_S)
    assert judged.ends == ()
    assert judged.up == (0, 1)


def test_the_last_word_of_its_shim_says_how_a_worker_ended() -> None:
    assert ended(pod(terminated(0, word=last_word()))) == (ExitReason.FINISHED, 0)
    assert ended(pod(terminated(3, word=last_word(3)))) == (ExitReason.USER_ERROR, 3)
    assert ended(pod(terminated(85, word=last_word(85)))) == (ExitReason.STOPPED, 85)
    assert ended(pod(terminated(139, word=last_word(None, signal=11)))) == (ExitReason.KILLED, None)
    assert end(pod(terminated(139, word=last_word(None, signal=11)))).message == "ended by SIGSEGV"


def test_without_a_last_word_the_exit_code_says_it() -> None:
    assert ended(pod(terminated(0, reason="Completed"))) == (ExitReason.FINISHED, 0)
    assert ended(pod(terminated(2))) == (ExitReason.USER_ERROR, 2)
    assert ended(pod(terminated(137))) == (ExitReason.KILLED, None)
    assert end(pod(terminated(139))).message == "ended by SIGSEGV"


def test_who_ended_first_is_told_by_the_nodes_own_clock() -> None:
    """Both are seen at once: the rank that was killed, and the one that failed because of it."""
    failed = terminated(1, word=last_word(1, at_s=LATER_S - 1.0))
    killed = terminated(137, word=last_word(None, signal=9, at_s=LATER_S - 1.2))
    ends = judge(pod(failed, killed), stopped=False, now_s=LATER_S).ends
    assert min(ends, key=lambda end: end.at_s).reason is ExitReason.KILLED
    whole = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2027-01-15T08:00:58Z"}}
    ends = judge(pod(failed, whole), stopped=False, now_s=LATER_S).ends
    assert min(ends, key=lambda end: end.at_s).reason is ExitReason.KILLED
    ahead = judge(pod(terminated(1, word=last_word(1, at_s=LATER_S + 9.0))), stopped=False, now_s=LATER_S)
    assert ahead.ends[0].at_s == LATER_S, "a clock that is ahead tells nothing from the future"


def test_too_much_memory_is_told_apart_from_a_kill() -> None:
    assert ended(pod(terminated(137, reason="OOMKilled")))[0] is ExitReason.OUT_OF_MEMORY


def test_a_pod_that_swell_stopped_has_stopped_whatever_it_left_with() -> None:
    killed = pod(terminated(137), meta=DELETED)
    assert ended(killed, stopped=True)[0] is ExitReason.STOPPED
    polite = pod(terminated(0, word=last_word(asked="term")), meta=DELETED)
    assert ended(polite, stopped=True)[0] is ExitReason.STOPPED


@pytest.mark.parametrize("state", [terminated(137), terminated(85, word=last_word(85, asked="term"))])
def test_a_pod_that_somebody_else_deleted_is_no_failure_and_says_so(state: dict[str, Any]) -> None:
    found = end(pod(state, meta=DELETED))
    assert found.reason is ExitReason.STOPPED
    assert "deleted by somebody other than Swell" in found.message


def test_newer_clusters_say_themselves_why_they_ended_a_pod() -> None:
    why = {"type": "DisruptionTarget", "status": "True", "message": "preempting to accommodate a higher priority pod"}
    found = end(pod(terminated(137), meta=DELETED, conditions=[why]))
    assert found.message.startswith("preempting to accommodate a higher priority pod;")


def test_a_pod_that_finished_before_it_was_evicted_has_finished() -> None:
    assert ended(pod(terminated(0, word=last_word()), meta=DELETED))[0] is ExitReason.FINISHED


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Evicted", ExitReason.NODE_FULL),
        ("NodeShutdown", ExitReason.NODE_LOST),
        ("NodeLost", ExitReason.NODE_LOST),
        ("Preempting", ExitReason.STOPPED),
        ("OutOfnvidia.com/gpu", ExitReason.NODE_FULL),
        ("UnexpectedAdmissionError", ExitReason.NODE_FULL),
    ],
)
def test_what_the_cluster_did_to_a_pod_is_never_the_jobs_fault(reason: str, expected: ExitReason) -> None:
    found = end(pod(WAITING, phase="Failed", reason=reason, message="The node was low on resource: memory."))
    assert found.reason is expected
    assert "low on resource" in found.message


def test_a_pod_that_is_not_placed_is_given_up_after_half_a_minute_with_the_schedulers_words() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient gpu."}
    waits = pod(WAITING, phase="Pending", spec={"nodeName": ""}, conditions=[said])
    assert judge(waits, stopped=False, now_s=CREATED_S + 29).ends == ()
    found = end(waits, now_s=CREATED_S + 30)
    assert (found.reason, found.message) == (
        ExitReason.NODE_FULL,
        "not placed by Kubernetes within 30 s: Insufficient gpu.",
    )


def test_a_pod_that_kueue_holds_back_is_given_up_with_what_to_do() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}
    found = end(pod(WAITING, phase="Pending", spec={"nodeName": ""}, conditions=[said]), now_s=CREATED_S + 30)
    assert found.reason is ExitReason.NODE_FULL
    assert "Kueue" in found.message
    assert "namespace without it" in found.message


def test_an_image_that_cannot_be_pulled_fails_the_start_but_not_at_once() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
    assert judge(pod(waiting, phase="Pending"), stopped=False, now_s=CREATED_S + 5).ends == ()
    found = end(pod(waiting, phase="Pending"))
    assert found.reason is ExitReason.START_FAILED
    assert 'Back-off pulling image "x"' in found.message


def test_a_name_that_is_no_image_fails_at_once() -> None:
    waiting = {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image"}}
    assert ended(pod(waiting, phase="Pending"), now_s=CREATED_S + 1)[0] is ExitReason.START_FAILED


def test_a_program_that_is_not_there_never_was_up() -> None:
    failed = {"step": "exec", "said": "no", "errno": 2, "program": "traim", "there": False, "cwd": "/w"}
    found = pod(terminated(127, word=last_word(None, failed=failed)))
    assert judge(found, stopped=False, now_s=LATER_S).up == ()
    assert end(found).reason is ExitReason.START_FAILED
    assert "cannot start traim: there is no such program" in end(found).message


def test_a_daemon_that_pods_cannot_reach_says_what_to_do_and_is_no_failure() -> None:
    failed = {"step": "reach", "said": "the pod cannot reach the daemon at http://x:1 (timed out)"}
    found = end(pod(terminated(127, word=last_word(None, failed=failed))))
    assert found.reason is ExitReason.NODE_FULL
    assert found.message.endswith("start the daemon with --advertise and an address that pods reach")


def test_a_pod_is_over_only_when_its_kubelet_says_so() -> None:
    assert not pod(RUNNING, meta=DELETED).over
    assert not pod(RUNNING, meta={**DELETED, "deletionGracePeriodSeconds": 0}).over
    assert not pod(WAITING, meta=DELETED).over
    assert pod(WAITING, meta={**DELETED, "deletionGracePeriodSeconds": 0}).over
    assert pod(terminated(0), terminated(0)).over
    assert not pod(terminated(0), RUNNING).over


@pytest.mark.parametrize("grace_s", [0, 20])
def test_a_pod_that_was_deleted_before_anybody_reported_on_it_has_stopped(grace_s: int) -> None:
    """Kubelets of 1.20 forget a container that they end on request: it then looks as if it was never made."""
    found = pod(WAITING, phase="Failed", meta={**DELETED, "deletionGracePeriodSeconds": grace_s})
    assert ended(found, stopped=True) == (ExitReason.STOPPED, None)
    assert ended(found) == (ExitReason.STOPPED, None)
    assert "somebody other than Swell" in end(found).message


def test_a_pod_that_is_over_and_was_not_deleted_was_lost() -> None:
    assert ended(pod(WAITING, phase="Failed"))[0] is ExitReason.SHIM_LOST


def test_the_trainings_own_record_comes_with_the_last_word() -> None:
    epochs = {"resumed": 1, "done": 4, "total": 9, "began_ago": 7.0, "at_ago": 1.0}
    assert judge(pod(terminated(0, word=last_word(epochs=epochs))), stopped=False, now_s=LATER_S).epochs == epochs
