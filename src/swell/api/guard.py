"""What stands before every route: host and origin, token, size of body. Plain ASGI, because every request passes it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swell.api import problems
from swell.api.auth import bearer, run_token, same
from swell.api.sessions import Sessions
from swell.api.ui import is_public
from swell.core.ids import RunId
from swell.home import is_token

log = logging.getLogger(__name__)

MAX_BODY = 1 << 20
OPEN_PATHS = frozenset({"/v1/health"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_RUN_PATH = re.compile(r"/v1/runs/(\d{1,18})\.(\d{1,18})/(?:report|stop)")
_UPLOAD_PATH = re.compile(r"/v1/files/[^/]+")


class TooLarge(Exception):
    """Raised into whoever reads the body."""


class Guard:
    """Turns away what must not reach a route, and makes problem+json of what a route raises."""

    def __init__(self, app: ASGIApp, *, token: str, host: str, sessions: Sessions) -> None:
        if not is_token(token):
            raise ValueError("the API is not served without a secret")
        self._app = app
        self._token = token
        self._sessions = sessions
        self._loopback = host in LOOPBACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._call(scope, _bounded(scope, receive), send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        return (
            self._wrong_host(headers)
            or (None if path in OPEN_PATHS or is_public(path) else self._wrong_token(path, headers))
            or _too_large(scope, headers)
        )

    def _wrong_host(self, headers: Headers) -> Response | None:
        """A page in a browser must not reach a daemon on the same machine by a name that resolves to it."""
        host = _host_name(headers.get("host", ""))
        if self._loopback and host not in LOOPBACK:
            return problems.response(
                403, "Wrong host", f"this daemon answers to 127.0.0.1 and localhost only, not to {host!r}"
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
            return problems.response(403, "Wrong origin", f"pages of {origin} may not call this daemon")
        return None

    def _wrong_token(self, path: str, headers: Headers) -> Response | None:
        given = bearer(headers.get("authorization", ""))
        if same(given, self._token) or self._sessions.holds(given):
            return None
        match = _RUN_PATH.fullmatch(path)
        if match and same(given, run_token(self._token, RunId(int(match[1]), int(match[2])))):
            return None
        detail = (
            "send `Authorization: Bearer <token>`; the token is in the file `token` in the daemon's home (~/.swell)"
        )
        what = "the token is wrong" if given else "there is no token"
        answer = problems.response(401, "Who are you?", f"{what}; {detail}")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except Exception as error:
            answer = _too_large_response() if isinstance(error, TooLarge) else problems.from_error(error)
            if answer.status_code == 500:
                log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await answer(scope, receive, send)


def _bounded(scope: Scope, receive: Receive) -> Receive:
    if _UPLOAD_PATH.fullmatch(scope["path"]):
        return receive
    left = MAX_BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLarge
        return message

    return bounded


def _too_large(scope: Scope, headers: Mapping[str, str]) -> Response | None:
    length = headers.get("content-length", "0")
    if _UPLOAD_PATH.fullmatch(scope["path"]) or (length.isdecimal() and int(length) <= MAX_BODY):
        return None
    return _too_large_response()


def _too_large_response() -> Response:
    detail = (
        f"a request may have {MAX_BODY:,} bytes (1 MiB); put data into the files of the job, or submit fewer at once"
    )
    return problems.response(413, "Too large", detail)


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
