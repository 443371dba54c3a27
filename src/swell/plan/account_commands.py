"""Commands about users and tokens: each function turns one into events. `daemon.accounts` calls them. Pure.

Raises NotFound or Conflict, with what to do instead, when the command does not apply.
"""

from __future__ import annotations

from swell.core import account_events
from swell.core.accounts import Role, User
from swell.core.errors import Conflict, NotFound
from swell.core.events import Event
from swell.core.state import State


def user_in(state: State, name: str) -> User:
    user = state.users.get(name)
    if user is None:
        raise NotFound(f"there is no user {name!r}; `swell user ls` lists them, `swell user add {name}` adds one")
    return user


def set_user(state: State, name: str, role: Role | None, team: str | None, *, by: str, now_s: float) -> list[Event]:
    """Add a user, or change the specified fields (None: unchanged). No event if nothing changes."""
    known = state.users.get(name)
    wanted = User(
        name=name,
        role=role or (known.role if known else Role.SUBMITTER),
        team=team if team is not None else known.team if known else "",
        since_s=known.since_s if known else now_s,
    )
    if wanted == known:
        return []
    return [account_events.UserSet(name=name, role=wanted.role, team=wanted.team, at_s=now_s, by=by)]


def remove_user(state: State, name: str, *, by: str, now_s: float) -> list[Event]:
    """Refused while the user has jobs that have not ended: only operators could stop these afterwards."""
    user_in(state, name)
    active = [job for job in state.active if state.jobs[job].spec.user == name]
    if active:
        some = ", ".join(map(str, active[:5])) + (" and more" if len(active) > 5 else "")
        raise Conflict(f"{name} still has jobs ({some}); `swell cancel --user {name}` first, or revoke their tokens")
    return [account_events.UserRemoved(name=name, at_s=now_s, by=by)]


def issue_token(
    state: State,
    user: str,
    *,
    token: str,
    digest: str,
    role: Role | None,
    expires_s: float,
    note: str,
    by: str,
    now_s: float,
) -> list[Event]:
    """Issue a token. Its role is at most that of its user."""
    known = user_in(state, user)
    if role is not None and not known.role.includes(role):
        raise Conflict(f"{user} is {known.role}; a token cannot give them the role {role}")
    if expires_s and expires_s <= now_s:
        raise Conflict("this token would have expired already; give a time in the future, such as --days 90")
    event = account_events.TokenIssued(
        token=token,
        user=user,
        digest=digest,
        role=role or known.role,
        at_s=now_s,
        expires_s=expires_s,
        note=note,
        by=by,
    )
    return [event]


def revoke_token(state: State, token: str, *, by: str, now_s: float) -> list[Event]:
    if token not in state.tokens:
        raise NotFound(f"there is no token {token!r}; `swell token ls` lists them")
    return [account_events.TokenRevoked(token=token, at_s=now_s, by=by)]
