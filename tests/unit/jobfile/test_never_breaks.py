"""Whatever is sent: job specs, or a JobFileError. Never anything else."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from swell.core.job import JobSpec
from swell.jobfile.expand import expand
from swell.jobfile.problems import JobFileError, Problem
from swell.jobfile.read import read_documents
from swell.jobfile.schema import JobModel

Found = TypeVar("Found")

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.datetimes()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
gpu_texts = st.sampled_from(["1-4", "4", "0", "4-1", "pow2", {"min": 1, "max": 4}, {"sizes": [1, 2]}, {"min": 2}])
fields = st.sampled_from(sorted(JobModel.model_fields))


def outcome(read: Callable[[], list[Found]]) -> tuple[list[Found], Sequence[Problem]]:
    try:
        return read(), ()
    except JobFileError as error:
        return [], error.problems


@given(st.dictionaries(fields, values, max_size=5), values | gpu_texts)
@settings(max_examples=300, deadline=None)
def test_never_anything_but_specs_or_problems(document: dict[str, Any], gpus: object) -> None:
    specs, problems = outcome(lambda: expand({"command": "x", "gpus": gpus, **document}))
    assert bool(specs) != bool(problems)
    assert all(problem.what for problem in problems)
    for spec in specs:
        assert isinstance(spec, JobSpec)
        json.dumps([spec.name, spec.command, dict(spec.env)]).encode()
        sizes = spec.gpus.sizes()
        assert sizes == tuple(sorted(sizes))
        assert spec.gpus.min == sizes[0] <= spec.gpus.requested <= sizes[-1] == spec.gpus.max


@given(st.text(max_size=200) | st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_never_anything_but_documents_or_problems(text: str | bytes) -> None:
    documents, problems = outcome(lambda: read_documents(text))
    assert bool(documents) != bool(problems)
    assert all(isinstance(document, dict) for document in documents)
