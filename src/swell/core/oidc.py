"""Log-in by an OpenID provider: its settings, and which user its claims identify. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swell.core.accounts import Role, User
from swell.core.errors import SwellError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class NotLetIn(SwellError):
    """The provider authenticated the user, but they may not log in here; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """Log-in to the dashboard by an OpenID provider. Register REDIRECT = https://daemon/v1/ui/oidc/callback there."""

    issuer: str  # such as https://login.lab.org/realms/lab; its /.well-known/openid-configuration is read
    client_id: str
    client_secret_file: str = ""  # its content; empty: a public client, which PKCE protects
    scope: str = "openid profile email"
    user_claim: str = (
        "preferred_username"  # the user's name; one that users cannot change themselves. `email`: verified only
    )
    role_claim: str = "groups"  # a text or a list of texts
    roles: Mapping[str, Role] = field(
        default_factory=dict
    )  # by value of role_claim; empty: users are added by an admin


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """A user who has logged in. `role`: their role from now on; None: as an admin set it."""

    user: str
    role: Role | None


def welcome(settings: OidcSettings, claims: Mapping[str, Any], users: Mapping[str, User]) -> Welcome:
    """The user whom these verified claims identify. Raises NotLetIn."""
    name = _name(settings, claims)
    if not settings.roles:
        if name not in users:
            raise NotLetIn(f"there is no user {name}; ask an admin to run `swell user add {name}`")
        return Welcome(user=name, role=None)
    said = claims.get(settings.role_claim, ())
    values = [said] if isinstance(said, str) else [value for value in said if isinstance(value, str)]
    found = [settings.roles[value] for value in values if value in settings.roles]
    if not found:
        needed = ", ".join(sorted(settings.roles))
        raise NotLetIn(f"{name} has none of the {settings.role_claim} that may use this daemon ({needed})")
    return Welcome(user=name, role=next(role for role in reversed(Role) if role in found))


def _name(settings: OidcSettings, claims: Mapping[str, Any]) -> str:
    name = claims.get(settings.user_claim)
    if settings.user_claim == "email":
        if claims.get("email_verified") is not True:
            raise NotLetIn("the provider has not verified the e-mail address that users are known by here")
        name = str(name).partition("@")[0]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NotLetIn(
            f"the provider's {settings.user_claim} is {name!r}, which is no user name here; set `user_claim`"
        )
    return name
