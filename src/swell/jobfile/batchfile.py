"""A batch file: one shell command per line, each a job. `cli.batch_run` calls it. Pure: text in, lines and job
documents out.

A job's name is a hash of its command, not its line number, so that inserting a line renames no other job."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swell.core.spelling import instead_of
from swell.jobfile.bash_line import comment_at, goes_on
from swell.jobfile.problems import JobFileError, Problem
from swell.jobfile.units import parse_duration_s, parse_size_mib

MARK = "#swell"
BYTE_ORDER_MARK = "\ufeff"  # editors on Windows begin files with it
MAX_STEM = 80
LONGEST = 131_000  # bytes; Linux takes 131,072 in one argument
RUN_LINE = """\
trap : TERM INT
: >> "$0.out"; : >> "$0.err"
exec 3> >(trap "" TERM INT; exec tee -a -- "$0.out"); out=$!
exec 4> >(trap "" TERM INT; exec tee -a -- "$0.err" >&2); err=$!
bash -c "$1" >&3 2>&4 3>&- 4>&-
code=$?
exec 3>&- 4>&-
for ((i = 0; i < 100; i++)); do kill -0 $out $err 2>/dev/null || break; sleep 0.02; done
exit $code
"""
"""Output goes to <job>.out, <job>.err and the log at once. Background processes of the line may hold these files open
for about two seconds more; then the job ends and they are killed."""
LINE_OPTIONS = {
    "gpus": "whole",
    "cpus": "whole",
    "memory": "size",
    "gpu_memory": "size",
    "utilisation": "part",
    "share": "flag",
    "retries": "whole",
    "time_limit": "duration",
    "priority": "priority",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One command. `options` are those of its `#swell` comment, checked. `text` is the whole line, which is what bash
    runs; empty: `command`."""

    number: int
    name: str
    command: str
    text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What each job of a batch needs, unless the `#swell` comment of its line specifies something else."""

    gpus: int = 1
    cpus: int = 1
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    utilisation: float = 0.0
    share: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] = ()


def read_batch(text: str, file: str) -> tuple[BatchLine, ...]:
    """The commands of a batch file. Raises JobFileError with every problem at once, each with its file and line."""
    problems: list[Problem] = []
    found: list[tuple[int, str, str, dict[str, Any]]] = []
    for number, ended in enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), start=1):
        line = ended.rstrip("\r")
        try:
            if read := _read_line(line):
                found.append((number, line, *read))
        except ValueError as error:
            problems.append(_problem(f"{file}:{number}", str(error)))
    if problems:
        raise JobFileError(problems)
    if not found:
        raise JobFileError([_problem(file, "there is no command in it; write one shell command per line")])
    names = _names(stem(file), [command for _, _, command, _ in found])
    return tuple(
        BatchLine(number=number, name=name, command=command, text=line, options=options)
        for (number, line, command, options), name in zip(found, names, strict=True)
    )


def _problem(path: str, text: str) -> Problem:
    what, _, fix = text.partition("; ")
    return Problem(path=path, what=what, fix=fix)


def _read_line(line: str) -> tuple[str, dict[str, Any]] | None:
    """The command of a line and its options. None: the line has no command."""
    if "\0" in line:
        raise ValueError("there is a NUL byte in the line; a batch file is text")
    if len(line.encode(errors="surrogateescape")) > LONGEST:
        raise ValueError("the line is longer than the 128 KiB that Linux takes; put it into a script, and call that")
    at = comment_at(line)
    command, comment = line[:at].strip(), line[at:].strip()
    marked = comment == MARK or comment.startswith(f"{MARK} ")
    if not command:
        if marked:
            raise ValueError(f"{MARK} stands alone; write it behind the command that it is for, on the same line")
        return None
    if not comment and goes_on(line):
        raise ValueError("the command ends with a backslash; write the whole command on one line")
    return command, _options(comment.removeprefix(MARK).split()) if marked else {}


def _options(words: Sequence[str]) -> dict[str, Any]:
    return dict(_option(word) for word in words)


def _option(word: str) -> tuple[str, Any]:
    name, equals, text = word.partition("=")
    if not equals or not text:
        raise ValueError(f"{word!r} is no option; write {MARK} gpus=2 memory=8GiB")
    if name not in LINE_OPTIONS:
        raise ValueError(f"there is no option {name!r} of a line; {instead_of(name, LINE_OPTIONS)}")
    try:
        return name, _value(LINE_OPTIONS[name], text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _value(kind: str, text: str) -> Any:
    if kind == "size":
        return parse_size_mib(text)
    if kind == "duration":
        return parse_duration_s(text)
    if kind == "part":
        return part_of_gpu(text)
    if kind == "flag":
        if text not in ("yes", "no"):
            raise ValueError(f"{text!r} is neither yes nor no; write yes or no")
        return text == "yes"
    if kind == "priority" and not text.lstrip("-").isdecimal():
        return text
    if not text.lstrip("-").isdecimal() or (kind == "whole" and int(text) < 0):
        raise ValueError(f"{text!r} is not a whole number; write a number such as 2")
    return int(text)


def part_of_gpu(text: str) -> float:
    """0.5 is half a GPU. Raises ValueError."""
    try:
        part = float(text)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise ValueError(f"{text!r} is not a part of a GPU; write a number from 0 to 1, such as 0.5")
    return part


def stem(file: str) -> str:
    """`example/batch.sh` -> `example_batch.sh`: the first part of its jobs' names."""
    text = re.sub(r"[^A-Za-z0-9._-]", "_", file.removeprefix("./"))
    return text.lstrip("._-")[-MAX_STEM:].lstrip("._-") or "batch"


def _names(first: str, commands: Sequence[str]) -> Iterator[str]:
    """One name per command: stem and hash. A repeated command gets a number behind its hash."""
    seen: dict[str, int] = {}
    for command in commands:
        content = hashlib.sha256(command.encode(errors="surrogateescape")).hexdigest()[:8]
        count = seen[content] = seen.get(content, 0) + 1
        yield f"{first}.{content}" + (f"-{count}" if count > 1 else "")


# -- documents --------------------------------------------------------------------------------------------------------


def job_document(line: BatchLine, needs: Requirements) -> dict[str, Any]:
    """The job file of one line. Raises JobFileError where its options contradict each other."""
    said = line.options
    document: dict[str, Any] = {
        "name": line.name,
        "command": ["bash", "-c", RUN_LINE, line.name, line.text or line.command],
        "gpus": _gpus(line, needs),
        "cpus": said.get("cpus", needs.cpus),
        "memory": said.get("memory", needs.memory_mib),
    }
    if needs.labels:
        document["labels"] = dict(needs.labels)
    if needs.nodes:
        document["nodes"] = list(needs.nodes)
    document.update({key: said[key] for key in ("retries", "time_limit", "priority") if key in said})
    return document


def _gpus(line: BatchLine, needs: Requirements) -> Any:
    count = line.options.get("gpus", needs.gpus)
    share = line.options.get("share", needs.share and count == 1)
    if count == 0:
        return 0
    if share and count != 1:
        what = f"a job that shares a GPU has one, not {count}"
        raise JobFileError([Problem(path=f"line {line.number}", what=what, fix="write gpus=1, or leave out share=yes")])
    gpus: dict[str, Any] = {"min": count, "max": count, "share": share}
    memory = line.options.get("gpu_memory", needs.gpu_memory_mib)
    utilisation = line.options.get("utilisation", needs.utilisation)
    return {**gpus, **({"memory": memory} if memory else {}), **({"utilisation": utilisation} if utilisation else {})}
