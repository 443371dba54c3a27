"""A checked document -> job specs: short forms resolved, arrays and sweeps multiplied out, every problem named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from swell.core.job import JobSpec, Mount, Roles
from swell.core.spelling import instead_of
from swell.jobfile import foreign, shorthand
from swell.jobfile.problems import JobFileError, Problem, one
from swell.jobfile.read import check_values
from swell.jobfile.schema import Gpus, JobModel, MountModel, RolesModel
from swell.jobfile.units import written

NAME_RULE = "a name has letters, digits, '.', '_' and '-', begins with a letter or digit, and is at most 100 long"
NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(NAME_PATTERN)
_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_QUOTED = re.compile(r"'[^']*'")
MAX_TOTAL = 128 << 20
"""Characters of all jobs of one submission, written out."""
MAX_PATTERNS = 20
MAX_PATTERN = 500
RESERVED_NAMES = frozenset({"last", "all"})
INTERPRETERS = {".py": ("python",), ".sh": ("/bin/sh",), ".bash": ("bash",)}

Resolve = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the submission adds to the job file: its user, time and files, and a function that turns job names into
    ids."""

    now_s: float = 0.0
    user: str = ""
    files: str = ""
    resolve: Resolve = lambda _: ()


def expand(document: Mapping[str, Any], given: Given | None = None) -> list[JobSpec]:
    """All jobs of one document. Raises JobFileError with every problem."""
    given = given or Given()
    check_values(document)
    model = check(document)
    base = _base(model, given)
    combinations = _combinations(model)
    check_total(size_of(document) * len(combinations), len(combinations))
    return list(_elements(base, combinations))


def size_of(document: Mapping[str, Any]) -> int:
    """Roughly, in characters."""
    return len(repr(document))


def check_total(size: int, jobs: int) -> None:
    """Raise JobFileError if the jobs together are too large. The daemon stores each job of an array in full, so a
    request of 1 MiB could keep it busy for minutes and fill a disk."""
    if size > MAX_TOTAL:
        what = f"makes {jobs:,} jobs of {size >> 20:,} MiB together; those of a submission may have {MAX_TOTAL >> 20}"
        raise one("", what, "put what all of them share into a file of the job, or submit fewer at once")


def check(document: Mapping[str, Any]) -> JobModel:
    if (problem := foreign.kubernetes_object(document)) is not None:
        raise JobFileError([problem])
    try:
        return JobModel.model_validate(document)
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors(include_url=False)]
        raise JobFileError(problems) from error


def dependency_names(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Names (not ids) that a raw document depends on."""
    named = (document.get(field, ()) for field in ("depends_on", "after_any", "after_failure"))
    items = [item for said in named for item in (said if isinstance(said, list) else [said])]
    return tuple(item for item in items if isinstance(item, str) and item and not item.isdecimal())


def _base(model: JobModel, given: Given) -> JobSpec:
    _check_from_shell("secrets", model.secrets, model.env)
    _check_from_shell("env_from_shell", model.env_from_shell, model.env)
    if model.include and not model.files:
        fix = "submit with `swell`, which takes one; with --no-snapshot or an absolute workdir leave it out"
        raise one("include", "names files of a snapshot, and this job has none", fix)
    if bool(model.outputs) != bool(model.outputs_to) or not f"{model.outputs_to}/".startswith("/"):
        fix = "write outputs: [results/] and outputs_to: /an/absolute/directory of the daemon's machine, or neither"
        raise one("outputs", "names files and the directory that they are copied to, and one of them is missing", fix)
    _check_patterns(model.progress, counts_steps=bool(model.steps))
    if ".." in model.workdir.split("/"):
        raise one("workdir", f"{model.workdir!r} has '..' in it", "write an absolute path, or one inside the snapshot")
    return JobSpec(
        name=model.name or default_name(model),
        command=model.command or script_command(model.script, model.args),
        user=model.user or given.user,
        team=model.team,
        gpus=model.gpus.request(),
        cpus=model.cpus,
        memory_mib=model.memory,
        node_labels=model.labels,
        nodes=tuple(sorted(set(model.nodes))),
        image=model.image,
        env=model.env,
        shell_env=model.shell_env,
        python=model.python,
        secrets=model.secrets,
        workdir=model.workdir,
        files=model.files or ("" if model.workdir.startswith("/") else given.files),
        mounts=tuple(Mount(source=m.source, target=m.target, read_only=m.read_only) for m in model.mounts),
        kubernetes=model.kubernetes.options() if model.kubernetes else None,
        ports=model.ports,
        launcher=model.launcher,
        roles=Roles(servers=model.roles.servers, server_command=model.roles.command) if model.roles else None,
        priority=model.priority,
        weight=model.weight,
        epochs=model.epochs or model.steps or model.tokens or model.samples,
        unit="step" if model.steps else "token" if model.tokens else "sample" if model.samples else "epoch",
        batch_size=model.batch_size,
        dataset_size=model.dataset_size,
        estimated_s=3600 * model.estimated_hours,
        family=model.family,
        adaptive_batch=model.adaptive_batch,
        checkpoint_dir=model.checkpoint_dir,
        copy_checkpoints=model.copy_checkpoints,
        if_unreachable=model.if_unreachable,
        may_idle=model.may_idle,
        uses_library=model.uses_library,
        progress_patterns=model.progress,
        preemptible=model.preemptible,
        restart=model.restart,
        retries=model.retries,
        backoff_s=model.backoff,
        time_limit_s=model.time_limit,
        grace_s=model.grace,
        deadline_s=_deadline_s(model.deadline, given.now_s),
        depends_on=_jobs("depends_on", model.depends_on, given.resolve),
        after_any=_jobs("after_any", model.after_any, given.resolve),
        after_failure=_jobs("after_failure", model.after_failure, given.resolve),
        outputs=model.outputs,
        outputs_to=model.outputs_to,
    )


def _check_from_shell(field: str, names: Sequence[str], env: Mapping[str, str]) -> None:
    """The command line has put the values of the shell into env."""
    missing = [name for name in names if name not in env]
    if missing:
        fix = "set it in the shell you submit from, or write it into env"
        raise one(field, f"{', '.join(missing)} has no value", fix)


def _check_patterns(patterns: Sequence[str], *, counts_steps: bool) -> None:
    groups: set[str] = set()
    if len(patterns) > MAX_PATTERNS:
        raise one("progress", f"has {len(patterns)} expressions; a job may have {MAX_PATTERNS}", "join some by |")
    for index, pattern in enumerate(patterns):
        if len(pattern) > MAX_PATTERN:
            what = f"has {len(pattern):,} characters; an expression may have {MAX_PATTERN}"
            raise one(f"progress[{index}]", what, "name what stands around the numbers only")
        groups |= _groups_of(pattern, f"progress[{index}]")
    if "step" in groups and "epoch" not in groups and not counts_steps:
        fix = "write how many steps it trains, `steps: 6000`, or add a group named epoch"
        raise one("progress", "counts steps, and the job counts epochs", fix)


def _groups_of(pattern: str, path: str) -> Set[str]:
    """Parsed, never compiled: to compile one that was written for it takes seconds."""
    try:
        # by name: whether mypy knows `re._parser` depends on which other modules it reads in the same run
        found: Set[str] = vars(re)["_parser"].parse(pattern).state.groupdict.keys()
    except (re.error, OverflowError, RecursionError) as error:
        fix = "write it as for Python's re module"
        raise one(path, f"is not a regular expression: {error}", fix) from error
    return found


def _deadline_s(deadline: datetime | float, now_s: float) -> float:
    if isinstance(deadline, datetime):
        return deadline.timestamp()
    return now_s + deadline if deadline else 0.0


def _jobs(field: str, items: Sequence[int | str], resolve: Resolve) -> tuple[int, ...]:
    return tuple(job for item in items for job in _ids(field, item, resolve))


def _ids(field: str, item: int | str, resolve: Resolve) -> Sequence[int]:
    if isinstance(item, int):
        return (item,)
    jobs = resolve(item)
    if not jobs:
        raise one(field, f"there is no job named {written(item)}", "`swell ls --all` shows what there is")
    return jobs


def script_command(script: str, args: Sequence[str]) -> tuple[str, ...]:
    path = PurePosixPath(script)
    if "\n" in script:
        raise one("script", "is a text of several lines, not the name of a file", "use command: | for shell lines")
    if not path.is_absolute() and ".." in path.parts:
        raise one("script", f"{written(script)} leads out of the job's files", "name a file in the working directory")
    runner = INTERPRETERS.get(path.suffix)
    if runner is not None:
        return (*runner, script, *args)
    return (script if path.is_absolute() else f"./{path}", *args)


def default_name(model: JobModel) -> str:
    """From the script, or the first word of the command that looks like one: `python -u train.py` -> train."""
    text = " ".join(model.command[2:] if model.command[:2] == ("/bin/sh", "-c") else model.command)
    words = [model.script] if model.script else re.split(r"[\s;|&<>()'\"]+", text)
    scripts = [word for word in words if PurePosixPath(word).suffix in INTERPRETERS]
    stem = PurePosixPath((scripts or [word for word in words if word] or ["job"])[0]).stem
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80]
    return cleaned if cleaned and not cleaned.isdecimal() and cleaned not in RESERVED_NAMES else "job"


def _elements(base: JobSpec, combinations: Sequence[tuple[int, dict[str, str]]]) -> Iterator[JobSpec]:
    if not combinations:
        _check_name(base.name, {})
        _check_parameters(base, {})
        yield base
        return
    named = "${" in base.name
    for index, parameters in combinations:
        values = {"index": str(index), **parameters}
        name = _fill(base.name, values) if named else f"{base.name}-{index}"
        _check_name(name, values)
        if index == combinations[0][0]:
            _check_parameters(base, values)
        yield replace(
            base,
            name=name,
            command=tuple(_fill(word, values) for word in base.command),
            env={key: _fill(value, values) for key, value in base.env.items()},
            workdir=_fill(base.workdir, values),
            checkpoint_dir=_fill(base.checkpoint_dir, values),
            array_index=index,
            array_parameters=parameters,
        )


def _combinations(model: JobModel) -> list[tuple[int, dict[str, str]]]:
    if model.array:
        return [(index, {}) for index in model.array]
    products = itertools.product(*model.sweep.values()) if model.sweep else ()
    return [(i, dict(zip(model.sweep, values, strict=True))) for i, values in enumerate(products)]


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Known parameters only: `${HOME}` is the shell's."""
    return _PARAMETER.sub(lambda match: values.get(match[1], match[0]), text) if "${" in text else text


def _check_parameters(spec: JobSpec, values: Mapping[str, str]) -> None:
    """Refuse `${name}` if nothing sets it: the shell would replace a misspelt parameter by nothing. Names in capitals
    (`${HOME}`), names that the line sets itself, and text in single quotes are left to the shell."""
    if spec.command[:2] != shorthand.SHELL:
        return
    line = _QUOTED.sub("", spec.command[2])
    known = {**values, **spec.env, **spec.shell_env}
    for name in _PARAMETER.findall(line):
        if name in known or name.isupper() or _set_by(line, name):
            continue
        fix = (
            f"{instead_of(name, known)}; add array: or sweep:, or set it in env"
            if values
            else ("add array: or sweep: for a parameter, or set it in env or in the line")
        )
        raise one("command", f"nothing sets {name[:100]!r}, so ${{{name[:100]}}} would be empty", fix)


def _set_by(line: str, name: str) -> bool:
    return re.search(rf"\b{name}=|\b(?:for|read|select|getopts|export|local)\b[^;\n]*\b{name}\b", line) is not None


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _check_name(name: str, values: Mapping[str, str]) -> None:
    unknown = [match for match in _PARAMETER.findall(name) if match not in values]
    if unknown:
        fix = "add array: or sweep:, or take it out of the name"
        raise one("name", f"there is no parameter {written(unknown[0])} to put into {written(name)}", fix)
    if not is_name(name):
        raise one("name", f"{written(name)} is not a name Swell can use", NAME_RULE)
    if name.isdecimal() or name in RESERVED_NAMES:
        raise one("name", f"{name!r} would be taken for something else on the command line", "add a word to it")


_FIELDS: Mapping[str, Sequence[str]] = {
    "": tuple(JobModel.model_fields),
    "gpus": tuple(Gpus.model_fields),
    "roles": tuple(RolesModel.model_fields),
    "mounts": tuple(MountModel.model_fields),
}


def _problem(detail: ErrorDetails) -> Problem:
    """A problem in our words for an error of pydantic."""
    path = _path(detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown_field(detail["loc"], path, detail["input"])
    if kind == "value_error":
        error = detail["ctx"]["error"]
        path = path or (error.field if isinstance(error, shorthand.Misfit) else "")
        what, _, fix = str(error).rpartition("; ")  # the user's text may contain "; ", a fix never does
        return Problem(path=path, what=what or fix, fix=fix if what else "")
    if kind == "string_type":
        return Problem(path=path, what=f"must be text, not {written(detail['input'])}", fix="put it into quotes")
    if kind in ("int_type", "int_from_float", "int_parsing"):
        return Problem(path=path, what=f"must be a whole number, not {written(detail['input'])}", fix="write 4, say")
    if kind == "enum":
        return _not_one_of(detail, path)
    if kind == "string_pattern_mismatch":
        return Problem(path=path, what="is not a hash of uploaded files", fix="leave it out: submit fills it")
    return Problem(path=path, what=_lower(detail["msg"]), fix="see the reference of the job file")


def _lower(message: str) -> str:
    return message.replace("Input should be", "must be", 1)


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for item in loc:
        path += f"[{item}]" if isinstance(item, int) else f".{item}" if path else item
    return path


def _unknown_field(loc: tuple[int | str, ...], path: str, value: object) -> Problem:
    name = str(loc[-1])
    known = _FIELDS.get(str(loc[0]) if len(loc) > 1 else "", ())
    instead = foreign.ours(name, value) if len(loc) == 1 else None
    return Problem(path=path, what="there is no such field", fix=instead or instead_of(name, known))


def _not_one_of(detail: ErrorDetails, path: str) -> Problem:
    expected = str(detail["ctx"]["expected"])
    options = re.findall(r"'([^']+)'", expected)
    what = f"{written(detail['input'])} is not one of its values"
    return Problem(path=path, what=what, fix=instead_of(detail["input"], options))
