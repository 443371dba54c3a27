"""What a submission may bring along, and what the API's own description says of it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from fastapi import Request

from swell.api.app import create_app
from swell.api.deps import CALLER
from swell.api.problems import ApiError
from swell.api.submit import MAX_KEY, _key
from swell.config import Config
from swell.core.accounts import Caller, Role, Way


def asked(key: str, way: Way = Way.TOKEN) -> Request:
    headers = [(b"idempotency-key", key.encode("latin-1"))] if key else []
    who = Caller(user="ana", role=Role.SUBMITTER, way=way)
    return Request({"type": "http", "headers": headers, CALLER: who})


def test_a_key_is_its_users_own_and_no_key_is_none() -> None:
    assert _key(asked("k" * MAX_KEY)) == "ana/" + "k" * MAX_KEY
    assert _key(asked("k", Way.OWNER)) == "k"
    assert [_key(asked("", way)) for way in (Way.TOKEN, Way.OWNER)] == ["", ""]


@pytest.mark.parametrize("key", ["k" * (MAX_KEY + 1), "a\tb", "\x80"])
def test_a_key_that_is_too_long_or_cannot_be_shown_is_refused(key: str) -> None:
    with pytest.raises(ApiError, match="Idempotency-Key must be printable"):
        _key(asked(key))


def test_the_description_says_that_a_submission_needs_a_body() -> None:
    submit = create_app(Mock(), "t" * 40, Config()).openapi()["paths"]["/v1/jobs"]["post"]
    assert submit["requestBody"]["required"] is True
    assert set(submit["requestBody"]["content"]) == {"application/json", "application/yaml"}
