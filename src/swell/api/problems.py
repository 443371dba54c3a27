"""Errors as problem+json (RFC 9457): what happened, which field, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from swell.core import errors
from swell.core.oidc import NotLetIn
from swell.jobfile.problems import JobFileError, Problem
from swell.jobfile.unpacking import SnapshotTooLarge

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
MEDIA_TYPE = "application/problem+json"
_STATUS: Sequence[tuple[type[Exception], int, str]] = (
    (errors.NotFound, 404, "Not found"),
    (errors.Conflict, 409, "Not possible now"),
    (errors.InvalidTransition, 409, "Not possible now"),
    (errors.Infeasible, 422, "Can never run here"),
    (errors.Insufficient, 503, "Not possible now"),
    (errors.StoreError, 507, "Cannot be stored"),
    (NotLetIn, 403, "Not let in"),
    (SnapshotTooLarge, 413, "Too large"),
    (errors.SwellError, 400, "Refused"),
)


class ApiError(Exception):
    """A refusal by the API itself."""

    def __init__(self, status: int, title: str, detail: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.problems = status, title, detail, tuple(problems)


def body(status: int, title: str, detail: str, problems: Sequence[Problem] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if problems:
        found["problems"] = [{"path": p.path, "what": p.what, "fix": p.fix} for p in problems]
    return found


def response(
    status: int,
    title: str,
    detail: str,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    content = msgspec.json.encode(body(status, title, detail, problems))
    return Response(content, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def from_error(error: Exception) -> Response:
    """Errors that Swell raises on purpose keep their own text; anything else is a bug and is reported as one."""
    if isinstance(error, ApiError):
        return response(error.status, error.title, error.detail, error.problems)
    if isinstance(error, JobFileError):
        status, title = (400, "Cannot be read") if error.syntax else (422, "Not a valid job")
        return response(status, title, str(error), error.problems)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        detail = "there is no space left where the daemon keeps its things; free some and send it again"
        return response(507, "Disk full", detail)
    for kind, status, title in _STATUS:
        if isinstance(error, kind):
            answer = response(status, title, str(error))
            if isinstance(error, errors.Busy):
                answer.headers["Retry-After"] = str(error.retry_after_s)
            return answer
    detail = f"an error inside the daemon ({type(error).__name__}); its log has the details. Please report it."
    return response(500, "Error in Swell", detail)
