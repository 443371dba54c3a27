"""Who is calling: the daemon's owner, a user by token, session or Unix socket, or a run. Asked once per request, by the
guard; routes read the answer with `deps.caller_of`."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import unquote

from starlette.datastructures import Headers

from swell.api.auth import same, token_in
from swell.api.sessions import Holder, Sessions
from swell.core.accounts import Caller, Role, Token, User, Way, holder
from swell.core.state import State
from swell.daemon.accounts import token_of

USER_HEADER = "swell-user"
MAX_USER = 100
SOCKET_PEER = "uid:"
"""A peer of the Unix socket is `uid:1000` where one of the network has an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """When and from where a token was last used, since the daemon started."""

    at_s: float
    peer: str


class Identities:
    """`secret`: the daemon's own token. `own_uid`: the daemon's user. `socket_role`: what users of this machine
    may do that come by the Unix socket and were not added; None: nothing."""

    def __init__(
        self,
        secret: str,
        sessions: Sessions,
        state: Callable[[], State],
        *,
        own_uid: int,
        socket_role: Role | None,
    ) -> None:
        self._secret = secret
        self._sessions = sessions
        self._state = state
        self._own_uid = own_uid
        self._socket_role = socket_role
        self.uses: dict[str, Use] = {}

    def caller(self, headers: Headers, peer: str) -> Caller | None:
        """None: the caller showed no credential that this daemon knows. A token counts before the peer."""
        given = token_in(headers)
        if not given:
            return self._of_peer(peer)
        if same(given, self._secret):
            return Caller(user=_named(headers), role=Role.ADMIN, way=Way.OWNER)
        session = self._sessions.holder(given)
        if session is not None:
            return self._of_session(session, headers)
        return self._of_token(given, peer)

    def _of_token(self, given: str, peer: str) -> Caller | None:
        token = token_of(self._state(), given)
        caller = self._holder(token)
        if token is not None and caller is not None:
            self.uses[token.id] = Use(at_s=time.time(), peer=peer)
        return caller

    def _holder(self, token: Token | None) -> Caller | None:
        return holder(token, self._state().users.get(token.user), time.time()) if token else None

    def _of_session(self, session: Holder, headers: Headers) -> Caller | None:
        """A session gives what its user may do now, not what they could when it was opened."""
        if session.way is Way.OWNER:
            return Caller(user=_named(headers) or session.user, role=Role.ADMIN, way=Way.OWNER, session=True)
        if session.way is Way.TOKEN:
            caller = self._holder(self._state().tokens.get(session.token))
            return replace(caller, session=True) if caller else None
        return self._as_user(session.user, session.way, session=True)

    def _of_peer(self, peer: str) -> Caller | None:
        """On this machine the kernel knows whose process it is: the daemon's own user and root are its owners."""
        if not peer.startswith(SOCKET_PEER):
            return None
        uid = int(peer.removeprefix(SOCKET_PEER))
        name = _login(uid)
        if uid in (0, self._own_uid):
            return Caller(user=name, role=Role.ADMIN, way=Way.OWNER)
        return self._as_user(name, Way.SOCKET)

    def _as_user(self, name: str, way: Way, *, session: bool = False) -> Caller | None:
        """With what they may do now; None: they were not added, and no role is open to them."""
        known = self._state().users.get(name)
        if known is None and way is Way.SOCKET and self._socket_role is not None:
            known = User(name=name, role=self._socket_role)
        return Caller(user=name, role=known.role, team=known.team, way=way, session=session) if known else None


def _named(headers: Headers) -> str:
    """The owner's clients name the user for whom they act. The record shows that name; it is trusted, since the owner
    may do anything."""
    return unquote(headers.get(USER_HEADER, ""))[:MAX_USER]


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"
