"""Frames of the agent's protocol, free of whatever carries them: a JSON object and bytes, each with its length first.

Both sides send when they like. The daemon: {"id", "call", "epoch", …} and, for the relay, {"stream", …}. The agent:
{"id", "ok"} or {"id", "error", "errno", "kind"} for each call, {"heard": run} as a hint, and {"stream", …}.
"""

from __future__ import annotations

import json
import struct
from typing import IO

from swell.shim.files import Json

PROTOCOL = 1
HEAD = struct.Struct(">II")
MAX_JSON, MAX_BYTES = 64 * 1024 * 1024, 16 * 1024 * 1024
"""Whoever sends more is broken."""


class Broken(Exception):
    """What came is no frame."""


def frame(message: Json, data: bytes = b"") -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return HEAD.pack(len(text), len(data)) + text + data


def sizes(head: bytes) -> tuple[int, int]:
    of_text, of_data = HEAD.unpack(head)
    if of_text > MAX_JSON or of_data > MAX_BYTES:
        raise Broken(f"a frame of {of_text} and {of_data} bytes")
    return of_text, of_data


def decoded(text: bytes) -> Json:
    try:
        message = json.loads(text)
    except ValueError as error:
        raise Broken(str(error)) from error
    if not isinstance(message, dict):
        raise Broken("a frame without an object")
    return message


def read_frame(stream: IO[bytes]) -> tuple[Json, bytes] | None:
    """The next frame; None at the end."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    of_text, of_data = sizes(head)
    body = stream.read(of_text + of_data)
    return (decoded(body[:of_text]), body[of_text:]) if len(body) == of_text + of_data else None
