"""What would be removed is shown first; by age and by size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cli.test_backup import swell


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    swell(home, "up", "--gpus", "1")
    yield home
    swell(home, "down")


def test_what_would_go_is_shown_and_nothing_is_removed(home: Path) -> None:
    big = "dd if=/dev/zero of=$SWELL_CHECKPOINT_DIR/weights bs=1M count=3 2>/dev/null; echo done"
    swell(home, "run", "--", "echo", "small")
    swell(home, "run", "--", "sh", "-c", f"mkdir -p $SWELL_CHECKPOINT_DIR; {big}")
    every = swell(home, "rm", "--ended", "--dry-run")
    assert "would remove 1 (" in every
    assert "MiB of checkpoints" in every
    assert "would remove 2 jobs" in every
    assert "nothing was removed" in every
    assert "would remove 0 jobs" in swell(home, "rm", "--ended", "--older-than", "1d", "--dry-run")
    large = json.loads(swell(home, "rm", "--ended", "--larger-than", "2MiB", "--dry-run", "--json"))
    assert [one["job"] for one in large["would_remove"]] == [2]
    assert len(json.loads(swell(home, "ls", "--all", "--json"))) == 2
    assert "is not a duration" in swell(home, "rm", "--ended", "--older-than", "soon", code=2)
    swell(home, "rm", "--ended", "--larger-than", "2MiB", "--yes")
    assert [job["id"] for job in json.loads(swell(home, "ls", "--all", "--json"))] == [1]
    usage = next(check for check in json.loads(swell(home, "doctor", "--json")) if check["name"] == "usage")
    assert "database" in usage["found"]
    assert "logs" in usage["found"]
