"""Logs of containers go on from where they were, whoever comes back, and hold nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from swell.executors.kubernetes import logs
from swell.executors.kubernetes.api import Api, Refusal
from swell.executors.kubernetes.logs import Logs, Source, _Keeper, read


def line(second: int, text: str, nanos: str = "000000000") -> bytes:
    return f"2027-01-15T08:00:{second:02d}.{nanos}Z {text}".encode()


def take(directory: Path, *chunks: bytes, end: bool = True) -> bytes:
    keeper = _Keeper(directory)
    for chunk in chunks:
        keeper.take(chunk)
    if end:
        keeper.take_rest()
    keeper.close()
    return (directory / "log").read_bytes()


def test_lines_are_kept_without_their_times_also_when_chunks_cut_them(tmp_path: Path) -> None:
    whole = line(1, "epoch 1\n") + line(2, "40%\r80%\n") + line(3, "no newline at the end")
    assert take(tmp_path, whole[:20], whole[20:60], whole[60:]) == b"epoch 1\n40%\r80%\nno newline at the end"


def test_lines_of_two_streams_are_kept_in_their_order_whatever_their_times(tmp_path: Path) -> None:
    """Runtimes stamp output and errors apart: a line may be older than the one before it."""
    told = line(2, "working\n"), line(1, "ValueError: no such layer\n"), line(1, "bye\n")
    assert take(tmp_path, told[0] + told[1], told[2]) == b"working\nValueError: no such layer\nbye\n"
    assert (tmp_path / "log.at").read_text().split()[1].startswith("2027-01-15T08:00:02")


def test_what_is_sent_again_after_an_outage_is_kept_once(tmp_path: Path) -> None:
    take(tmp_path, line(1, "one\n") + line(2, "two\n"), end=False)
    again = line(1, "one\n") + line(2, "two\n") + line(2, "two and a half\n", nanos="5") + line(3, "three\n")
    assert take(tmp_path, again) == b"one\ntwo\ntwo and a half\nthree\n"


def test_a_crash_between_a_line_and_its_time_keeps_the_line_once(tmp_path: Path) -> None:
    take(tmp_path, line(1, "one\n"))
    with (tmp_path / "log").open("ab") as log:
        log.write(b"tw")
    assert take(tmp_path, line(2, "two\n")) == b"one\ntwo\n"


def test_the_kubelets_own_complaints_are_no_lines_of_the_log(tmp_path: Path) -> None:
    assert take(tmp_path, line(1, "one\n"), b"unable to retrieve container logs for containerd://8ff3") == b"one\n"


def test_a_log_ends_when_its_worker_has_and_all_was_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"here\n")
    assert not read(tmp_path / "log", 0, 3, ended=True).end
    assert read(tmp_path / "log", 3, 10, ended=True).end
    assert not read(tmp_path / "log", 5, 10, ended=False).end
    assert read(tmp_path / "none", 0, 10, ended=True).end


class Node:
    """Answers in order, the last one again and again: what it sends of a log, or why it does not."""

    def __init__(self, *answers: bytes | Refusal) -> None:
        self.answers = list(answers)
        self.asked = asyncio.Event()

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, spare: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.asked.set()
        if isinstance(answer, Refusal):
            raise answer
        yield self._sent(answer)

    async def _sent(self, answer: bytes) -> AsyncIterator[bytes]:
        yield answer


NO_LOG = Refusal(400, "BadRequest", "failed to try resolving symlinks")
COMPLAINT = b"unable to retrieve container logs for containerd://8ff3"


def drained(directory: Path, *answers: bytes | Refusal, ran: bool = True, followed: bool = False) -> tuple[int, bytes]:
    """How often it was tried until it was done, and the log then."""

    async def play() -> int:
        node = Node(*answers)
        kept = Logs(cast(Api, node))
        source = Source(namespace="n", pod="p", container="rank-0", directory=directory)
        if followed:
            kept.follow(source)
            await node.asked.wait()
        for tries in range(1, 10):
            if await kept.drain(source, ran=ran):
                return tries
        return 0

    tries = asyncio.run(play())
    log = directory / "log"
    return tries, log.read_bytes() if log.exists() else b""


def test_a_log_that_its_node_refuses_for_a_moment_is_asked_for_again_and_whole(tmp_path: Path) -> None:
    take(tmp_path, line(1, "one\n"))
    assert drained(tmp_path, NO_LOG, COMPLAINT, line(1, "one\n") + line(2, "two\n")) == (3, b"one\ntwo\n")


def test_a_log_that_its_node_has_lost_says_so_at_its_end(tmp_path: Path) -> None:
    take(tmp_path, line(1, "one\n"))
    tries, log = drained(tmp_path, NO_LOG)
    assert tries == logs.TRIES
    assert log.startswith(b"one\nswell: lines may be missing here")
    assert b"resolving symlinks" in log


def test_a_container_that_never_ran_has_no_log_and_nobody_waits_for_it(tmp_path: Path) -> None:
    assert drained(tmp_path, NO_LOG, ran=False) == (1, b"")


def test_a_log_that_was_followed_to_its_end_is_whole_when_its_node_forgets_it(tmp_path: Path) -> None:
    """As kubelets do with pods that are deleted, within moments: some end the stream, some complain at its end."""
    assert drained(tmp_path / "ends", line(1, "one\n"), NO_LOG, followed=True) == (1, b"one\n")
    assert drained(tmp_path / "complains", line(1, "one\n") + COMPLAINT, NO_LOG, followed=True) == (1, b"one\n")


def test_a_log_of_which_a_follower_got_only_a_complaint_is_not_whole(tmp_path: Path) -> None:
    take(tmp_path, line(1, "one\n"))
    tries, log = drained(tmp_path, COMPLAINT, NO_LOG, followed=True)
    assert tries == logs.TRIES
    assert b"lines may be missing here" in log


def test_a_log_that_had_ended_before_its_container_was_told_as_over_is_drained_at_once(tmp_path: Path) -> None:
    """Who followed it slept for a second or more then, at the end of every run and at each resize."""

    async def play() -> None:
        node = Node(line(1, "one\n"))
        kept = Logs(cast(Api, node))
        source = Source(namespace="n", pod="p", container="rank-0", directory=tmp_path)
        kept.follow(source)
        while source not in kept._whole:
            await asyncio.sleep(0)
        async with asyncio.timeout(logs.AGAIN_S / 2):
            assert await kept.drain(source, ran=True)

    asyncio.run(play())
