"""Verbs that follow jobs to their end outlast a daemon that restarts: the jobs go on without it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from swell.cli.terminal import safe, say
from swell.client.errors import DaemonUnreachable

AWAY_S = 600.0
AGAIN_S = 0.5
T = TypeVar("T")


def patiently(ask: Callable[[], T], after: str = "", *, quiet: bool = False, away_s: float = AWAY_S) -> T:
    """`ask` again, for as long as `away_s`, while the daemon does not answer; it must be harmless to ask twice.
    `after`: the command that goes on from there once somebody gave up."""
    until_s = time.monotonic() + away_s
    told = quiet
    while True:
        try:
            return ask()
        except DaemonUnreachable as error:
            if time.monotonic() >= until_s:
                later = f"; later: {after}" if after else ""
                raise DaemonUnreachable(f"{error}. Jobs that run go on{later}") from error
            if not told:
                say(safe("WARNING: the daemon does not answer; jobs that run go on. Waiting for it"), err=True)
                told = True
        time.sleep(AGAIN_S)
