"""Runs forecasts, advice and simulations (`lookahead.Desk`) off the event loop: one at a time, with a time limit.

With few jobs and a built-in policy they run in a thread, because starting a process would cost more than the work.
Otherwise, and for simulations, they run in a child process, which shares no interpreter lock with the API and can be
killed when it takes too long. The child starts on demand, restarts after a crash, and ends after a time without work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from swell.core.errors import Busy
from swell.daemon.lookahead import Desk, Done, Request, Simulate, Task
from swell.daemon.lookahead_process import LENGTH_BYTES
from swell.daemon.moments import Moment, Sender, packed, unpacked
from swell.policy.registry import custom_files, is_custom

log = logging.getLogger(__name__)

FEW_JOBS = 100
"""With more jobs than this, or a custom policy, the work runs in a child process."""
SMALL_DIFFERENCE = 50
"""With more changed records than this, a thread packs them."""
IDLE_S = 120.0


class NoAnswer(Busy):
    """There is no result; the message says why."""


class Helper:
    """Handles one request at a time, in order. At most `most_waiting` wait in its queue."""

    def __init__(self, *, niceness: int, most_waiting: int, limit_s: float) -> None:
        self._niceness = niceness
        self._most_waiting = most_waiting
        self._limit_s = limit_s
        self._turn = asyncio.Lock()
        self.waiting = 0  # for their turn
        self._here: tuple[Desk, Sender] | None = None
        self._child: tuple[Process, Sender] | None = None
        self._sent: Moment | None = None  # the last one
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the child, if there is one."""
        return self._child[0].pid if self._child is not None else None

    @property
    def full(self) -> bool:
        """Whether the queue is full."""
        return self.waiting >= self._most_waiting

    async def do(self, moment: Moment, task: Task, wait_s: float | None = None) -> Done:
        """Raises Busy if it is not its turn within `wait_s`, NoAnswer if there is no result."""
        if self.full:
            raise Busy("too much is being worked out at present; ask again in a few seconds")
        self.waiting += 1
        try:
            async with asyncio.timeout(wait_s):
                await self._turn.acquire()
        except TimeoutError:
            raise Busy("the daemon is working out other answers; ask again in a few seconds") from None
        finally:
            self.waiting -= 1
        # If the caller is cancelled, the answer is read anyway: otherwise the next caller would get it.
        working = asyncio.ensure_future(self._in_turn(moment, task))
        working.add_done_callback(_seen)
        return await asyncio.shield(working)

    async def _in_turn(self, moment: Moment, task: Task) -> Done:
        try:
            if isinstance(task, Simulate) or is_custom(moment.state.policy) or len(moment.state.active) > FEW_JOBS:
                done = await self._by_child(moment, task)
            else:
                done = await self._by_thread(moment, task)
        finally:
            self._turn.release()
        if done.failure:
            raise NoAnswer(f"policy {moment.state.policy} could not be followed into the future: {done.failure}")
        return done

    async def _by_thread(self, moment: Moment, task: Task) -> Done:
        await self.stop()
        desk, sender = self._here or (Desk(), Sender())
        self._here = desk, sender
        request = packed(self._request(sender, moment, task))
        return _done(await asyncio.to_thread(desk.handle, request))

    def _request(self, sender: Sender, moment: Moment, task: Task) -> Request:
        sent = None if moment is self._sent else sender.difference(moment)
        self._sent = moment
        return Request(moment=sent, task=task)

    async def _by_child(self, moment: Moment, task: Task) -> Done:
        if self._idle is not None:
            self._idle.cancel()
        try:
            async with asyncio.timeout(self._limit_s):
                return _done(await self._exchange(moment, task))
        except TimeoutError:
            await self.stop()
            raise NoAnswer(f"it took longer than {self._limit_s:g} s under policy {moment.state.policy}") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            if self._child is not None:  # else this module ended it
                log.warning("the process that looks ahead has died; another is started when it is needed: %s", error)
            await self.stop()
            raise NoAnswer("the process that works it out has died; ask again") from error
        except BaseException:
            await self.stop()  # part of an answer may be in the pipe
            raise
        finally:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    async def _exchange(self, moment: Moment, task: Task) -> bytes:
        process, sender = await self._started()
        assert process.stdin is not None  # as asked for
        assert process.stdout is not None
        request = self._request(sender, moment, task)
        small = request.moment is None or len(request.moment.records) <= SMALL_DIFFERENCE
        data = packed(request) if small else await asyncio.to_thread(packed, request)
        process.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        process.stdin.write(data)
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
        return await process.stdout.readexactly(length)

    async def _started(self) -> tuple[Process, Sender]:
        if self._child is None:
            self._here, self._sent = None, None
            # -P: import no module from the daemon's working directory, to which others may write.
            arguments = ("-P", "-m", "swell.daemon.lookahead_process", str(self._niceness), *custom_files())
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
            self._child = process, Sender()
        return self._child

    def _end_idle(self) -> None:
        if not self._turn.locked():
            self._kill()

    def _kill(self) -> Process | None:
        child, self._child = self._child, None
        if child is None:
            return None
        self._sent = None
        if child[0].returncode is None:
            with suppress(ProcessLookupError):  # by its id: Process.kill would reap a process that has just ended
                os.kill(child[0].pid, signal.SIGKILL)
        return child[0]

    async def stop(self) -> None:
        """End the child, if there is one. The next request starts another."""
        if self._idle is not None:
            self._idle.cancel()
        process = self._kill()
        if process is not None:
            await process.wait()


def _seen(working: asyncio.Future[Done]) -> None:
    """Marks the exception as retrieved, so that asyncio does not log it: no caller waits for it any more."""
    if not working.cancelled():
        working.exception()


def _done(data: bytes) -> Done:
    done = unpacked(data)
    assert isinstance(done, Done)
    return done
