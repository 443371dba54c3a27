"""The global batch is divided in two places that may not import each other: for the environment of a job
(`executors.request`) and in the library that ships with it (`sdk.order`). They never differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swell.core.job import GpuRequest, JobSpec
from swell.executors.request import _constant_batch
from swell.sdk.order import split_batch


@given(batch=st.integers(1, 4096), gpus=st.integers(1, 64), most=st.integers(1, 64))
def test_the_environment_says_what_the_library_would_work_out(batch: int, gpus: int, most: int) -> None:
    spec = JobSpec(name="j", command=("x",), batch_size=batch, gpus=GpuRequest(min=1, max=max(gpus, most)))
    told = _constant_batch(spec, gpus)
    try:
        local, accumulation = split_batch(batch, gpus, at_most=-(-batch // spec.gpus.max))
    except ValueError:
        assert told == {}, "what the library refuses is not handed out"
        return
    assert told == {"SWELL_LOCAL_BATCH": str(local), "SWELL_ACCUMULATION": str(accumulation)}
    assert local * accumulation * gpus == batch
