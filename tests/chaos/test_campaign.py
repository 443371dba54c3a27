"""Daemons and shims are killed, helpers stopped, trainings paused, the database taken away; see `campaign`.

The everyday version takes about a minute. `make chaos` (SWELL_CHAOS=full) makes 1,000 kills of the daemon and 500 of
shims over 5,000 jobs, and 50 outages of PostgreSQL; SWELL_CHAOS_PERCENT makes it shorter, with as many outages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from chaos.campaign import MUST_BE_ZERO, Campaign
from contract import postgres_server

FULL = os.environ.get("SWELL_CHAOS") == "full"
PERCENT = int(os.environ.get("SWELL_CHAOS_PERCENT", "100"))
JOBS, DAEMON_KILLS, SHIM_KILLS, OUTAGES = (50 * PERCENT, 10 * PERCENT, 5 * PERCENT, 50) if FULL else (28, 6, 6, 2)


def judge(campaign: Campaign) -> None:
    found = campaign.run()
    print(found)
    assert {name: found[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0), found
    assert found["daemon_kills"] == campaign.daemon_kills
    assert found["shim_kills"] == campaign.shim_kills


@pytest.mark.chaos
def test_nothing_is_lost_doubled_overlapping_orphaned_or_repeated(tmp_path: Path) -> None:
    judge(
        Campaign(
            directory=tmp_path, jobs=JOBS, daemon_kills=DAEMON_KILLS, shim_kills=SHIM_KILLS, limit_s=120 + 30 * JOBS
        )
    )


@contextmanager
def served_from(place: Path, bin_dir: Path) -> Iterator[postgres_server.Server]:
    """Not below tmp_path: PostgreSQL runs as another user, who may not enter that."""
    place.chmod(0o755)
    with postgres_server.running_server(place / "server", bin_dir) as server:
        yield server


@pytest.mark.chaos
@pytest.mark.slow
def test_nothing_is_lost_either_when_the_database_goes_away_as_well(tmp_path: Path) -> None:
    bin_dir = postgres_server.binaries()
    if bin_dir is None:
        pytest.skip("needs the binaries of PostgreSQL (initdb, postgres)")
    with TemporaryDirectory() as place, served_from(Path(place), bin_dir) as server:
        judge(
            Campaign(
                directory=tmp_path,
                jobs=JOBS,
                daemon_kills=DAEMON_KILLS,
                shim_kills=SHIM_KILLS,
                server=server,
                outages=OUTAGES,
                limit_s=120 + 30 * JOBS,
            )
        )
