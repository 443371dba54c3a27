"""Small pictures of numbers."""

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


def test_no_picture_of_one_size_or_of_nothing() -> None:
    empty = {"curves": {}, "points": [], "source": "prior", "reference_type": ""}
    assert speed_lines(empty, 0) == []
    assert loss_line({"loss": [(0.0, 1.0)]}) == ""
    assert loss_line({"accuracy": [(0.0, 1.0), (1.0, 2.0)]}) == ""
    assert loss_line({"val_loss": [(0.0, 2.0), (1.0, 1.0)]}) == "█▁  val_loss 2 to 1, least 1"
