"""Access control: users with a role and a team, tokens of users, and the rules about jobs. Pure.

The API applies these rules to every request. A daemon without users belongs to one person, who may do everything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Each role includes the rights of the one before it."""

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
    """A token of a user, with at most `role`. Only the digest of its text is kept."""

    id: str
    user: str
    digest: str
    role: Role
    made_s: float = 0.0
    expires_s: float = 0.0  # 0: never
    note: str = ""


class Way(StrEnum):
    """How the daemon knows the user of a request."""

    OWNER = "owner"  # the daemon's own token, for all who can read its home; the request names the user
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
    token: str = ""  # id of the token that was used, if any

    @property
    def is_owner(self) -> bool:
        return self.way is Way.OWNER


def holder(token: Token, user: User | None, now_s: float) -> Caller | None:
    """The caller that a token identifies now; None: its user was removed, or it has expired."""
    if user is None or user.name != token.user or (token.expires_s and now_s >= token.expires_s):
        return None
    role = token.role if user.role.includes(token.role) else user.role
    return Caller(user=user.name, role=role, team=user.team, way=Way.TOKEN, token=token.id)


def may_read(caller: Caller, owner: str, team: str) -> bool:
    """Whether the caller may read a job's command, environment, output, files and measurements. Every user may read the
    queue itself."""
    if caller.is_owner or caller.role.includes(Role.OPERATOR) or caller.user == owner:
        return True
    return bool(team) and caller.team == team


def may_act(caller: Caller, owner: str) -> bool:
    """Whether the caller may cancel, pause, change or remove a job."""
    if caller.is_owner or caller.role.includes(Role.OPERATOR):
        return True
    return caller.role.includes(Role.SUBMITTER) and caller.user == owner
