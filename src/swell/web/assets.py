"""Files of the built dashboard by the path a browser asks for, kept in memory: there are a dozen, which never change.

A daemon without a built dashboard has none of them; `api.ui` then serves a page that says how to build it."""

from __future__ import annotations

import gzip
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

STATIC = Path(__file__).parent / "static"
REPORT = STATIC / "report.html"
"""The page of `swell sim report`, without results; not served."""
PAGES = frozenset({"", "jobs", "submit", "forecast", "policies", "simulate", "users", "machines", "docs"})
"""First parts of paths that are views of the dashboard: the page itself finds out which."""
HASHED = "assets/"
"""Below this, names carry a hash of their content: a browser may keep them without asking again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    content: bytes
    gzipped: bytes
    media_type: str
    immutable: bool


def is_page(path: str) -> bool:
    """A view of the dashboard, such as /jobs/12: answered with the one page there is."""
    first, _, rest = path.removeprefix("/").partition("/")
    return first in PAGES and (not rest or (first == "jobs" and "/" not in rest))


class Assets:
    """What is in the folder when it is first looked at."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder

    @cached_property
    def _found(self) -> Mapping[str, Asset]:
        files = sorted(path for path in self._folder.rglob("*") if path.is_file()) if self._folder.is_dir() else []
        return {path.relative_to(self._folder).as_posix(): _asset(self._folder, path) for path in files}

    def find(self, path: str) -> Asset | None:
        """None: there is no such file, or nothing was built. Only names that were found are looked up: no path of a
        request ever reaches the file system."""
        return self._found.get("index.html" if is_page(path) else path.removeprefix("/"))


def _asset(folder: Path, path: Path) -> Asset:
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Asset(
        content=content,
        gzipped=gzip.compress(content, 9, mtime=0),
        media_type=f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type,
        immutable=path.relative_to(folder).as_posix().startswith(HASHED),
    )
