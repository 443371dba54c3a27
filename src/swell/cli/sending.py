"""Sending jobs to the daemon: the files as they are now, what the shell knows, then the documents."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swell.cli.shell import complete
from swell.cli.terminal import say
from swell.client.http import Client
from swell.core.errors import SwellError
from swell.home import default_home
from swell.jobfile.files import Packed, pack

Document = dict[str, Any]
LEFT_OUT_SHOWN = 3


class MissingScript(SwellError):
    """The script named in a job is not there."""


def prepare(client: Client, documents: Sequence[Document], *, snapshot: bool, home: Path | None) -> Packed | None:
    """Complete the documents in place. Returns the snapshot that was taken, if one was needed."""
    for document in documents:
        complete(document, local=client.address.local, snapshot=snapshot)
        if not snapshot:
            _in_place(document)
    wanting = [document for document in documents if _wants_files(document)]
    if not wanting:
        return None
    packed = _send_snapshot(client, home)
    for document in wanting:
        document["files"] = packed.hash
    return packed


def send(client: Client, documents: Sequence[Document]) -> dict[str, Any]:
    """The key makes sending again harmless when the answer is lost on its way."""
    return client.submit(documents[0] if len(documents) == 1 else documents, key=secrets.token_hex(16))


def _in_place(document: Document) -> None:
    here = Path.cwd() / str(document.get("workdir", ""))
    document["workdir"] = str(here)
    script = document.get("script")
    if isinstance(script, str) and not (here / script).is_file():
        raise MissingScript(
            f"script: there is no file {script!r} in {here}; check its name and the directory you are in"
        )


def _wants_files(document: Document) -> bool:
    return "files" not in document and not str(document.get("workdir", "")).startswith("/")


def _send_snapshot(client: Client, home: Path | None) -> Packed:
    from swell.config import load_config

    config = load_config(home)
    root = Path.cwd()
    with tempfile.TemporaryFile() as archive:
        packed = pack(root, archive, max_mib=config.snapshot_max_mib, exclude=(config.home, default_home()))
        if not client.has_files(packed.hash):
            archive.seek(0)
            client.send_files(packed.hash, archive, packed.size)
    if packed.left_out:
        shown = ", ".join(packed.left_out[:LEFT_OUT_SHOWN])
        more = f" and {len(packed.left_out) - LEFT_OUT_SHOWN} more" if len(packed.left_out) > LEFT_OUT_SHOWN else ""
        say(f"note: links that lead out of {root} are not in the snapshot: {shown}{more}", err=True)
    return packed
