"""What a standby answers: that it is one, and where the daemon is that has the work. Plain ASGI; it knows no state."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from swell import __version__
from swell.api import problems
from swell.client.http import ACTIVE_HEADER


class Standby:
    """`active`: the URL of the daemon that has the work now, as far as it is known."""

    def __init__(self, active: Callable[[], str]) -> None:
        self._active = active

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = self._health() if scope["path"] == "/v1/health" else self._elsewhere()
            await answer(scope, receive, send)

    def _health(self) -> Response:
        view = {"version": __version__, "role": "standby", "ready": False, "degraded": "", "active": self._active()}
        return Response(msgspec.json.encode(view), media_type="application/json")

    def _elsewhere(self) -> Response:
        active = self._active()
        there = f"ask the active one at {active}" if active else "none is active yet; try again in a moment"
        headers = {ACTIVE_HEADER: active, "Retry-After": "1", "Connection": "close"}
        return problems.response(503, "Standby", f"this daemon is a standby and decides nothing; {there}", (), headers)
