"""What a team has used of its budget."""

from __future__ import annotations

from swell.api.usage import _month
from swell.core.snapshot import Options


def test_the_month_of_a_team_is_in_gpu_hours_beside_its_budget() -> None:
    options, used_s = Options(budgets={"vision": 100.0}), {"vision": 7200.0, "speech": 1800.0}
    assert _month(options, "vision", used_s) == {"gpu_hours": 2.0, "budget": 100.0}
    assert _month(options, "speech", used_s) == {"gpu_hours": 0.5, "budget": None}
