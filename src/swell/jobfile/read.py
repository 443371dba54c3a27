"""Text of a job file -> plain documents: YAML (several documents are several jobs) or JSON. Errors say where."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from typing import Any

import yaml

from swell.jobfile.problems import JobFileError, one

MAX_BYTES = 1 << 20
MAX_VALUES = 300_000
MAX_DEPTH = 40
MAX_ALIASES = 30

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NEVER_TEXT = re.compile("[\x00\ud800-\udfff]")


class _Loader(_BaseLoader):  # type: ignore[misc]
    """Safe YAML that does not let a second `gpus:` silently win over the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                where = _where(key.start_mark)
                raise one(str(key.value), f"is there twice, the second time on {where}", "keep one", syntax=True)
            seen[str(key.value)] = key
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _where(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "an unknown line"


def read_documents(text: str | bytes) -> list[dict[str, Any]]:
    """Every job in the text, unchecked. Raises JobFileError."""
    if len(text) > MAX_BYTES:
        raise one("", f"is {len(text):,} bytes; a job file may have {MAX_BYTES:,}", "put data into files of the job")
    decoded = text if isinstance(text, str) else _decode(text)
    found = _json(decoded) if decoded.lstrip()[:1] in ("{", "[") else None
    documents = _flat(found if found is not None else _yaml(decoded))
    if not documents:
        raise one("", "there is no job in it", "write at least: command: python train.py", syntax=True)
    for document in documents:
        if not isinstance(document, dict):
            raise one("", f"a job is a mapping, not {_kind(document)}", "write field: value, one a line", syntax=True)
    return documents


def read_value(text: str) -> Any:
    """One value as it would stand in a file: `2`, `1-4`, `[a, b]`."""
    found = _yaml(text)
    return found[0] if found else None


def _flat(found: list[Any]) -> list[Any]:
    """A document that is a list is a list of jobs."""
    return [job for doc in found if doc is not None for job in (doc if isinstance(doc, list) else [doc])]


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise one("", f"is not UTF-8 text (byte {error.start})", "save it as UTF-8", syntax=True) from error


def _json(text: str) -> list[Any] | None:
    """None when it is not JSON: it may still be YAML in flow style, which says better what is wrong with it."""
    try:
        return [json.loads(text)]
    except (json.JSONDecodeError, RecursionError):
        return None


def _yaml(text: str) -> list[Any]:
    try:
        _check_shape(text)
        return list(yaml.load_all(text, Loader=_Loader))
    except JobFileError:
        raise
    except yaml.MarkedYAMLError as error:
        what = error.problem or "cannot be read"
        if error.context_mark is not None:
            what += f", {error.context} that begins at {_where(error.context_mark)}"
        raise one(
            "", f"not valid YAML at {_where(error.problem_mark)}: {what}", _hint(text, error), syntax=True
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"there is a character on line {line} that no text file has (code {error.character})"
        raise one("", what, "remove it", syntax=True) from error
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise one("", f"not valid YAML: {error}", "see the reference of the job file", syntax=True) from error


def _check_shape(text: str) -> None:
    """Before anything is built: the C library overflows its stack on deep nesting, and aliases multiply."""
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_BaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > MAX_DEPTH or aliases > MAX_ALIASES:
            what = f"has more than {MAX_DEPTH} levels or {MAX_ALIASES} aliases at {_where(event.start_mark)}"
            raise one("", what, "write it flatter", syntax=True)


def _hint(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "\t" in line:
        return "YAML wants spaces, not tabs, at the beginning of a line"
    if line.count(": ") > 1 or "mapping values" in (error.problem or ""):
        return "put text that contains ': ' into quotes"
    return "check indentation, quotes and brackets there"


def _kind(value: object) -> str:
    names: Mapping[type, str] = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list"}
    return names.get(type(value), type(value).__name__)


def check_values(document: object) -> None:
    """Refuse what no later step could carry: NUL bytes, halves of characters, bombs made of YAML aliases."""
    budget = [MAX_VALUES]
    _check_value(document, "", budget, 0)


def _check_value(value: object, path: str, budget: list[int], depth: int) -> None:
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise one("", f"has more than {MAX_VALUES:,} values, or more than {MAX_DEPTH} levels", "make it smaller")
    if isinstance(value, str):
        if _NEVER_TEXT.search(value):
            raise one(path, "has a NUL byte or half a character in it", "remove it: no program can be given one")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_value(key, path, budget, depth)
            _check_value(item, f"{path}.{key}" if path else str(key), budget, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_value(item, f"{path}[{index}]", budget, depth + 1)
