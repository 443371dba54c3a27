"""How large a request's body may be, and how long it may take to come. Uploads of files have a limit of their own."""

from __future__ import annotations

import asyncio
import re
import time

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from swell.api import problems
from swell.api.problems import ApiError

MAX_BODY = 1 << 20
BODY_S = 30.0
"""A body must be there after so long, or come faster than SLOWEST all the while."""
SLOWEST = 16 * 1024
"""Bytes per second."""
_UPLOAD_PATH = re.compile(r"/v1/files/[^/]+")


def _too_large() -> ApiError:
    detail = (
        f"a request may have {MAX_BODY:,} bytes (1 MiB); put data into the files of the job, or submit fewer at once"
    )
    return ApiError(413, "Too large", detail)


def _too_slow() -> ApiError:
    detail = f"the body did not come within {BODY_S:.0f} s, nor at {SLOWEST // 1024} KiB a second; send it again"
    return ApiError(408, "Too slow", detail)


def too_large(scope: Scope, headers: Headers) -> Response | None:
    length = headers.get("content-length", "0")
    if _UPLOAD_PATH.fullmatch(scope["path"]) or (length.isdecimal() and len(length) < 12 and int(length) <= MAX_BODY):
        return None
    return problems.from_error(_too_large())


def bounded(scope: Scope, receive: Receive) -> Receive:
    """`receive`, which refuses what is too large or too slow until the body is there; later it waits for the end of
    the connection, as long as that takes."""
    limit = None if _UPLOAD_PATH.fullmatch(scope["path"]) else MAX_BODY
    began_s, size, over = time.monotonic(), 0, False

    async def bounded_receive() -> Message:
        nonlocal size, over
        if over:
            return await receive()
        try:
            async with asyncio.timeout(began_s + BODY_S + size / SLOWEST - time.monotonic()):
                message = await receive()
        except TimeoutError:
            raise _too_slow() from None
        size += len(message.get("body", b""))
        over = not message.get("more_body", False)
        if limit is not None and size > limit:
            raise _too_large()
        return message

    return bounded_receive
