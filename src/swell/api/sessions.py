"""Who is behind a page of the dashboard: a one-time code, exchanged for a session that ends by itself.

The token of the daemon never gets into a browser's storage or history. A session is a text that carries its own end,
signed with the token: it needs no storing, outlives a restart of the daemon, and dies when the token is changed."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from swell.api.auth import same

CODE_S = 60.0
SESSION_S = 12 * 3600.0
MAX_CODES = 1000
_PREFIX = "ui-"


class Sessions:
    """Codes are kept here, in memory: one that was made before a restart is asked for again."""

    def __init__(self, secret: str, now_s: Callable[[], float]) -> None:
        self._secret = secret
        self._now_s = now_s
        self._codes: dict[str, tuple[float, str]] = {}  # by hash: until when, for whom

    def is_secret(self, given: str) -> bool:
        """The daemon's own token: only that makes codes and sessions, so that none prolongs itself."""
        return same(given, self._secret)

    def new_code(self, user: str = "") -> str:
        """Valid once, for a minute. The page that uses it acts in this user's name."""
        now = self._now_s()
        alive = [(key, kept) for key, kept in self._codes.items() if kept[0] > now]
        self._codes = dict(alive[-MAX_CODES + 1 :])
        code = secrets.token_urlsafe(24)
        self._codes[_hash(code)] = now + CODE_S, user
        return code

    def redeem(self, code: str) -> str | None:
        """For whom it was made; None: it is not valid."""
        until_s, user = self._codes.pop(_hash(code), (0.0, ""))
        return user if until_s > self._now_s() else None

    def open(self) -> tuple[str, float]:
        """A session and when it ends."""
        ends_s = int(self._now_s() + SESSION_S)
        body = f"{ends_s}.{secrets.token_hex(8)}"
        return f"{_PREFIX}{body}.{self._signature(body)}", float(ends_s)

    def holds(self, given: str) -> bool:
        """This bearer is a session of ours that has not ended."""
        if not given.startswith(_PREFIX):
            return False
        body, _, signature = given.removeprefix(_PREFIX).rpartition(".")
        ends = body.partition(".")[0]
        return same(signature, self._signature(body)) and ends.isdecimal() and int(ends) > self._now_s()

    def _signature(self, body: str) -> str:
        return hmac.new(
            self._secret.encode(), f"ui-session:{body}".encode(errors="replace"), hashlib.sha256
        ).hexdigest()


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()
