"""Turns the end of a command to an executor into its answer: the same rule for all executors."""

from __future__ import annotations

from collections.abc import Awaitable

from swell.executors.transport import Unreachable
from swell.ports import Answer, Done, Refused, Unknown

Refusals = type[Exception] | tuple[type[Exception], ...]


async def answer_of(work: Awaitable[object], refusals: Refusals = OSError) -> Answer:
    """Done; Unknown if a machine does not answer; Refused for these errors."""
    try:
        await work
    except Unreachable as error:
        return Unknown(why=str(error))
    except refusals as error:
        return refused(error)
    return Done()


def refused(error: Exception) -> Refused:
    return Refused(why=str(error), errno=error.errno if isinstance(error, OSError) else None)
