"""Small pictures of numbers."""

import pytest

from swell.cli.pictures import bar, sparkline
from swell.cli.show_speed import loss_line, speed_lines


def test_a_course_fits_its_width_and_ends_with_the_newest() -> None:
    assert sparkline([1.0, 2.0, 3.0], 10) == "▁▅█"
    assert sparkline([float(n) for n in range(100)], 4) == "▁▃▆█"
    assert sparkline([2.0, 2.0], 10) == "▁▁"
    assert sparkline([float("nan")], 10) == ""


def test_bars_grow_by_eighths() -> None:
    assert bar(0.5, 4) == "██"
    assert bar(0.53, 4) == "██▏"
    assert bar(7.0, 2) == "██"
    assert bar(0.0, 2) == ""


def test_measured_sizes_are_told_from_expected_ones() -> None:
    curve = [(n, n**0.9) for n in range(1, 65)]
    point = {"gpus": 3, "gpu_type": "a", "epochs": 2, "epoch_s": 60.0}
    speed = {"curves": {"a": curve}, "points": [point], "source": "measured", "reference_type": "a"}
    lines = speed_lines(speed, held=5)
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3", "4", "5", "8", "16", "32", "64"]
    assert lines[3].endswith("measured, 2 epochs of 1m00s")
    assert lines[5].endswith("expected, has now")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("count", "each_s", "unit", "said"),
    [
        (1, 8.0, "epoch", "1 epoch of 8s"),
        (49, 0.2407, "step", "49 steps of 0.24s"),
        (3_200_000, 2.4e-5, "token", "3.2M tokens, 41.7k per s"),
    ],
)
def test_speed_is_told_in_what_the_job_counts(count: int, each_s: float, unit: str, said: str) -> None:
    point = {"gpus": 1, "gpu_type": "a", "epochs": count, "epoch_s": each_s}
    speed = {"curves": {"a": [(1, 1.0), (2, 1.9)]}, "points": [point], "source": "measured", "reference_type": "a"}
    assert speed_lines(speed, 0, unit)[1].endswith(f"measured, {said}")


def test_no_picture_of_one_size_or_of_nothing() -> None:
    empty = {"curves": {}, "points": [], "source": "prior", "reference_type": ""}
    assert speed_lines(empty, 0) == []
    assert loss_line({"loss": [(0.0, 1.0)]}) == ""
    assert loss_line({"accuracy": [(0.0, 1.0), (1.0, 2.0)]}) == ""
    assert loss_line({"val_loss": [(0.0, 2.0), (1.0, 1.0)]}) == "█▁  val_loss 2 to 1, least 1"
