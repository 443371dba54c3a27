"""100 kills over 100 container jobs with SWELL_CHAOS=full; a short version every day."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.campaign import MUST_BE_ZERO
from containers.campaign import ContainerCampaign

pytestmark = pytest.mark.containers

FULL = os.environ.get("SWELL_CHAOS") == "full"
JOBS, KILLS_OF_EACH = (100, 25) if FULL else (16, 4)


@pytest.mark.timeout(1800)
def test_no_kill_loses_doubles_overlaps_or_orphans_a_container(tmp_path: Path) -> None:
    campaign = ContainerCampaign(
        directory=tmp_path,
        jobs=JOBS,
        daemon_kills=KILLS_OF_EACH,
        shim_kills=KILLS_OF_EACH,
        container_kills=KILLS_OF_EACH,
        runtime_kills=KILLS_OF_EACH,
        limit_s=1500.0,
    )
    found = campaign.run()
    print(found)
    assert {name: found[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0), found
    kinds = ("daemon_kills", "shim_kills", "container_kills", "runtime_kills")
    assert [found[kind] for kind in kinds] == [KILLS_OF_EACH] * 4
