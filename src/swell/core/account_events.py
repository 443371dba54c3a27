"""Events about users and their tokens. `core/events.py` lists them among all events; `plan/account_commands.py` makes
them, `core/cluster_changes.py` applies them.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.core.accounts import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSet:
    """A user was added, or got another role or team."""

    name: str
    role: Role
    at_s: float
    team: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRemoved:
    """A user was removed, with their tokens. Their jobs remain."""

    name: str
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssued:
    token: str  # its id, which is no secret
    user: str
    digest: str
    role: Role
    at_s: float
    expires_s: float = 0.0  # 0: never
    note: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRevoked:
    token: str
    at_s: float
    by: str = ""


AccountEvent = UserSet | UserRemoved | TokenIssued | TokenRevoked
