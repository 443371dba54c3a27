"""Users and tokens of the daemon: makes a token's text, keeps its digest. Durable when a method returns."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence

from swell.core.accounts import Role, Token
from swell.core.events import Event
from swell.core.state import State
from swell.plan import account_commands as commands
from swell.ports import Clock

PREFIX = "swell_"


class Accounts:
    """Owned by the engine. `commit` makes events durable."""

    def __init__(
        self, state: Callable[[], State], commit: Callable[[Sequence[Event]], Awaitable[None]], clock: Clock
    ) -> None:
        self._state = state
        self._commit = commit
        self._clock = clock

    async def set_user(self, name: str, role: Role | None, team: str | None, *, by: str) -> None:
        await self._commit(commands.set_user(self._state(), name, role, team, by=by, now_s=self._clock.now_s()))

    async def remove_user(self, name: str, *, by: str) -> None:
        await self._commit(commands.remove_user(self._state(), name, by=by, now_s=self._clock.now_s()))

    async def issue_token(
        self,
        user: str,
        *,
        role: Role | None = None,
        lasts_s: float = 0.0,
        until_s: float = 0.0,
        note: str = "",
        by: str = "",
    ) -> tuple[str, str]:
        """Returns the id and the text of a new token. The daemon keeps no copy of the text. It lasts for `lasts_s`, and
        not beyond `until_s`; 0: no bound."""
        token, text = new_token()
        now_s = self._clock.now_s()
        ends = [end_s for end_s in (now_s + lasts_s if lasts_s else 0.0, until_s) if end_s]
        events = commands.issue_token(
            self._state(),
            user,
            token=token,
            digest=digest_of(text),
            role=role,
            expires_s=min(ends, default=0.0),
            note=note,
            by=by,
            now_s=now_s,
        )
        await self._commit(events)
        return token, text

    async def revoke_token(self, token: str, *, by: str) -> None:
        await self._commit(commands.revoke_token(self._state(), token, by=by, now_s=self._clock.now_s()))


def new_token() -> tuple[str, str]:
    """Returns a public id, and the secret text: the id followed by 256 random bits."""
    token = secrets.token_hex(4)
    return token, f"{PREFIX}{token}_{secrets.token_hex(32)}"


def digest_of(text: str) -> str:
    """A plain hash without salt is enough, since 256 random bits cannot be guessed."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def token_of(state: State, text: str) -> Token | None:
    """Finds the token with this text. The comparison takes constant time, so response times leak nothing."""
    if not text.startswith(PREFIX):
        return None
    known = state.tokens.get(text.removeprefix(PREFIX).partition("_")[0])
    if known is None or not secrets.compare_digest(known.digest, digest_of(text)):
        return None
    return known
