"""Files that a job's command names: the script that it runs has to be there, and what it reads in the job's copy."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from swell.core.errors import SwellError
from swell.jobfile.files import Packed
from swell.jobfile.units import MAX_WRITTEN, written

Document = dict[str, Any]
MAX_PATH = 300
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_INTERPRETER = re.compile(r"(python[\d.]*|bash|sh|dash|zsh)")
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec"})
_BEFORE = frozenset({"env", "exec", "nohup", "time"})
_OPERATOR = re.compile(r"[;&|<>()]+")
_UNKNOWN = re.compile(r"[$`*?\[{~]")
"""In a word whose text is known only when the job runs."""
_NO_SCRIPT = {True: re.compile(r"-|-\w*[cm]\w*"), False: re.compile(r"-|-\w*[cs]\w*")}
"""By whether it is Python: the option after which an interpreter reads its code from elsewhere."""
_WITH_VALUE = {True: frozenset({"-X", "-W"}), False: frozenset({"-o", "-O"})}
_INPUT = re.compile(r"--?(config|cfg|input|data|dataset|train|val|test)([-_]?(file|path|data|csv|json|yaml))?")
"""Options that name what a program reads. Others may name what it writes, which need not be there."""
_DATA = frozenset(
    (
        *(".cfg", ".csv", ".gz", ".h5", ".hdf5", ".ini", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".pkl", ".py"),
        *(".tar", ".toml", ".tsv", ".txt", ".yaml", ".yml", ".zip"),
    )
)


class NothingToRun(SwellError):
    """What a job is to run is not there, or cannot be started. `index`: of the job."""

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


def check_scripts(documents: Sequence[Document], *, snapshot: bool, local: bool) -> None:
    """Raises NothingToRun for the first job that begins in a directory which is not here, or whose first program is to
    run a file of this directory that is not there. Not asked of jobs that run in other files: of an image, a pod, a
    directory of another machine."""
    for index, document in enumerate(documents):
        base = base_of(document, snapshot=snapshot, local=local)
        script = script_of(document)
        if base is not None and base.is_relative_to(Path.cwd()) and not os.path.isdir(base):  # noqa: PTH112
            fix = "name one that is here, or an absolute path"
            raise NothingToRun(
                f"workdir: there is no directory {written(document['workdir'])} in {Path.cwd()}; {fix}", index
            )
        if base is None or not script or script.startswith("/") or _UNKNOWN.search(script):
            continue
        if not _exists(base / script):
            missing = f"the job runs {script[:MAX_WRITTEN]}, which is not in {str(base)[:MAX_PATH]}"
            raise NothingToRun(f"{missing}; {_instead(base, script)}", index)


def base_of(document: Document, *, snapshot: bool, local: bool) -> Path | None:
    """Where the command begins, if that is this directory or one below it."""
    workdir = str(document.get("workdir", ""))
    if _UNKNOWN.search(workdir) or any(document.get(key) for key in ("files", "image", "kubernetes")):
        return None
    if workdir.startswith("/") if snapshot else not local:
        return None
    return Path.cwd() / workdir


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises for a long word


def _instead(base: Path, script: str) -> str:
    """The file that was probably meant: spelt alike in that directory, or of that name in the next ones."""
    place, name = (base / script).parent, PurePosixPath(script).name
    there = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    if near := get_close_matches(name, there, n=1):
        return f"did you mean {PurePosixPath(script).parent / near[0]}?"
    below = sorted(os.path.relpath(path, base) for path in base.glob(f"*/{name}") if not path.parent.is_symlink())
    if below:
        return f"there is {below[0]}"
    return "submit from the directory that has it, or write its path from here"


def script_of(document: Document) -> str:
    """The script that the job starts with; empty if its command does not show one. Only the first program of a line is
    looked at: later ones may run what earlier ones made."""
    script = document.get("script")
    if isinstance(script, str) and script:
        return script
    words = program_of(document)
    if not words:
        return ""
    program = PurePosixPath(words[0]).name
    if _INTERPRETER.fullmatch(program):
        return _first_file(words[1:], python=program.startswith("python"))
    if program in _LAUNCHERS:
        return next((word for word in words[1:] if word.endswith(".py")), "")
    return words[0] if "/" in words[0] else ""


def program_of(document: Document) -> list[str]:
    """The first program of the command and its arguments, without what stands before it."""
    words = first_command(document.get("command", ""))
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in _BEFORE):
        words = words[1:]
    return words


def _first_file(words: Sequence[str], *, python: bool) -> str:
    """Of an interpreter's arguments, the script; empty if it reads its code from elsewhere (-c, -m, standard input), or
    has options that are not known here."""
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            return word
        if word.startswith("--") or _NO_SCRIPT[python].fullmatch(word):
            return ""
        if word in _WITH_VALUE[python]:
            next(left, "")
    return ""


def first_command(command: object) -> list[str]:
    """Words of the first program of a shell line; the words of a list are one program. Empty where the line defines a
    function, or goes on with something else if the program fails."""
    if isinstance(command, list):
        return [str(word) for word in command]
    if not isinstance(command, str):
        return []
    lines = [line for line in command.replace("\\\n", " ").splitlines() if line.strip()]
    lexer = shlex.shlex(lines[0] if lines else "", posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation that goes on in the next line
        return []
    end = next((i for i, word in enumerate(words) if _OPERATOR.fullmatch(word)), len(words))
    return [] if any(word == "||" or word.startswith("()") for word in words[end : end + 1]) else words[:end]


def notes_on(root: Path, packed: Packed, document: Document) -> Iterator[str]:
    """What the command names and will not find in the copy of `root`."""
    for name in dict.fromkeys(named_but_left_out(root, packed, document)):
        if _empty(root / name):
            yield f"the command names {name}, which is empty, and only files are copied: have the job make it"
            continue
        why = next((w for path, w in packed.left_out.items() if f"{name}/".startswith(f"{path}/")), "something")
        yield (
            f"the command names {name}, which is not in the snapshot ({why} leaves it out): add `--include {name}` "
            f"(include: [{name}] in a job file), write {root / name}, or run in place with --no-snapshot"
        )
    for name in dict.fromkeys(_named_outside(root, document)):
        yield (
            f"the command names {name}, which is outside of {root} and so not in the snapshot: submit from a directory "
            f"that has both, write {os.path.normpath(root / name)}, or run in place with --no-snapshot"
        )
    for option, name in _named_inputs(root, document):
        yield (f"the command names {name} ({option}), which is not in {root}: check its name, unless the job makes it")


def _empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def named_but_left_out(root: Path, packed: Packed, document: Document) -> list[str]:
    """Paths in the command that are here and will not be in the copy."""
    found: list[str] = []
    for path in _paths(document, _all_words(document)):
        if path == "." or path.startswith("..") or not _exists(root / path):
            continue
        if path not in packed.names and not any(name.startswith(f"{path}/") for name in packed.names):
            found.append(path)
    return found


def _named_outside(root: Path, document: Document) -> list[str]:
    """Paths in the command that lead out of `root` and are there."""
    words = first_command(document.get("command", ""))
    return [path for path in _paths(document, words) if path.startswith("../") and _exists(root / path)]


def _named_inputs(root: Path, document: Document) -> Iterator[tuple[str, str]]:
    """Options of the first program that name a file to read which is not here, each with it."""
    base = str(document.get("workdir", ""))
    words = _all_words(document) if document.get("script") else first_command(document.get("command", ""))
    for word, following in pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        name = value if equals else following
        if not _INPUT.fullmatch(option) or PurePosixPath(name).suffix not in _DATA or _elsewhere(name):
            continue
        if not _exists(root / base / name):
            yield option, name


def _paths(document: Document, words: Sequence[str]) -> Iterator[str]:
    """These words of the command, and values of its options, as paths from the directory that is copied."""
    base = str(document.get("workdir", ""))
    for part in words:
        for word in (part, part.partition("=")[2]):
            if word and not _elsewhere(word):
                yield os.path.normpath(Path(base, word))


def _elsewhere(word: str) -> bool:
    """No path from here, or not known before the job runs."""
    return word.startswith(("/", "-", "~")) or "://" in word or "$" in word


def _all_words(document: Document) -> list[str]:
    command, args = document.get("command", ""), document.get("args", [])
    words = [str(word) for word in args] if isinstance(args, list) else []
    if isinstance(command, list):
        return [*map(str, command), *words]
    try:
        return [*shlex.split(str(command)), *words]
    except ValueError:
        return words
