"""Who may call: one bearer token for people, one for each run, derived from it, that opens only that run's reports."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from swell.core.ids import RunId
from swell.home import is_token


def run_token(secret: str, run: RunId) -> str:
    """What a run's processes carry in SWELL_TOKEN. Needs no storing: the same after a restart of the daemon."""
    if not is_token(secret):
        raise ValueError("a run's token is derived from a secret, and there is none")
    return "run-" + hmac.new(secret.encode(), f"run:{run}".encode(), hashlib.sha256).hexdigest()


def same(given: str, expected: str) -> bool:
    """In constant time. An empty token is never right, even if an empty one is expected."""
    return bool(given) and bool(expected) and hmac.compare_digest(given.encode(errors="replace"), expected.encode())


BESIDE = "swell-authorization"
"""The header of whoever comes through a proxy that keeps `Authorization` for itself, as Kubernetes' API server does."""


def token_in(headers: Mapping[str, str]) -> str:
    """What a request shows; empty: nothing."""
    return bearer(headers.get(BESIDE, "") or headers.get("authorization", ""))


def bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
