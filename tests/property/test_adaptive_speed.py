"""Whatever jobs with adaptive batch sizes report, their curves are curves."""

from __future__ import annotations

from math import isfinite

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import batchings
from swell.core.events import Batching
from swell.core.job import GpuRequest
from unit.speed.history import History

sensible = st.builds(
    Batching,
    initial=st.integers(1, 4096),
    largest=st.integers(1, 65536),
    local=st.integers(1, 1024),
    accumulate=st.integers(0, 4),
    local_max=st.integers(0, 1024),
    sync_s=st.floats(0, 2),
    grad_sqr=st.floats(0, 1e3),
    grad_var=st.floats(0, 1e9),
)
reports = st.tuples(
    sensible | batchings,
    st.integers(1, 32),  # GPUs
    st.floats(0.001, 10),  # step
    st.floats(0, 1e6) | st.floats(),  # goodput
    st.floats(1, 1e5),  # epoch
)


@settings(max_examples=200)
@given(st.lists(reports, min_size=1, max_size=8))
def test_never_decreasing_never_without_an_answer(said: list[tuple[Batching, int, float, float, float]]) -> None:
    history = History()
    record = history.submit(1, epochs=10, adaptive_batch=True, gpus=GpuRequest(min=1, max=32))
    for batching, gpus, step_s, goodput, epoch_s in said:
        nodes = -(-gpus // 8)
        history.run(1, gpus, [epoch_s], nodes, step_s=step_s, samples_per_s=1.0, goodput=goodput, batching=batching)
        curve = history.curve(1)
        record = history.state.jobs[1]
        assert list(curve) == sorted(curve)
        assert all(map(isfinite, curve))
        assert curve[1] > 0
        assert 0 <= history.remaining_s(1) < float("inf")
        assert history.book.speed(record, {"gpu": 8}).rate(gpus, nodes, "gpu") > 0
        history.book.describe(record, {"gpu": 8})
