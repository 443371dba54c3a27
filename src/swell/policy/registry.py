"""Policies by name. Explicit: what is not listed here, or registered from a user's file, does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swell.core.errors import NotFound, SwellError
from swell.core.spelling import instead_of
from swell.policy import options as opts
from swell.policy.afs_l import AfsL
from swell.policy.drf import Drf
from swell.policy.elastic_fifo import ElasticFifo
from swell.policy.elastic_srjf import ElasticSrjf
from swell.policy.elastic_tiresias import ElasticTiresias
from swell.policy.ffdl import Ffdl
from swell.policy.fifo import Fifo
from swell.policy.maxmin import MaxMin
from swell.policy.optimus import Optimus
from swell.policy.sia import Sia
from swell.policy.srjf import Srjf
from swell.policy.swell import Swell
from swell.policy.tiresias import Tiresias
from swell.ports import Policy

POLICIES: Mapping[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "elastic-fifo": ElasticFifo,
    "srjf": Srjf,
    "elastic-srjf": ElasticSrjf,
    "tiresias": Tiresias,
    "elastic-tiresias": ElasticTiresias,
    "ffdl": Ffdl,
    "afs-l": AfsL,
    "drf": Drf,
    "optimus": Optimus,
    "max-min": MaxMin,
    "sia": Sia,
    "swell": Swell,
}
DEFAULT_POLICY = "swell"

_custom: dict[str, Callable[[], Policy]] = {}
_files: dict[str, None] = {}  # that they came from, in order


def names() -> tuple[str, ...]:
    return tuple(sorted({*POLICIES, *_custom}))


def policy_named(name: str) -> Policy:
    """A new instance, so that no cache is shared."""
    return _maker(name)()


def check_name(name: str) -> None:
    """Raise `NotFound` if there is no such policy. Runs nothing of it."""
    _maker(name)


def is_custom(name: str) -> bool:
    """Whether it comes from a user's file. Such code may hang, so it decides in a thread that can be abandoned."""
    return name in _custom


def _maker(name: str) -> Callable[[], Policy]:
    make = POLICIES.get(name) or _custom.get(name)
    if make is None:
        raise NotFound(f"there is no policy named {name!r}; {instead_of(name, names())}")
    return make


def custom_files() -> tuple[str, ...]:
    """Files to load in other processes, so that they know the same policies as the daemon."""
    return tuple(_files)


def register(name: str, make: Callable[[], Policy], path: str = "") -> None:
    """Add a custom policy (see `policy.custom`), from the file at `path`. Registering a name again replaces it;
    built-in ones stay."""
    if name in POLICIES:
        raise SwellError(f"there is a built-in policy named {name!r}; give yours another name")
    _custom[name] = make
    if path:
        _files[path] = None


def options_of(name: str) -> opts.Options:
    """What may be set about a policy."""
    declared: opts.Options = getattr(_maker(name), "OPTIONS", {})
    return declared


def check_options(name: str, given: Mapping[str, opts.Value]) -> None:
    """Raise `NotFound` or `SwellError` with a sentence if these options cannot be set for this policy."""
    opts.check(name, options_of(name), given)
