"""Facts about users and their tokens. `core/events.py` lists them among all events; `plan/account_commands.py` makes
them, `core/cluster_changes.py` applies them.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.core.accounts import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSet:
    """A user was added, or has another role or team from now on."""

    name: str
    role: Role
    at_s: float
    team: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRemoved:
    """Their tokens go with them; their jobs stay."""

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
