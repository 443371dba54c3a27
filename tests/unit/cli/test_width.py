"""Tables are as wide as the terminal is, whether or not a shell exports COLUMNS (most do not)."""

import os

import pytest

from swell.cli import common


@pytest.mark.parametrize(("exported", "real", "seen"), [(None, 80, 80), (None, 200, 200), ("100", 200, 100)])
def test_the_width_is_the_terminals(
    monkeypatch: pytest.MonkeyPatch, exported: str | None, real: int, seen: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if exported:
        monkeypatch.setenv("COLUMNS", exported)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((real, 24)))
    assert common.columns() == seen
