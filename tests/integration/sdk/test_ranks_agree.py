"""Ranks never disagree: real processes in lockstep, stops at random instants, delayed, reordered and lost requests."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import Faults, fake_daemon
from integration.sdk.stable import Stable
from swell.sdk import ship

HERE = Path(__file__).parent
STOPPED = 85


def one_run(stable: Stable, sdk: Path, out: Path, seed: int) -> tuple[list[int | None], set[str], float]:
    """Exit codes, last steps, and seconds from the command to the end of a run with everything drawn from `seed`."""
    rng = random.Random(seed)
    world = rng.choice([2, 3, 3])
    faults = Faults(delay_s=rng.choice([0.0, 0.01, 0.05]), drop=rng.choice([0.0, 0.05, 0.2]), seed=seed)
    out.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "SWELL_RUN": "1.1",
        "SWELL_WORLD_SIZE": str(world),
        "SWELL_CHECKPOINT_DIR": str(out / "checkpoints"),
        "STEP_S": str(rng.choice([0.003, 0.01])),
        "STEPS": str(rng.choice([1, 5])),
        "STEP_STOPS": str(rng.choice([0, 1])),
        "OUT": str(out),
        "MEETING": str(out / "meeting"),
    }
    with fake_daemon(faults) as daemon:
        pids = [
            stable.start(
                [str(HERE / "lockstep.py")],
                {**env, "SWELL_URL": daemon.url, "SWELL_RANK": str(rank)},
                out,
                out / f"log-{rank}",
            )
            for rank in range(world)
        ]
        time.sleep(rng.uniform(0.05, 0.5))
        daemon.ask()
        asked_s = time.monotonic()
        codes = [stable.wait(pid, 30) for pid in pids]
        took_s = time.monotonic() - asked_s
        for rank, pid in enumerate(pids):
            if codes[rank] is None:
                stable.ask_where(pid)
                time.sleep(0.5)
                print(f"seed {seed} rank {rank} hangs: {daemon.agreement}", (out / f"log-{rank}").read_text(), sep="\n")
    return codes, {(out / str(rank)).read_text() for rank in range(world) if codes[rank] is not None}, took_s


def check(runs: int, tmp_path: Path, first_seed: int) -> list[float]:
    sdk = ship.ship(tmp_path / "sdk")
    with (
        Stable(sys.executable, ["swell.sdk.session", "multiprocessing.connection", "http.client"], [sdk]) as stable,
        ThreadPoolExecutor(8) as pool,
    ):
        seeds = range(first_seed, first_seed + runs)
        results = list(pool.map(lambda seed: one_run(stable, sdk, tmp_path / str(seed), seed), seeds))
    ends = Counter("together" if set(codes) == {STOPPED} else repr(codes) for codes, _, _ in results)
    assert ends == {"together": runs}
    assert all(len(last) == 1 for _, last, _ in results), "all ranks did exactly the same steps"
    return sorted(took_s for _, _, took_s in results)


def test_ranks_never_disagree(tmp_path: Path) -> None:
    check(24, tmp_path, first_seed=0)


@pytest.mark.slow
def test_ranks_never_disagree_in_200_runs(tmp_path: Path) -> None:
    took_s = check(200, tmp_path, first_seed=1000)
    print(f"from the command to the end: median {took_s[100]:.2f} s, 95 % {took_s[190]:.2f} s, most {took_s[-1]:.2f} s")
