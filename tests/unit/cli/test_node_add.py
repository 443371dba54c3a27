"""`swell node add` shows the daemon's checks, and says so when the daemon breaks off in the middle of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from swell.cli.node_add import add_machine
from swell.client.http import Message
from swell.core.errors import SwellError

CHECK = Message(event="check", data={"name": "ssh", "verdict": "ok", "words": "logged in", "fix": ""})


class Told:
    def __init__(self, *messages: Message) -> None:
        self._messages = messages

    def post_stream(self, path: str, body: Mapping[str, Any]) -> Any:
        return iter(self._messages)


def test_a_stream_that_breaks_off_is_an_error_that_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SwellError, match="swell node ls"):
        add_machine(Told(CHECK), {})  # type: ignore[arg-type]
    assert "logged in" in capsys.readouterr().out


def test_a_stream_with_its_end_says_whether_it_was_added() -> None:
    end = Message(event="end", data={"added": True, "why": ""})
    assert add_machine(Told(CHECK, end), {})  # type: ignore[arg-type]
