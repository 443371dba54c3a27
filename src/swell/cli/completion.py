"""What the shell offers when somebody presses Tab: jobs and policies there are. Never slow, never an error.

Click's own protocol: `_SWELL_COMPLETE=bash_source swell` prints what a shell has to load (docs/how-to/run-jobs.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from swell.core.errors import SwellError

OFFERED = 100
"""Jobs that are looked at: the newest."""


class _Job(StringParamType):
    """A job, as people name it."""

    name = "job"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return "A job is named by its id, its name or `last`; `swell ls` lists them."

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in jobs(ctx, param, incomplete)]


JOB = _Job()


def jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Ids if a number was begun, else names."""
    from swell.cli.common import client

    with contextlib.suppress(SwellError, OSError):
        found, _next = client(ctx.params.get("home")).jobs(state="all", limit=OFFERED)
        offered = [str(job["id"]) for job in found] if incomplete.isdecimal() else [job["name"] for job in found]
        return [word for word in dict.fromkeys((*offered, "last")) if word.startswith(incomplete)]
    return []


def words(*offered: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Some of the values that there are; others are taken as well, or refused with what to write."""
    return lambda _ctx, _param, incomplete: [word for word in offered if word.startswith(incomplete)]


PRIORITIES = words("low", "normal", "high", "urgent")
LAUNCHERS = words("single", "per-node", "per-gpu", "torchrun", "horovod", "mpi", "ps")
PREEMPTIBLE = words("auto", "restart", "never")


def policies(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from swell.cli.common import client

    with contextlib.suppress(SwellError, OSError):
        names = client(ctx.params.get("home")).get("/v1/policy")["policies"]
        return [name for name in names if name.startswith(incomplete)]
    return []
