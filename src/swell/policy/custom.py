"""Custom policies: a Python file named in the configuration (`policy_files`), with a class that has `name`,
`elastic` and `decide` (`weighs_restarts` and `OPTIONS` have defaults). See docs/how-to/write-a-policy.md.

The file is imported once, when the daemon starts. A mistake in it is said in one sentence with the file's name; the
daemon does not start with a policy that it could not load.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from swell.core.decision import Decision
from swell.core.errors import SwellError
from swell.core.snapshot import Capacity, Snapshot
from swell.policy.options import NO_OPTIONS, Option
from swell.policy.registry import register
from swell.ports import Policy


class PolicyFileError(SwellError):
    """A file named under `policy_files` cannot be used; the message says what is wrong with it."""


def load_policy_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Load and register what these files define; the names of the policies, in order."""
    return tuple(name for path in paths for name in load_policy_file(path))


def load_policy_file(path: str) -> tuple[str, ...]:
    """Load one file and register its policies under their names."""
    found = _policies_in(_import(path))
    if not found:
        raise PolicyFileError(
            f"{path} has no policy: a class with `name`, `elastic` and `decide(snapshot, memory, rng)`"
        )
    for kind in found:
        _check(path, kind)
        register(kind.name, _complete(kind), path)
    return tuple(kind.name for kind in found)


def _import(path: str) -> ModuleType:
    name = f"swell_policy_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PolicyFileError(f"{path} is not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise PolicyFileError(f"there is no file {path}; check `policy_files` in the configuration") from error
    except Exception as error:
        raise PolicyFileError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _policies_in(module: ModuleType) -> list[Any]:
    """Classes defined in the file (not those it imports) that look like a policy, in order of the file."""
    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
    return [kind for kind in kinds if hasattr(kind, "decide") and not kind.__name__.startswith("_")]


class _Trial:
    """Stands in for randomness while a policy is tried out: there is nothing to decide."""

    def random(self) -> float:
        return 0.5

    def randrange(self, stop: int, /) -> int:
        return 0

    def shuffle(self, x: list[int], /) -> None:
        return


class _Defaults:
    """What a class in a policy file need not declare."""

    weighs_restarts = False
    OPTIONS = NO_OPTIONS


def _complete(kind: Any) -> type[Policy]:
    """The class with everything that `Policy` declares."""
    complete: type[Policy] = type(kind.__name__, (kind, _Defaults), {})
    return complete


def _check(path: str, kind: Any) -> None:
    """Checks a class as far as possible before its first decision, by a trial on an empty cluster."""
    where = f"{path}: policy class {kind.__name__}"
    if not isinstance(getattr(kind, "name", None), str) or not kind.name:
        raise PolicyFileError(f"{where} needs a `name`, such as name = “my-policy”")
    if not isinstance(getattr(kind, "elastic", None), bool):
        raise PolicyFileError(f"{where} must say elastic = True (it changes sizes of running jobs) or elastic = False")
    options = getattr(kind, "OPTIONS", {})
    if not all(isinstance(option, Option) for option in options.values()):
        raise PolicyFileError(f"{where}: OPTIONS must map names to swell.policy.options.Option")
    empty = Snapshot(now_s=0.0, jobs=(), nodes=(), capacity=Capacity(gpu_milli={}))
    try:
        answer = kind().decide(empty, {}, _Trial())
    except Exception as error:
        raise PolicyFileError(f"{where} fails on an empty cluster: {type(error).__name__}: {error}") from error
    if not isinstance(answer, Decision):
        raise PolicyFileError(
            f"{where}: decide must return a swell.core.decision.Decision, not {type(answer).__name__}"
        )
