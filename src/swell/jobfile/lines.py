"""Finds the line of a job file to which a problem belongs. `cli.submit` and `api.validate` call it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from swell.jobfile.problems import JobFileError, Problem

_LINE = re.compile(r"\bline (\d+)")
_PATH = re.compile(r"[^.\[\]]+")


def located(error: JobFileError, text: str) -> list[tuple[Problem, int]]:
    """Each problem with its line. A problem behind the end of the text gets its last line."""
    roots = [] if error.syntax else _composed(text)
    last = text.rstrip().count("\n") + 1
    return [(p, min(last, _line(p.path, roots) or _line_said(p.what))) for p in error.problems]


def written_at(path: str, text: str) -> int:
    """The line on which the field `path` of a job file is written; 0: the file does not have it."""
    roots = _composed(text)
    return _line(path, roots, whole=True) if roots else 0


def _composed(text: str) -> list[yaml.Node]:
    try:
        return [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except (yaml.YAMLError, RecursionError):
        return []


def _line_said(what: str) -> int:
    """The line that the message of a syntax error names; 1 if it names none."""
    found = _LINE.search(what)
    return int(found[1]) if found else 1


def _line(path: str, roots: Sequence[yaml.Node], *, whole: bool = False) -> int:
    """The line of the deepest part of the path that the file has. 0: unknown, or with `whole`, the file does not even
    have its first part."""
    if not roots:
        return 0
    jobs = [job for root in roots for job in (root.value if isinstance(root, yaml.SequenceNode) else [root])]
    steps = _PATH.findall(path)
    node: yaml.Node = jobs[0]
    if len(steps) > 1 and steps[0] == "jobs" and steps[1].isdecimal():
        node, steps = jobs[min(int(steps[1]), len(jobs) - 1)], steps[2:]
    line: int = node.start_mark.line + 1
    for depth, step in enumerate(steps):
        found = _inside(node, step)
        if found is None:
            return 0 if whole and depth == 0 else line
        line, node = found
    return line


def _inside(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return value.start_mark.line + 1, value
    return None
