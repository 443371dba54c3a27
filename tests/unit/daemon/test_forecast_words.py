"""When a job starts and ends, in words: no number where it would be nought."""

import pytest

from swell.daemon.forecasts import _between, samples_of


@pytest.mark.parametrize(
    ("low_s", "high_s", "words"),
    [
        (-5.0, 0.4, "any moment"),
        (0.0, 7.0, "within 7 s"),
        (300.0, 600.0, "in 5 min to 10 min"),
        (599.9, 600.1, "in about 10 min"),
    ],
)
def test_a_time_that_is_almost_there_has_no_number(low_s: float, high_s: float, words: str) -> None:
    assert _between(low_s, high_s) == words


def test_more_jobs_are_forecast_with_fewer_samples_but_never_without() -> None:
    assert [samples_of(jobs) for jobs in (1, 200, 400, 800, 5000)] == [4, 4, 2, 1, 1]
