"""Moments as people type them: `2h` (ago), `2026-11-01`, `2026-11-01T14:30`, `14:30` (today)."""

from __future__ import annotations

import time
from datetime import datetime

import click

from swell.jobfile.units import parse_duration_s

FORMS = "write how long ago (90m, 7d), a date (2026-11-01), or a time (14:30, 2026-11-01T14:30)"


class Moment(click.ParamType[float]):
    """Seconds since 1970, in the time zone of whoever types. `past`: one that is still to come is refused."""

    name = "time"

    def __init__(self, *, past: bool = True) -> None:
        self._past = past

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            return time.time() - parse_duration_s(text)
        except ValueError:
            pass
        try:
            today = datetime.now().astimezone().date().isoformat()
            moment = datetime.fromisoformat(f"{today}T{text}" if ":" in text[:5] else text).timestamp()
        except ValueError:
            self.fail(f"{text!r} is not a time; {FORMS}", param, ctx)
        if self._past and moment > time.time():
            self.fail(f"{text!r} is still to come; {FORMS}", param, ctx)
        return moment


def clock(at_s: float | None, *, short: bool = False) -> str:
    """For people, in local time; short: without the year, for tables."""
    return time.strftime("%m-%d %H:%M" if short else "%Y-%m-%d %H:%M", time.localtime(at_s)) if at_s else "-"
