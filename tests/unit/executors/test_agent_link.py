"""Streams of trainings over the link to a machine's agent: carried both ways, until either side has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from swell.executors.ssh.link import AgentLink, Pipe, Streams
from swell.shim.wire import HEAD, decoded, sizes

ENDS_S = 30.0
"""Far more than anything here takes."""


class Kept:
    """What was written, in order."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data.append(data)

    async def drain(self) -> None:
        """Nothing is in the way."""

    def close(self) -> None:
        self.closed = True


async def no_words() -> str:
    return ""


class Line:
    """A link whose daemon answers each stream with what the test feeds."""

    def __init__(self) -> None:
        self.far, self.near, self.answers = Kept(), Kept(), asyncio.StreamReader()
        pipe = Pipe(reader=asyncio.StreamReader(), writer=self.far, close=lambda: None, why=no_words)
        self.link = AgentLink(pipe, 1, lambda _: None, self.upstream)

    async def upstream(self) -> Streams:
        return self.answers, cast(Any, self.near)

    def frames(self) -> list[tuple[dict[str, Any], bytes]]:
        found = []
        for data in self.far.data:
            of_text, of_data = sizes(data[: HEAD.size])
            body = data[HEAD.size :]
            assert len(body) == of_text + of_data
            found.append((decoded(body[:of_text]), body[of_text:]))
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(ENDS_S):
            while not condition():
                await asyncio.sleep(0)


def test_what_a_training_says_and_is_answered_is_carried_until_it_has_said_all() -> None:
    async def scene() -> None:
        line = Line()
        line.link._relay(4, b"GET", end=False)
        await line.until(lambda: line.near.data == [b"GET"])
        line.answers.feed_data(b"200")
        await line.until(lambda: line.frames() == [({"stream": 4}, b"200")])
        line.link._relay(4, b"", end=True)
        await line.until(lambda: not line.link._tasks)
        assert line.near.closed
        line.answers.feed_data(b"more")
        await asyncio.sleep(0)
        assert len(line.frames()) == 1, "nobody listens there any more"

    asyncio.run(scene())


def test_what_the_daemon_has_ended_is_ended_at_the_machine() -> None:
    async def scene() -> None:
        line = Line()
        line.link._relay(4, b"GET", end=False)
        line.answers.feed_eof()
        await line.until(lambda: line.frames() == [({"stream": 4, "end": True}, b"")])
        line.link._relay(4, b"", end=True)
        await line.until(lambda: not line.link._tasks)

    asyncio.run(scene())


def test_what_is_carried_ends_with_the_link() -> None:
    async def scene() -> None:
        line = Line()
        line.link._relay(4, b"GET", end=False)
        await line.until(lambda: line.near.data == [b"GET"])
        line.link.close("the cable was cut")
        await line.until(lambda: not line.link._tasks)
        assert line.near.closed

    asyncio.run(scene())
