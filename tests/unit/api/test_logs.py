"""How large a log is, found by asking for bytes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from swell.api import logs
from swell.api.port import Engine
from swell.core.ids import RunId


def test_the_size_of_a_log_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    async def chunk(engine: Engine, run: RunId, rank: int, offset: int, limit: int) -> SimpleNamespace:
        return SimpleNamespace(data=b"x" if offset < size else b"")

    monkeypatch.setattr(logs, "_chunk", chunk)
    monkeypatch.setattr(logs, "CHUNK", 8)
    for size in range(70):
        assert asyncio.run(logs._size(cast(Engine, None), RunId(1, 1), 0)) == size
