import pytest

from swell.jobfile.units import format_duration, format_size, parse_duration_s, parse_size_mib


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("1d", 86400), ("500ms", 0.5), ("1.5h", 5400), (45, 45), ("45", 45)],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "3 parsecs", "-5", -5, True, None, "1h30", "nan", "inf", [1]])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|range"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [("6GiB", 6144), ("6G", 6144), ("1GB", 954), ("512", 512), (512, 512), ("1TiB", 1 << 20), ("5b", 1)],
)
def test_sizes(text: object, mib: int) -> None:
    assert parse_size_mib(text) == mib


@pytest.mark.parametrize("text", ["", "lots", "-1", -1, True, None, "1e400", "6 GiB of RAM"])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match=r"size|range"):
        parse_size_mib(text)


def test_no_time_at_all_is_a_duration() -> None:
    assert parse_duration_s(0) == parse_duration_s("0s") == 0.0


def test_from_two_days_on_durations_are_in_days() -> None:
    assert [format_duration(s) for s in (48 * 3600 - 1, 48 * 3600)] == ["47h59m", "2d0h"]


def test_durations_are_short_in_tables() -> None:
    assert [format_duration(s) for s in (0.2, 59, 65, 750, 7380, 200_000)] == [
        "0s",
        "59s",
        "1m05s",
        "12m",
        "2h03m",
        "2d7h",
    ]


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (50, "50 B"), (999, "999 B"), (3482, "3.4 KiB"), (120 << 20, "120 MiB"), (5000 << 30, "5000 GiB")],
)
def test_sizes_are_told_with_as_many_digits_as_anybody_reads(count: float, words: str) -> None:
    assert format_size(count) == words
