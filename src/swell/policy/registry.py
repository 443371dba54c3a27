"""Policies by name. Explicit: what is not listed here does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swell.core.errors import NotFound
from swell.policy.elastic_fifo import ElasticFifo
from swell.policy.fifo import Fifo
from swell.ports import Policy

POLICIES: Mapping[str, Callable[[], Policy]] = {"fifo": Fifo, "elastic-fifo": ElasticFifo}
DEFAULT_POLICY = "elastic-fifo"


def policy_named(name: str) -> Policy:
    make = POLICIES.get(name)
    if make is None:
        raise NotFound(f"there is no policy named {name!r}; there are: {', '.join(sorted(POLICIES))}")
    return make()
