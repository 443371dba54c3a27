"""Converts a speed book to bytes and back, so that a checkpoint can hold it. Called by the books' `keep` and `restore`.

The format is pickle's, because the small objects of a book refer to shared ones, which must be shared again. Reading is
restricted to the classes of books, so that manipulated bytes can make a wrong book but cannot run a program. Bytes of
another version of these classes are not read: the book then learns from the log instead.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import pickle
import pkgutil
from functools import cache
from typing import Any

import swell.speed

_OURS = ("swell.core.", "swell.ports", "swell.speed.", "swell.placement.interference")
_OTHERS = frozenset(
    {
        ("collections", "deque"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)


def keep(value: object) -> bytes:
    return _edition() + pickle.dumps(value, protocol=5)


def restore(kept: bytes) -> Any:
    """The value that `keep` got; None if the bytes are of another version, or unreadable."""
    edition = _edition()
    if not kept.startswith(edition):
        return None
    try:
        return _Reader(io.BytesIO(kept[len(edition) :])).load()
    except Exception:  # pickle may raise anything for invalid bytes
        return None


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_OURS):
            found = getattr(importlib.import_module(module), name)
            if isinstance(found, type):
                return found
        elif (module, name) in _OTHERS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a book")


@cache
def _edition() -> bytes:
    """A hash of the classes of books and the names of their fields."""
    digest = hashlib.blake2b(digest_size=16)
    for found in sorted(pkgutil.iter_modules(swell.speed.__path__), key=lambda one: one.name):
        module = importlib.import_module(f"swell.speed.{found.name}")
        for name, value in sorted(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                fields = getattr(value, "__slots__", ()) or getattr(value, "_fields", ())
                digest.update(f"{module.__name__}.{name}{tuple(fields)!r};".encode())
    return digest.digest()
