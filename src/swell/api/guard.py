"""What stands before every route: host and origin, token, size of body. Plain ASGI, because every request passes it."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Set
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swell.api import bodies, problems
from swell.api.access import Found, Need, found, refusal
from swell.api.attempts import Attempts
from swell.api.audit import Audit
from swell.api.auth import BESIDE, run_token, same, token_in
from swell.api.deps import CALLER, find_job
from swell.api.identity import Identities
from swell.api.port import Engine
from swell.api.rates import AtOnce, Rates
from swell.api.ui import is_public
from swell.config import is_loopback
from swell.core.accounts import Caller, Role, Way
from swell.core.errors import SwellError
from swell.core.ids import RunId
from swell.core.limits import Limits
from swell.home import is_token
from swell.web.assets import is_page

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/v1/health"})
METRICS_PATH = "/metrics"
_RUN_PATH = re.compile(r"/v1/runs/(\d{1,18})\.(\d{1,18})/(?:report|stop|files|lease)")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_ONCE = ("host", "origin", "authorization", BESIDE)
_CLOSE = {"Connection": "close"}
_AS_RUN = Caller(user="", role=Role.VIEWER, way=Way.RUN)
MAX_AT_ONCE = 200
"""Requests and streams of one user that are open at the same time."""
RECHECK_S = 5.0
"""So often it is looked at again whether the reader of a stream may still read it."""


class Guard:
    """Turns away what must not reach a route, and makes problem+json of what a route raises."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Set[str],
        identities: Identities,
        engine: Callable[[], Engine],
        attempts: Attempts,
        audit: Audit,
        rates: Rates,
        limits_of: Callable[[str], Limits],
        metrics_token: str = "",
    ) -> None:
        if not is_token(token):
            raise ValueError("the API is not served without a secret")
        self._app = app
        self._token = token
        self._hosts = hosts
        self._identities = identities
        self._engine = engine
        self._metrics_token = metrics_token  # opens /metrics and nothing else
        self._attempts = attempts
        self._audit = audit
        self._rates = rates
        self._limits_of = limits_of
        self._at_once = AtOnce()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers) or self._too_fast(scope) or await self._not_allowed(scope)
        if refused is not None:
            self._audit.note(scope, scope.get(CALLER), _peer(scope), refused.status_code)
            await refused(scope, receive, send)
            return
        with self._at_once.one(scope.get(CALLER), MAX_AT_ONCE) as left:
            if left:
                await self._call(scope, bodies.bounded(scope, receive), send)
                return
        self._audit.note(scope, scope.get(CALLER), _peer(scope), 429)
        await _too_many_at_once()(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        return (
            self._wrong_host(headers)
            or (None if path in OPEN_PATHS or is_page(path) else self._locked(scope))
            or (None if path in OPEN_PATHS or self._public(path, headers) else self._unknown(scope, headers))
            or bodies.too_large(scope, headers)
        )

    def _public(self, path: str, headers: Headers) -> bool:
        if path == METRICS_PATH:
            return same(token_in(headers), self._metrics_token)
        return is_public(path)

    def _wrong_host(self, headers: Headers) -> Response | None:
        """A page in a browser must not reach a daemon on the same machine by a name that resolves to it."""
        for name in _ONCE:
            if len(headers.getlist(name)) > 1:
                return problems.response(400, "Not a request", f"there are several {name} headers", headers=_CLOSE)
        given = headers.get("host", "")
        match = _HOST.fullmatch(given)
        if BESIDE in headers:  # through a proxy of any name; a page elsewhere does not know the token that this needs
            return None
        if match is None:
            return problems.response(400, "Not a request", f"{given[:120]!r} is not a host", headers=_CLOSE)
        if (match[1] or match[2]).lower() not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            detail = f"this daemon answers to {known}, not to {given[:120]!r}; `advertise` in config.yaml adds a name"
            return problems.response(403, "Wrong host", detail)
        origin = headers.get("origin")
        if origin is not None and not _same_place(origin, given):
            return problems.response(403, "Wrong origin", f"pages of {origin[:120]!r} may not call this daemon")
        return None

    def _locked(self, scope: Scope) -> Response | None:
        """On loopback all users share one address: there the right token is let in whatever others try."""
        peer = _peer(scope)
        wait_s = 0 if is_loopback(peer) else self._attempts.locked_s(peer)
        return _too_many(wait_s) if wait_s else None

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """Finds out who is calling, for the routes; a refusal if the caller is unknown."""
        run = self._run(scope, headers)
        caller = self._identities.caller(headers, _peer(scope)) if run is None else _AS_RUN
        if caller is None:
            return self._wrong_token(scope, token_in(headers))
        scope[CALLER] = caller
        return self._over(run) if run is not None else None

    def _run(self, scope: Scope, headers: Headers) -> RunId | None:
        """The run whose own token this is."""
        match = _RUN_PATH.fullmatch(scope["path"])
        if match is None:
            return None
        run, given = RunId(int(match[1]), int(match[2])), token_in(headers)
        return run if same(given, run_token(self._token, run)) else None

    def _over(self, run: RunId) -> Response | None:
        """A run's token expires with the run: what it was good for is over, whoever has kept a copy."""
        record = self._engine().state.jobs.get(run.job)
        if record is not None and record.holding and record.run is not None and record.run.id == run:
            return None
        return problems.response(410, "Over", f"run {run} is over or was never started, and its token with it")

    def _too_fast(self, scope: Scope) -> Response | None:
        """The owner and runs have no limit: the owner sets it, and trainings must not wait."""
        caller: Caller | None = scope.get(CALLER)
        if caller is None or caller.is_owner or caller.way is Way.RUN:
            return None
        per_s = self._limits_of(caller.user).requests_per_s
        wait_s = self._rates.wait_s(caller.user, per_s) if per_s else 0
        if not wait_s:
            return None
        detail = (
            f"{caller.user} sends more than {per_s:g} requests per second, the limit per user; try again in "
            f"{wait_s} s, send less often, or ask an operator to raise options.limits.requests_per_s (`swell quota`)"
        )
        return problems.response(429, "Too many requests", detail, headers={"Retry-After": str(wait_s)})

    async def _not_allowed(self, scope: Scope) -> Response | None:
        """A user without the right to this route, or to the job it is about."""
        caller: Caller | None = scope.get(CALLER)
        if caller is None or caller.is_owner or caller.way is Way.RUN:
            return None
        wanted = found(scope["method"], scope["path"])
        try:
            detail = refusal(caller, wanted.need) or await self._not_theirs(scope, caller, wanted)
        except SwellError as error:  # no such job, or the store cannot say
            return problems.from_error(error)
        return problems.response(403, "Not allowed", detail) if detail else None

    async def _not_theirs(self, scope: Scope, caller: Caller, wanted: Found) -> str:
        """A name is looked up once: the route sees the id, so that both mean the same job. A job that is not found here
        is not looked for by the route, which might read its name in another way."""
        if wanted.need not in (Need.READ_JOB, Need.ACT_ON_JOB):
            return ""
        record = await self._engine().job(find_job(self._engine(), wanted.ref))
        start, end = wanted.span
        if end:
            path = f"{scope['path'][:start]}{record.id}{scope['path'][end:]}"
            scope["path"], scope["raw_path"] = path, path.encode()
        return refusal(caller, wanted.need, record)

    def _wrong_token(self, scope: Scope, given: str) -> Response | None:
        if given and (wait_s := self._attempts.wrong(_peer(scope), given)):
            return _too_many(wait_s)
        detail = (
            "`swell login` with a token that an admin made (`swell token new`), or set SWELL_TOKEN; the owner's is in "
            "the file `token` in the daemon's home. Requests carry it as `Authorization: Bearer <token>`"
        )
        what = "the token is wrong" if given else "there is no token"
        return problems.response(401, "Who are you?", f"{what}; {detail}", headers={"WWW-Authenticate": "Bearer"})

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        checked_s = time.monotonic()

        async def noting_send(message: Message) -> None:
            nonlocal started, checked_s
            started = True
            if message.get("more_body") and time.monotonic() > checked_s + RECHECK_S:
                checked_s = time.monotonic()
                await self._recheck(scope, send)
            if "status" in message:
                self._audit.note(scope, scope.get(CALLER), _peer(scope), message["status"])
            if message.get("status") == 401:  # the door of the dashboard looks at codes and tokens itself
                self._attempts.wrong(_peer(scope), secrets.token_hex(8))
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except (ClientDisconnect, _ShutOut):
            return
        except Exception as error:
            answer = problems.from_error(error)
            if answer.status_code == 500:
                log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            self._audit.note(scope, scope.get(CALLER), _peer(scope), answer.status_code)
            await answer(scope, receive, send)

    async def _recheck(self, scope: Scope, send: Send) -> None:
        """A stream ends soon after its caller's token, role or user does: they may no longer hear what comes."""
        again: Scope = {**scope}  # its path names jobs by id by now
        again.pop(CALLER, None)
        if CALLER not in scope or (self._known_still(again) and await self._not_allowed(again) is None):
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        raise _ShutOut

    def _known_still(self, scope: Scope) -> bool:
        return self._unknown(scope, Headers(scope=scope)) is None


class _ShutOut(Exception):
    """Ends a response; is no error."""


def _too_many_at_once() -> Response:
    detail = (
        f"you have {MAX_AT_ONCE} requests and streams open, the limit per user; close some (pages of the dashboard, "
        "`swell logs -f`), then try again"
    )
    return problems.response(429, "Too many at once", detail, headers={"Retry-After": "1"})


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _too_many(wait_s: int) -> Response:
    detail = f"too many wrong tokens came from this address; try again in {wait_s} s, with the right one"
    return problems.response(429, "Too many wrong tokens", detail, headers={"Retry-After": str(wait_s)})


def _same_place(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:  # such as http://[
        return False
