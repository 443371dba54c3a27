"""Chooses the files of a directory that go into its snapshot: those that git would track, except virtual environments,
caches, Swell's own homes and databases, and files that may hold keys. `jobfile.files` calls it and reports what is
left out.

Standard library only, because the command line imports it."""

from __future__ import annotations

import fnmatch
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from swell.core.database_mark import is_database
from swell.jobfile.unpacking import MAX_FILES, SnapshotError

IGNORE_NAME = ".swellignore"
MAX_TOLD = 1000
ALWAYS = "always"
"""Reason for leaving out what no user expects in a snapshot (`.git`, Swell's own files); not reported."""
CACHES = frozenset(
    (
        *("__pycache__", "node_modules", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
        *(".tox", ".nox", ".hypothesis", ".eggs"),
    )
)
PRIVATE = frozenset((".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".git-credentials", ".pgpass", ".pypirc"))
_SIGNS = {"pyvenv.cfg": "a virtual environment", "conda-meta": "a conda environment", "daemon.lock": "a home of Swell"}
"""A directory that contains this file is left out as a whole; the value describes such a directory for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Patterns as in .swellignore. `include`: taken even if another rule leaves it out. `leave_out`: not taken. `only`:
    if not empty, nothing else is taken."""

    include: Sequence[str] = ()
    leave_out: Sequence[str] = ()
    only: Sequence[str] = ()


ALL = Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """`left_out`: path (of the topmost directory, or a file) -> the rule that left it out; at most `MAX_TOLD` of
    them."""

    names: list[str]
    left_out: Mapping[str, str] = field(default_factory=dict)


def choose(root: Path, exclude: Sequence[Path] = (), wanted: Wanted = ALL) -> Chosen:
    """Files and links to take, sorted. Files that may hold keys are left out even if `wanted` includes them."""
    sieve = _Sieve(root, exclude, wanted)
    include = wanted.include
    ignored: list[str] = []
    names = _from_git(root, sieve)
    if names is None:
        names = list(_walk(root, root, sieve))
    else:
        ignored = _ignored_by_git(root)
        names += [name for name in _below(root, ignored, sieve) if include and matches(name, include)]
    kept = sorted({name for name in names if sieve.takes(name) and _named(name, wanted.only)})
    told = dict(sieve.left_out)
    for path in ignored:
        bare = path.rstrip("/")
        if bare not in told and not any(name == bare or name.startswith(f"{bare}/") for name in kept):
            told[bare] = ".gitignore"
    return Chosen(names=kept, left_out=dict(sorted(told.items())[:MAX_TOLD]))


class _Sieve:
    """Decides about each path. Remembers its verdicts on directories, and what it left out and why."""

    def __init__(self, root: Path, exclude: Sequence[Path], wanted: Wanted) -> None:
        self._root, self._include, self._leave_out = root, wanted.include, wanted.leave_out
        self._patterns = _patterns(root / IGNORE_NAME)
        self._own = {os.path.relpath(p.resolve(), root.resolve()) for p in exclude}
        self._home = root.resolve() == Path.home().resolve()
        self._directories: dict[str, str] = {}  # directory -> the rule that leaves it out; empty: none
        self.left_out: dict[str, str] = {}

    def takes(self, name: str) -> bool:
        for path in (*_parents(name), name):
            why = self._directories.get(path)
            if why is None:
                why = self._why_not(path, is_file=path == name)
                if path != name:
                    self._directories[path] = why
            if why:
                if why != ALWAYS and len(self.left_out) < MAX_TOLD:
                    self.left_out.setdefault(path, why)
                return False
        return True

    def enters(self, directory: str) -> bool:
        """Whether to look below this directory: it is taken, or `include` may name something in it."""
        return self.takes(f"{directory}/x") or self._might_include(directory)

    def _might_include(self, directory: str) -> bool:
        return bool(self._include) and not _private(directory)

    def _why_not(self, path: str, *, is_file: bool) -> str:
        last = PurePosixPath(path).name
        if last == ".git" or path in self._own:
            return ALWAYS
        if _private(path):
            return "it may hold keys"
        if is_file and is_database(self._root / path):
            return "a database of Swell, which may hold secrets"
        if self._leave_out and matches(path if is_file else f"{path}/x", self._leave_out):
            return "--exclude"
        if self._include and matches(path, self._include):
            return ""
        if self._home and path.startswith("."):
            return "a hidden file of your home directory"
        if last in CACHES:
            return "a cache"
        if matches(path if is_file else f"{path}/x", self._patterns):
            return IGNORE_NAME
        return "" if is_file else self._sign(path)

    def _sign(self, directory: str) -> str:
        place = self._root / directory
        return next((what for name, what in _SIGNS.items() if os.path.lexists(place / name)), "")


def _named(name: str, only: Sequence[str]) -> bool:
    return not only or matches(name, only)


def _private(path: str) -> bool:
    return not PRIVATE.isdisjoint(PurePosixPath(path).parts)


def _parents(name: str) -> Iterator[str]:
    at = name.find("/")
    while at > 0:
        yield name[:at]
        at = name.find("/", at + 1)


def _git(root: Path, *options: str) -> list[str] | None:
    command = ["git", "-C", str(root), "ls-files", "-z", "--exclude-standard", *options]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [entry for entry in os.fsdecode(done.stdout).split("\0") if entry] if done.returncode == 0 else None


def _from_git(root: Path, sieve: _Sieve) -> list[str] | None:
    """Tracked, and untracked but not ignored; None: git does not know the directory, or takes nothing of it."""
    entries = _git(root, "-co")
    return [name for entry in entries for name in _git_entry(root, entry, sieve)] if entries else None


def _git_entry(root: Path, entry: str, sieve: _Sieve) -> Iterable[str]:
    """A submodule, or a repository inside this one, is listed by its directory."""
    path = root / entry
    if path.is_symlink() or path.is_file():
        return (entry,)
    return _walk(root, path, sieve) if path.is_dir() else ()


def _ignored_by_git(root: Path) -> list[str]:
    return _git(root, "-oi", "--directory") or []


def _below(root: Path, paths: Iterable[str], sieve: _Sieve) -> Iterator[str]:
    for path in paths:
        yield from _git_entry(root, path.rstrip("/"), sieve)


def _walk(root: Path, top: Path, sieve: _Sieve) -> Iterator[str]:
    count = 0
    for directory, subdirectories, names in os.walk(top):
        here = os.path.relpath(directory, root)
        prefix = "" if here == "." else f"{here}/"
        links = [name for name in subdirectories if (Path(directory) / name).is_symlink()]
        subdirectories[:] = sorted(n for n in subdirectories if n not in links and sieve.enters(prefix + n))
        for name in (*names, *links):
            path = Path(directory) / name
            if path.is_symlink() or path.is_file():
                yield prefix + name
                count += 1
        if count > MAX_FILES:
            raise SnapshotError(
                f"{top} has more than {MAX_FILES:,} files; submit from the directory of your code, name what is not "
                f"needed in {IGNORE_NAME}, or run in place with --no-snapshot"
            )


def _patterns(path: Path) -> list[str]:
    if not path.is_file():
        return []
    lines = (line.strip() for line in path.read_text(errors="replace").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """As in .gitignore, without its rarer forms: `*.ckpt` anywhere, `data/` a directory, `a/b` from the top."""
    parts = PurePosixPath(name).parts
    for pattern in patterns:
        bare = pattern.strip("/")
        if "/" in pattern.rstrip("/"):
            heads = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
            if any(fnmatch.fnmatchcase(head, bare) for head in heads):
                return True
        elif any(fnmatch.fnmatchcase(part, bare) for part in (parts[:-1] if pattern.endswith("/") else parts)):
            return True
    return False
