"""When a job starts and ends, in words: no number where it would be nought, or where nobody knows."""

import asyncio
from contextlib import suppress

import pytest

from swell.api.eta import starts_s
from swell.core.events import JobSubmitted
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.snapshot import Options
from swell.core.state import JobRecord, State
from swell.daemon import forecasts
from swell.daemon.forecasts import Forecasts, _between, forecast_sentence, samples_of
from swell.daemon.helper import Helper
from swell.daemon.lookahead import Done
from swell.daemon.moments import Moment
from swell.sim.forecast import Forecast, Interval


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


def waiting() -> JobRecord:
    return JobRecord(id=2, spec=JobSpec(name="j", command=("x",), gpus=GpuRequest()), submitted_s=0.0)


def interval(start: tuple[float, float], end: tuple[float, float]) -> Interval:
    return Interval(
        start_low_s=start[0],
        start_mid_s=start[0],
        start_high_s=start[1],
        end_low_s=end[0],
        end_mid_s=end[0],
        end_high_s=end[1],
    )


def said(start: tuple[float, float], end: tuple[float, float], *, guessed: bool = True) -> str:
    return forecast_sentence(waiting(), interval(start, end), None, 0.0, guessed=guessed)


def test_what_could_be_any_time_is_never_a_number() -> None:
    """Behind a job of which nobody said how long it is, and which cannot be stopped: 1 min to 9 h is no answer."""
    start, end = (63.0, 33_000.0), (70.0, 160_000.0)
    assert said(start, end) == (
        "when it starts and ends is unknown (not every job specified, or showed, how long it takes)"
    )
    assert starts_s(waiting(), 0.0, interval(start, end)) is None


def test_of_start_and_end_one_may_be_known() -> None:
    assert said((60.0, 300.0), (100.0, 90_000.0), guessed=False) == "starts in 60 s to 5 min, when it ends is unknown"


def test_what_is_soon_is_told_however_uncertain_it_is_in_proportion() -> None:
    assert said((0.0, 40.0), (1.0, 500.0)) == (
        "starts within 40 s, ends in 1 s to 8 min (a guess: not every job specified, or showed, how long it takes)"
    )
    assert starts_s(waiting(), 0.0, interval((0.0, 40.0), (1.0, 500.0))) == [0.0, 40.0]


def test_times_are_counted_from_now() -> None:
    found = interval((1060.0, 1300.0), (1100.0, 1400.0))
    words = forecast_sentence(waiting(), found, None, 1000.0)
    assert words == said((60.0, 300.0), (100.0, 400.0), guessed=False)
    assert words.startswith("starts in 60 s to 5 min, ends in ")


def test_nothing_that_forecasts_started_outlives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Helper] = []

    async def stop(helper: Helper) -> None:
        stopped.append(helper)

    async def scene() -> None:
        one = Forecasts()
        await one.stop()
        ours = [value for value in vars(one).values() if isinstance(value, Helper)]
        assert len(ours) == 3
        assert all(any(helper is own for helper in stopped) for own in ours)

    monkeypatch.setattr(Helper, "stop", stop)
    asyncio.run(scene())


def test_a_forecast_is_never_left_to_grow_old_while_jobs_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens to a job that only runs on; when it may end is another answer all the same."""
    monkeypatch.setattr(forecasts, "AGAIN_S", 0.001)
    monkeypatch.setattr(forecasts, "EVERY_S", 0.0)

    async def times_asked(state: State) -> int:
        asked, enough = 0, asyncio.Event()

        def moment() -> None:
            nonlocal asked
            asked += 1
            if asked == 3:
                enough.set()

        one = Forecasts()
        one.happened([], state)
        running = asyncio.ensure_future(one.run(moment))
        with suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), 30.0 if state.active else 0.2)
        running.cancel()
        return asked

    busy = State(jobs={2: waiting()}, active={2: None})
    assert asyncio.run(times_asked(busy)) >= 3
    assert asyncio.run(times_asked(State())) == 1, "without jobs nothing is worked out"


def test_a_forecast_reaches_every_job_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are stored a few at a time, between which the daemon answers others."""
    jobs = range(1, 6)
    state = replay([JobSubmitted(job=job, spec=waiting().spec, at_s=0.0) for job in jobs])
    found = Forecast(intervals={job: interval((10.0, 20.0), (30.0, 40.0)) for job in jobs}, until_s=50.0)

    async def foreseen(now: Moment, task: object) -> Done:
        return Done(result=found, cpu_s=0.25)

    async def scene() -> None:
        one = Forecasts()
        one.happened([], state)
        monkeypatch.setattr(one._background, "do", foreseen)
        assert await one._once(Moment(state=state, answers={}, options=Options(), now_s=5.0)) == 0.25
        assert sorted(one.intervals) == list(jobs)
        assert one.until_s == 50.0

    for at_once in (2, 5, 100):
        monkeypatch.setattr(forecasts, "JOBS_AT_ONCE", at_once)
        asyncio.run(scene())
