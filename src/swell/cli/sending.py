"""Sending jobs to the daemon: the files as they are now, what the shell knows, then the documents."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from swell.cli.common import plural
from swell.cli.named_files import NothingToRun, check_scripts, notes_on
from swell.cli.named_programs import check_programs
from swell.cli.shell import Wrong, complete
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.client.http import YAML, Client
from swell.home import default_home
from swell.jobfile.choosing import ALL, Wanted, matches
from swell.jobfile.files import Packed, pack
from swell.jobfile.units import format_size

Document = dict[str, Any]
LEFT_OUT_SHOWN = 3


def prepare(
    client: Client, documents: Sequence[Document], *, snapshot: bool, home: Path | None, wanted: Wanted = ALL
) -> Packed | None:
    """Complete the documents in place. Returns the snapshot that was taken, if one was needed: of what is `wanted`, and
    of what the documents include."""
    check(client, documents, snapshot=snapshot)
    _complete(client, documents, snapshot=snapshot)
    if not snapshot:
        for document in documents:
            _in_place(document)
    wanting = [document for document in documents if _wants_files(document)]
    if not wanting:
        return None
    packed = _send_snapshot(client, home, wanting, wanted)
    for document in wanting:
        document["files"] = packed.hash
    return packed


def check(client: Client, documents: Sequence[Document], *, snapshot: bool) -> None:
    """Raises NothingToRun if a job could not start; Refused if fields are wrong too, which their user learns first."""
    local = client.address.local
    try:
        check_scripts(documents, snapshot=snapshot, local=local)
        found = check_programs(documents, snapshot=snapshot, local=local, alone=lambda: _alone(client))
    except NothingToRun:
        view = validated(client, deepcopy(list(documents)), times=False)
        if view["problems"]:
            raise refused(view) from None
        raise
    for note in found[:LEFT_OUT_SHOWN]:
        say(f"note: {note}", err=True)


def validated(client: Client, documents: Sequence[Document], *, times: bool = True) -> dict[str, Any]:
    """What the daemon finds wrong with these documents, which are completed in place; nothing is submitted."""
    as_if_sent(client, documents)
    text = "\n---\n".join(json.dumps(document, default=str) for document in documents)  # JSON is YAML
    path = f"/v1/jobs/validate?times={str(times).lower()}"
    view: dict[str, Any] = client.request("POST", path, text.encode(), {"Content-Type": YAML})
    return view


def as_if_sent(client: Client, documents: Sequence[Document]) -> None:
    """Complete the documents in place, for a trial: without a snapshot, which only a real submission takes."""
    _complete(client, documents, snapshot=True)
    for document in documents:
        document.pop("include", None)


def _complete(client: Client, documents: Sequence[Document], *, snapshot: bool) -> None:
    """Raises Refused, as the daemon would, for what only this machine can judge."""
    for index, document in enumerate(documents):
        try:
            complete(document, local=client.address.local, snapshot=snapshot)
        except Wrong as wrong:
            path = f"jobs[{index}].{wrong.field}" if len(documents) > 1 else wrong.field
            raise refused({"problems": [{"path": path, "what": wrong.what, "fix": wrong.fix}]}) from None


def refused(view: dict[str, Any]) -> Refused:
    """What the daemon would have answered to documents with these problems."""
    from swell.jobfile.problems import JobFileError, Problem

    problems = [Problem(path=problem["path"], what=problem["what"], fix=problem["fix"]) for problem in view["problems"]]
    return Refused(422, {"problems": view["problems"], "detail": str(JobFileError(problems))})


def _alone(client: Client) -> bool:
    """Jobs run on this machine only."""
    return all(node["contact"] == "here" for node in client.get("/v1/nodes")["nodes"])


def send(client: Client, documents: Sequence[Document]) -> dict[str, Any]:
    """The key makes sending again harmless when the answer is lost on its way."""
    return client.submit(documents[0] if len(documents) == 1 else documents, key=secrets.token_hex(16))


def needs_gpus(document: Document) -> bool:
    """As far as one sees without the schema: anything but `gpus: 0`."""
    gpus = document.get("gpus", 1)
    return str(gpus.get("max", 1) if isinstance(gpus, dict) else gpus).strip() != "0"


def _in_place(document: Document) -> None:
    document["workdir"] = str(Path.cwd() / str(document.get("workdir", "")))


def _wants_files(document: Document) -> bool:
    return "files" not in document and not str(document.get("workdir", "")).startswith("/")


def _send_snapshot(client: Client, home: Path | None, documents: Sequence[Document], wanted: Wanted) -> Packed:
    from swell.config import load_config

    config = load_config(home)
    root = Path.cwd()
    include = [pattern for document in documents for pattern in _texts(document.get("include"))]
    wanted = replace(wanted, include=(*wanted.include, *include))
    with tempfile.TemporaryFile() as archive:
        own = (config.home, default_home())
        packed = pack(root, archive, max_mib=config.snapshot_max_mib, exclude=own, wanted=wanted)
        if not client.has_files(packed.hash):
            archive.seek(0)
            client.send_files(packed.hash, archive, packed.size)
    for note in notes(root, packed, documents):
        say(f"note: {note}", err=True)
    return packed


def _texts(value: object) -> list[str]:
    found = [value] if isinstance(value, str) else value
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def notes(root: Path, packed: Packed, documents: Sequence[Document]) -> list[str]:
    """What whoever submits should know of the copy that their jobs run in."""
    found: list[str] = []
    if root.resolve() == Path.home().resolve():
        found.append("this is your home directory; submit from the directory of your code. Hidden files are left out")
    if packed.links_out:
        found.append(f"links that lead out of {root} are not in the snapshot: {_few(packed.links_out)}")
    for pattern in dict.fromkeys(pattern for document in documents for pattern in _texts(document.get("include"))):
        if not any(matches(name, [pattern]) for name in packed.names):
            found.append(f"--include {pattern} (include: in a job file) takes nothing: no file here matches it")
    named = dict.fromkeys(note for document in documents for note in notes_on(root, packed, document))
    return [*found, *list(named)[:LEFT_OUT_SHOWN]]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - LEFT_OUT_SHOWN} more" if len(names) > LEFT_OUT_SHOWN else ""
    return ", ".join(names[:LEFT_OUT_SHOWN]) + more


def described(packed: Packed) -> str:
    """How much was taken, and what of this directory was not."""
    size = f"{plural(packed.files, 'file')}, {format_size(packed.content)}"
    left = f"; left out: {_few(tuple(packed.left_out))}" if packed.left_out else ""
    return f"snapshot {packed.short}: {size}{left}"
