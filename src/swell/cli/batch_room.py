"""Where the jobs of a batch fit: asked of the daemon once per kind of job, since its lines are mostly alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from swell.cli.common import table
from swell.cli.sending import Document
from swell.cli.tables import NODE_HEAD, node_row
from swell.cli.terminal import safe, say
from swell.client.http import YAML, Client
from swell.jobfile.batchfile import BatchLine
from swell.jobfile.problems import JobFileError, Problem

ASKED, SHOWN, LINES_NAMED = 100, 5, 3
_OF_KIND = re.compile(r"jobs\[(\d+)\]\.?")


@dataclass(slots=True, kw_only=True)
class Kind:
    """Lines with the same needs. `view`: where one of them fits."""

    document: Document
    lines: list[int] = field(default_factory=list)
    view: dict[str, Any] = field(default_factory=dict)

    def problem(self, name: str, what: str, fix: str) -> Problem:
        more = len(self.lines) - LINES_NAMED
        named = ", ".join(map(str, self.lines[:LINES_NAMED])) + (f" and {more} more" if more > 0 else "")
        where = f"line {named}" if len(self.lines) == 1 else f"lines {named}"
        return Problem(path=f"{where}: {name}" if name else where, what=what, fix=fix)


def kinds_of(client: Client, lines: Sequence[BatchLine], documents: Sequence[Document]) -> list[Kind]:
    """Raises JobFileError if a line cannot be a job."""
    found: dict[str, Kind] = {}
    for line, document in zip(lines, documents, strict=True):
        needs = {key: value for key, value in document.items() if key not in ("name", "command")}
        found.setdefault(json.dumps(needs, sort_keys=True), Kind(document=document)).lines.append(line.number)
    asked = list(found.values())[:ASKED]
    text = "\n---\n".join(json.dumps(kind.document) for kind in asked)
    answer = client.request("POST", "/v1/jobs/validate?times=false", text.encode(), {"Content-Type": YAML})
    if answer["problems"]:
        raise JobFileError(list(_problems(asked, answer["problems"])))
    for kind, view in zip(asked, answer["jobs"], strict=True):
        kind.view = view
    return asked


def _problems(kinds: Sequence[Kind], said: Sequence[dict[str, str]]) -> Iterator[Problem]:
    for problem in said:
        index = _OF_KIND.match(problem["path"])
        name = problem["path"][index.end() :] if index else problem["path"]
        yield kinds[int(index[1]) if index else 0].problem(name, problem["what"], problem["fix"])


def check_fits(kinds: Sequence[Kind]) -> None:
    """Raises JobFileError with the lines that no node could ever run; the daemon would refuse all lines for one."""
    never = [kind for kind in kinds if not kind.view["fits"]]
    if never:
        halves = [(kind, *kind.view["why"].partition("; ")) for kind in never]
        raise JobFileError([kind.problem("", what, fix) for kind, what, _, fix in halves])


def show_room(client: Client, kinds: Sequence[Kind], *, verbose: bool) -> None:
    """How many jobs each machine runs at once and on which GPUs, for each kind of job."""
    for view in [kind.view for kind in kinds[:SHOWN]]:
        of = f" ({view['name']} and alike)" if len(kinds) > 1 else ""
        say(safe(f"machine limits: { {limit['node']: limit['at_once'] for limit in view['limits']} }{of}"))
        say(safe(f"machine gpu choices: { {limit['node']: limit['gpus'] for limit in view['limits']} }{of}"))
    if verbose:
        say(table(NODE_HEAD, [node_row(node) for node in client.get("/v1/nodes")["nodes"]]))
