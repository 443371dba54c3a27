"""What a client may run into. The messages are for people: the command line prints them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swell.core.errors import SwellError

FOR_PROGRAMS = " Requests carry it as"
"""What follows tells those who write requests themselves how to send a token; people have `swell login`."""


class DaemonUnreachable(SwellError):
    """Nobody answers. The message says where it was looked for, and what to do."""


class Refused(SwellError):
    """The daemon answered with a problem."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.problems: list[Mapping[str, str]] = list(problem.get("problems", ()))
        said = str(problem.get("detail") or problem.get("title") or f"the daemon answered {status}")
        super().__init__(said.partition(FOR_PROGRAMS)[0])


class WrongCertificate(SwellError):
    """Somebody else answers in place of the daemon, or it has another certificate than at `swell login`."""

    def __init__(self, host: str, found: str, expected: str) -> None:
        super().__init__(
            f"{host} shows the certificate {found}, not the one that was trusted ({expected}); if the daemon was "
            "set up anew, compare with what `swell up` printed there and run `swell login` again. Nothing was sent."
        )
