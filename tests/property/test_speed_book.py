"""Whatever epochs a job reports, its speed and its remaining time stay sensible."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from unit.policy.strategies import EXAMPLES, MARKS
from unit.speed.history import History

pytestmark = MARKS
_epochs = st.tuples(
    st.integers(0, 24),  # GPUs; 0 is a report that does not say
    st.integers(1, 3),
    st.sampled_from(["a", "b"]),
    st.lists(st.floats(0.0, 1e6, allow_nan=False), min_size=1, max_size=3),
    st.floats(-1e3, 1e6) | st.just(float("nan")),
)


@EXAMPLES
@given(runs=st.lists(_epochs, max_size=6), total=st.integers(0, 30))
def test_never_a_speed_that_falls_and_never_a_remaining_time_that_is_not_one(
    runs: list[tuple[int, int, str, list[float], float]], total: int
) -> None:
    told = History()
    told.submit(1, epochs=total)
    told.submit(2, epochs=total)
    nodes = {"a": 4, "b": 8}
    for gpus, on, gpu_type, times_s, loss in runs:
        told.run(1, gpus, times_s, nodes=on, gpu_type=gpu_type, metrics={"loss": loss})
    for job in (1, 2):
        record = told.state.jobs[job]
        speed = told.book.speed(record, nodes)
        assert speed is told.book.speed(record, nodes)
        for gpu_type in nodes:
            curve = speed.curve(gpu_type)
            assert len(curve) == 17
            assert curve[0] == 0.0
            assert list(curve) == sorted(curve)
            assert 0.0 < curve[1] <= curve[-1] < math.inf
            assert all(speed.rate(k, m, gpu_type) > 0.0 for k in (1, 3, 16) for m in (1, 2))
        remaining = told.book.remaining(record)
        assert 0.0 <= remaining.at_speed_1_s < math.inf
        assert 0.0 <= remaining.sigma <= 1.5
        assert told.book.describe(record, nodes).curves


@EXAMPLES
@given(
    a=st.floats(0.2, 1.0),
    b=st.floats(0.0, 0.3),
    c=st.floats(0.0, 0.05),
    sizes=st.sets(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=2, max_size=5),
)
def test_what_was_measured_is_what_is_said(a: float, b: float, c: float, sizes: set[int]) -> None:
    told = History()
    told.submit(1, epochs=1000)
    times = {k: 50.0 * (a / k + b + c * math.log2(k)) for k in sorted(sizes)}
    for gpus, time_s in times.items():
        told.run(1, gpus, [time_s] * 5, gpu_type="a")
    speed = told.book.speed(told.state.jobs[1], {"a": 8})
    epoch_1_s = told.remaining_s(1) / (1000 - 5 * len(times))
    for gpus, time_s in times.items():
        assert 0.9 * time_s <= epoch_1_s / speed.rate(gpus, 1, "a") <= 1.1 * time_s
        assert speed.curve("a")[gpus] >= speed.rate(gpus, 1, "a") * 0.999


_others = st.lists(st.tuples(st.floats(0.05, 20.0), st.floats(1.0, 1e4), st.integers(1, 8)), max_size=4)


@EXAMPLES
@given(ratio=st.floats(0.1, 10.0), gpus=st.integers(1, 8), others=_others)
def test_what_a_family_has_measured_of_types_is_never_overridden_by_others(
    ratio: float, gpus: int, others: list[tuple[float, float, int]]
) -> None:
    nodes = {"a": 8, "b": 8, "c": 8}

    def speeds_beside(families: list[tuple[float, float, int]]) -> dict[str, list[float]]:
        told = History()
        told.submit(1, epochs=50, family="own")
        told.submit(2, epochs=50, family="own")
        for gpu_type, time_s in (("a", 100.0 * ratio), ("b", 100.0)):
            told.run(1, gpus, [time_s] * 3, gpu_type=gpu_type)
        for job, (other, time_s, size) in enumerate(families, start=3):
            told.submit(job, epochs=50, family=f"other{job}")
            for gpu_type, factor in (("a", other), ("b", 1.0), ("c", other / 2)):
                told.run(job, size, [time_s * factor] * 3, gpu_type=gpu_type)
        asked = {job: told.book.speed(told.state.jobs[job], nodes) for job in (1, 2)}
        assert all(0.0 < speed.rate(gpus, 1, "c") < math.inf for speed in asked.values())
        return {t: [speed.rate(k, 1, t) for speed in asked.values() for k in (1, gpus, 8)] for t in ("a", "b")}

    assert speeds_beside(others) == speeds_beside([])
