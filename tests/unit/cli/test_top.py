"""What `top` shows of many jobs in a small window."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from swell.cli.top import _look, _picture
from unit.cli.test_ls import job


class Client:
    def jobs(self, *, state: str, **_: object) -> tuple[list[dict[str, Any]], None]:
        waiting = [job(n, "queued", "n" * 60) for n in range(120, 100, -1)]
        made = {"running": [job(100001, "running")], "queued": waiting}
        return made.get(state, [job(7, "completed", ended_s=1.0)]), None

    def get(self, path: str) -> dict[str, Any]:
        return {"nodes": []} if path.endswith("nodes") else {"policy": "swell", "jobs": {}}


def test_running_comes_first_ids_are_whole_and_the_rest_is_counted() -> None:
    console = Console(width=80, height=12, record=True, force_terminal=False)
    console.print(_picture(_look(Client()), 12))  # type: ignore[arg-type]
    lines = console.export_text().splitlines()
    ids = [line.split()[0] for line in lines[2:-1]]
    assert ids == ["100001", *map(str, range(101, 107))]
    assert lines[-1] == "+15 more"
