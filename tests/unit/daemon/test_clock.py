"""The daemon's clock passes as the kernel counts, whatever is done to the machine's."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from swell.daemon.clock import SLEW, SystemClock

HOUR_S = 3600.0


@dataclass
class Machine:
    wall: float = 1_000_000.0
    passed: float = 500.0
    boot: str = "first"

    def clock(self, path: Path | None = None) -> SystemClock:
        return SystemClock(path, wall_s=lambda: self.wall, passed_s=lambda: self.passed, boot=lambda: self.boot)

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


def test_it_begins_with_the_machine_s_clock_and_goes_on_with_it() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now_s() == 1_000_000.0
    machine.pass_s(7.5)
    assert clock.now_s() == 1_000_007.5
    assert clock.monotonic_s() == 507.5
    assert clock.off_s == 0.0


@pytest.mark.parametrize("jump_s", [2 * HOUR_S, -3 * HOUR_S])
def test_a_machine_s_clock_that_is_set_changes_no_duration_beyond_the_slew(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += jump_s
    clock.note()
    before_s = clock.now_s()
    assert before_s == 1_000_000.0
    machine.pass_s(120.0)
    clock.note()
    took_s = clock.now_s() - before_s
    assert took_s == pytest.approx(120.0, rel=SLEW)
    assert (took_s > 120.0) is (jump_s > 0), "towards the machine's clock"


def test_it_comes_together_with_the_machine_s_clock_and_stays_there() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += 10.0
    for _ in range(100):
        machine.pass_s(30.0)
        clock.note()
        assert clock.off_s > -1e-6, "never beyond it"
    assert clock.off_s == pytest.approx(0.0, abs=1e-6)


def test_it_never_goes_back() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall -= 10 * HOUR_S
    last_s = clock.now_s()
    for _ in range(50):
        machine.pass_s(0.1)
        clock.note()
        assert clock.now_s() > last_s
        last_s = clock.now_s()


@pytest.mark.parametrize("jump_s", [0.0, 2 * HOUR_S, -3 * HOUR_S])
def test_a_daemon_that_starts_again_goes_on_where_the_last_one_was(tmp_path: Path, jump_s: float) -> None:
    machine = Machine()
    machine.clock(tmp_path / "clock.json")
    machine.wall += jump_s
    machine.pass_s(600.0)
    assert machine.clock(tmp_path / "clock.json").now_s() == pytest.approx(1_000_600.0, abs=600 * SLEW)


def test_after_a_boot_it_goes_on_from_the_later_of_both(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    machine = Machine()
    machine.clock(path)
    assert Machine(wall=1_000_900.0, passed=3.0, boot="second").clock(path).now_s() == 1_000_900.0
    assert Machine(wall=900_000.0, passed=3.0, boot="third").clock(path).now_s() == pytest.approx(1_000_900.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "first"}', json.dumps({"boot": "first", "boot_s": "x"})])
def test_an_anchor_that_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "clock.json").write_text(text)
    assert Machine().clock(tmp_path / "clock.json").now_s() == 1_000_000.0


def test_a_home_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    clock = Machine().clock(tmp_path / "none" / "clock.json")
    assert clock.now_s() == 1_000_000.0


def test_a_clock_that_was_set_is_noticed_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += HOUR_S
    with caplog.at_level(logging.WARNING):
        clock.note()
        clock.note()
    assert len(caplog.records) == 1
