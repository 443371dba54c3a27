"""The program that a job's command begins with: it has to be there, and be one that can be started."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from swell.cli.named_files import Document, NothingToRun, base_of, program_of

INTERPRETERS: Mapping[str, str] = {".py": "python", ".sh": "bash"}
"""By suffix: what runs a file that is not executable."""
_PLAIN = re.compile(r"[\w.+][\w.+-]*")
_IN_SHELLS = frozenset(
    (
        *(".", ":", "alias", "bg", "break", "builtin", "case", "cd", "command", "continue", "coproc"),
        *("declare", "dirs", "echo", "enable", "eval", "exec", "exit", "export", "false", "fg", "for"),
        *("function", "getopts", "hash", "if", "jobs", "kill", "let", "local", "mapfile", "popd", "printf"),
        *("pushd", "pwd", "read", "readarray", "readonly", "return", "select", "set", "shift", "shopt"),
        *("source", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias"),
        *("unset", "until", "wait", "while"),
    )
)
"""What a shell does by itself."""


def check_programs(
    documents: Sequence[Document], *, snapshot: bool, local: bool, alone: Callable[[], bool]
) -> list[str]:
    """Raises NothingToRun for the first job whose first program cannot be started. `alone`: are jobs run on this
    machine only? Elsewhere other programs may be there; what is missing here is then a note."""
    notes: dict[str, None] = {}
    for index, document in enumerate(documents):
        base = base_of(document, snapshot=snapshot, local=local)
        words = program_of(document)
        if base is None or not words:
            continue
        if wrong := _a_file(base, words[0]):
            raise NothingToRun(wrong, index)
        if local and (wrong := _missing(document, words[0])):
            if alone():
                raise NothingToRun(f"{wrong}; {_instead(words[0])}", index)
            notes[f"{wrong}: the job fails unless the machine that runs it has one"] = None
    return list(notes)


def _a_file(base: Path, program: str) -> str:
    """What is wrong with a file of this directory as a program."""
    path, runs = base / program, INTERPRETERS.get(PurePosixPath(program).suffix)
    if program.startswith("/") or not path.is_file():
        return ""
    if "/" in program:
        instead = f"write {runs} {program}, or make it so" if runs else "make it so"
        return "" if os.access(path, os.X_OK) else f"{program} is not executable; {instead}: chmod +x {program}"
    if shutil.which(program):
        return ""
    return f"{program} is a file here, not a program on your PATH; write {f'{runs} ' if runs else './'}{program}"


def _missing(document: Document, program: str) -> str:
    """That no such program is on the PATH that the job will have."""
    env = document.get("env")
    own_path = "shell_env" in document or (isinstance(env, dict) and "PATH" in env)
    if own_path or not _PLAIN.fullmatch(program) or (document.get("python") and program.startswith("python")):
        return ""
    if program in _IN_SHELLS and not isinstance(document.get("command"), list):
        return ""
    return "" if shutil.which(program) else f"there is no program {program} on your PATH"


def _instead(program: str) -> str:
    if program in _IN_SHELLS:
        return f"it is a word of the shell: write the whole line as one argument, such as '{program} … && …'"
    there = {name for place in os.get_exec_path() if Path(place).is_dir() for name in os.listdir(place)}  # noqa: PTH208
    near = get_close_matches(program, sorted(there), n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else "check its name, or activate the environment that has it"
