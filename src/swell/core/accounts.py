"""Who may do what: users with a role and a team, tokens that stand for them, and the rules about jobs. Pure.

The API asks these rules for every request. A daemon without users belongs to one person, who may do everything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Each may do all that the one before it may."""

    VIEWER = "viewer"  # sees the queue and the machines
    SUBMITTER = "submitter"  # submits jobs, and acts on those of their own
    OPERATOR = "operator"  # acts on all jobs, machines and the policy
    ADMIN = "admin"  # users and tokens

    def includes(self, other: Role) -> bool:
        return _RANK[self] >= _RANK[other]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    role: Role
    team: str = ""
    since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Stands for its user, with at most `role`. Its text is never kept, only the digest."""

    id: str
    user: str
    digest: str
    role: Role
    made_s: float = 0.0
    expires_s: float = 0.0  # 0: never
    note: str = ""


class Way(StrEnum):
    """How the daemon knows who is calling."""

    OWNER = "owner"  # the daemon's own token: anyone who can read its home; they name themselves
    TOKEN = "token"  # noqa: S105 - a way, not a secret
    SOCKET = "socket"  # the kernel names the peer of a Unix socket
    OIDC = "oidc"  # an OpenID provider, for the dashboard
    RUN = "run"  # a run's own token, for its reports only


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who makes a request."""

    user: str
    role: Role
    way: Way
    team: str = ""
    session: bool = False  # a page of the dashboard: it cannot open another session
    token: str = ""  # id of the token that stands for them, if one does

    @property
    def is_owner(self) -> bool:
        return self.way is Way.OWNER


def holder(token: Token, user: User | None, now_s: float) -> Caller | None:
    """Whom a token stands for now; None: its user is gone, or it has expired."""
    if user is None or user.name != token.user or (token.expires_s and now_s >= token.expires_s):
        return None
    role = token.role if user.role.includes(token.role) else user.role
    return Caller(user=user.name, role=role, team=user.team, way=Way.TOKEN, token=token.id)


def may_read(caller: Caller, owner: str, team: str) -> bool:
    """Command, environment, output, files and measurements of a job. The queue itself is open to every user."""
    if caller.is_owner or caller.role.includes(Role.OPERATOR) or caller.user == owner:
        return True
    return bool(team) and caller.team == team


def may_act(caller: Caller, owner: str) -> bool:
    """Cancel, pause, change or remove a job."""
    if caller.is_owner or caller.role.includes(Role.OPERATOR):
        return True
    return caller.role.includes(Role.SUBMITTER) and caller.user == owner
