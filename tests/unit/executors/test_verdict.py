"""What facts about workers mean: one table for one worker, then gangs."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.observations import RunGone
from swell.executors.verdict import (
    Member,
    Roster,
    Seen,
    Sight,
    Stage,
    breaks_gang,
    end_of,
    ends_of,
    roster_from_json,
    verdict,
    why_not_started,
)

RUN = RunId(7, 2)
NOW_S = 100.0


def exit_(at_s: float = 10.0, **said: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"code": None, "signal": None, "oom": False, "asked": "", "failed": {}, "last": ""}
    return {**nothing, **said, "at_s": at_s}


def ended(rank: int = 0, at_s: float = 10.0, **said: Any) -> Seen:
    return Seen(rank=rank, stage=Stage.ENDED, up_s=1.0, exit=exit_(at_s, **said))


def up(rank: int) -> Seen:
    return Seen(rank=rank, stage=Stage.UP, up_s=1.0)


def lost(rank: int) -> Seen:
    return Seen(rank=rank, stage=Stage.LOST, up_s=1.0)


def roster(*roles: str) -> Roster:
    members = tuple(Member(rank=rank, node="a", role=role) for rank, role in enumerate(roles))
    return Roster(run=RUN, members=members, grace_s=30.0)


def judged(*workers: Seen, roles: tuple[str, ...] = (), stop_s: float | None = None) -> RunGone | None:
    return verdict(roster(*(roles or ("worker",) * len(workers))), Sight(workers=workers, stop_s=stop_s), NOW_S)


R = ExitReason


@pytest.mark.parametrize(
    ("said", "stop_s", "reason", "message"),
    [
        ({"code": 0}, None, R.FINISHED, ""),
        ({"code": 0}, 5.0, R.FINISHED, ""),  # it finished before the signal reached it
        ({"code": 0, "asked": "term"}, 5.0, R.STOPPED, "exit code 0"),
        ({"code": 85}, None, R.STOPPED, ""),
        ({"code": 1, "last": "E: x"}, None, R.USER_ERROR, "exit code 1: E: x"),
        ({"code": 1}, 5.0, R.STOPPED, "exit code 1"),  # it fell over because its peers were stopped
        ({"code": 1}, 11.0, R.USER_ERROR, "exit code 1"),  # it had failed before anybody asked
        ({"code": 143, "asked": "term"}, None, R.STOPPED, "exit code 143"),
        ({"signal": 9, "asked": "kill"}, None, R.STOPPED, "ended by SIGKILL"),
        ({"signal": 15, "asked": "term", "last": "step 3"}, None, R.STOPPED, "ended by SIGTERM"),  # no cause of it
        ({"signal": 9}, None, R.KILLED, "ended by SIGKILL"),
        ({"signal": 11, "last": "x"}, None, R.KILLED, "ended by SIGSEGV: x"),
        ({"signal": 63}, None, R.KILLED, "ended by signal 63"),
        ({"signal": 9, "oom": True}, None, R.OUT_OF_MEMORY, None),
        ({"code": 137}, None, R.KILLED, "exit code 137"),  # of the shell around it
        ({"code": 137, "oom": True}, None, R.OUT_OF_MEMORY, None),
        ({"failed": {"step": "stopped"}}, None, R.STOPPED, "stopped before it started"),
        ({"failed": {"step": "log", "errno": 28, "said": "full"}}, None, R.NODE_FULL, None),
    ],
)
def test_how_one_worker_ended(said: dict[str, Any], stop_s: float | None, reason: R, message: str | None) -> None:
    end = end_of(ended(**said), stop_s, NOW_S)
    assert end is not None
    assert end.reason is reason
    assert message is None or end.message == message


def test_a_run_is_never_over_before_its_last_worker_is_swept() -> None:
    sweeping = Seen(rank=1, stage=Stage.ENDING, up_s=1.0, exit=exit_(code=0))
    assert judged(ended(0, code=0), sweeping) is None
    assert judged(ended(0, code=0), up(1)) is None


def test_the_end_of_a_run_is_that_of_its_last_worker() -> None:
    gone = judged(ended(0, at_s=10.0, code=0), ended(1, at_s=12.0, code=0))
    assert gone == RunGone(run=RUN, reason=R.FINISHED, at_s=12.0, exit_code=0)


def test_the_first_failure_is_the_reason_and_its_rank_is_named() -> None:
    gone = judged(
        ended(0, at_s=12.0, code=1, last="ConnectionResetError"),
        ended(1, at_s=10.0, code=2, last="ValueError: bad"),
        ended(2, at_s=11.0, signal=15, asked="term"),
    )
    assert gone is not None
    assert (gone.reason, gone.exit_code, gone.message) == (R.USER_ERROR, 2, "rank 1: exit code 2: ValueError: bad")


def test_a_lost_worker_is_the_reason_though_others_failed_before_it_was_noticed() -> None:
    gone = judged(ended(0, code=1, last="ConnectionResetError"), lost(1))
    assert gone is not None
    assert gone.reason is R.SHIM_LOST


def test_one_stopped_worker_makes_the_run_stopped() -> None:
    gone = judged(ended(0, code=0), ended(1, code=85))
    assert gone is not None
    assert (gone.reason, gone.exit_code) == (R.STOPPED, 85)


def test_servers_never_decide_what_became_of_a_run_unless_they_fail() -> None:
    roles = ("worker", "server")
    gone = judged(ended(0, code=0), ended(1, signal=15, asked="term"), roles=roles)
    assert gone is not None
    assert gone.reason is R.FINISHED
    gone = judged(ended(0, at_s=11.0, code=1), ended(1, at_s=10.0, signal=11), roles=roles)
    assert gone is not None
    assert gone.reason is R.KILLED


@pytest.mark.parametrize(
    ("workers", "roles", "broken"),
    [
        ((ended(0, code=0), up(1)), (), False),
        ((ended(0, code=1), up(1)), (), True),
        ((ended(0, code=85), up(1)), (), True),
        ((lost(0), up(1)), (), True),
        ((ended(0, code=0), up(1)), ("worker", "server"), True),
        ((up(0), up(1)), ("worker", "server"), False),
        ((ended(0, code=0), up(1), up(2)), ("worker", "worker", "server"), False),
    ],
)
def test_when_the_rest_of_a_gang_has_no_reason_to_go_on(
    workers: tuple[Seen, ...], roles: tuple[str, ...], broken: bool
) -> None:
    members = roster(*(roles or ("worker",) * len(workers)))
    assert (breaks_gang(members, ends_of(members, Sight(workers=workers), NOW_S)) is not None) is broken


def test_up_only_when_all_are() -> None:
    assert Sight(workers=(up(0), Seen(rank=1, stage=Stage.STARTING))).up_s is None
    assert Sight(workers=(up(0), Seen(rank=1, stage=Stage.UP, up_s=3.0))).up_s == 3.0


def test_a_roster_survives_its_file() -> None:
    made = Roster(
        run=RUN, members=(Member(rank=0, node="a", gpus=(0, 3)), Member(rank=1, node="b", role="server")), grace_s=2.5
    )
    assert roster_from_json(made.to_json()) == made


def test_every_start_failure_says_what_to_do() -> None:
    base = {"program": "./x", "cwd": "/w", "there": False, "said": "odd"}
    for number, words in (
        (2, "submit the file"),
        (7, "pass data in files"),
        (8, "first line"),
        (13, "chmod"),
        (5, "odd"),
    ):
        assert words in why_not_started({**base, "step": "exec", "errno": number})
    assert "interpreter" in why_not_started({**base, "step": "exec", "errno": 2, "there": True})
    assert "make room" in why_not_started({**base, "step": "log", "errno": 28})
    assert "odd" in why_not_started({**base, "step": "setup", "errno": None})
