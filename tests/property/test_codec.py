"""What is written down comes back as it was: every kind of event, every record, the whole state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strategies import events_by_name, histories, job_records, runs
from swell.core import events as ev
from swell.core.errors import StoreDamaged, StoreError
from swell.core.events import EVENT_TYPES
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.state import JobRecord, Run
from swell.store import codec
from swell.store.secrets import concealed

LINK = bytes(range(16))


def same(a: object, b: object) -> bool:
    """Equal, and of equal types throughout: a tuple is not a list, an enum not its text."""
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, Mapping):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", EVENT_TYPES)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    event = data.draw(events_by_name[name])
    assert same(concealed(event), codec.decode(name, codec.encode(event)))


@given(job_records)
def test_records_come_back_as_they_were(record: JobRecord) -> None:
    assert same(concealed(record), codec.decode_record(codec.encode(record)))


@given(runs)
def test_runs_come_back_as_they_were(run: Run) -> None:
    assert same(run, codec.decode_run(codec.encode(run)))


@given(histories())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_whole_state_comes_back_in_order(log: list[ev.Event]) -> None:
    state = replay(log)
    again, link = codec.decode_state(codec.encode_state(state, LINK))
    assert link == LINK
    state.jobs.update({job: concealed(record) for job, record in state.jobs.items()})
    assert again == state
    for name in ("jobs", "active", "ended", "keys", "nodes"):
        assert list(getattr(again, name)) == list(getattr(state, name))


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_no_number_comes_back(loss: float) -> None:
    event = ev.EpochEnded(run=RunId(1, 1), at_s=1.0, epoch=1, metrics={"loss": loss})
    again = codec.decode("EpochEnded", codec.encode(event))
    assert isinstance(again, ev.EpochEnded)
    assert repr(again.metrics["loss"]) == repr(loss)


def test_how_a_batch_was_split_comes_back_and_old_reports_have_none() -> None:
    batching = ev.Batching(initial=32, largest=512, local=16, sync_s=0.01, grad_sqr=1.0, grad_var=float("inf"))
    event = ev.EpochEnded(run=RunId(1, 1), at_s=1.0, epoch=1, batching=batching)
    assert codec.decode("EpochEnded", codec.encode(event)) == event
    old = codec.decode("EpochEnded", _changed(event, batching="left out"))
    assert isinstance(old, ev.EpochEnded)
    assert old.batching is None


def _changed(event: ev.Event, **changes: Any) -> bytes:
    body = msgspec.msgpack.decode(codec.encode(event))
    body.update(changes)
    return msgspec.msgpack.encode({key: value for key, value in body.items() if value != "left out"})


def test_fields_of_a_later_version_are_skipped_and_missing_ones_take_their_default() -> None:
    event = ev.JobSubmitted(job=1, spec=JobSpec(name="a", command=("b",)), at_s=1.0, batch="x")
    assert codec.decode("JobSubmitted", _changed(event, colour={"of": "later"})) == event
    assert codec.decode("JobSubmitted", _changed(event, key="left out")) == event


def test_what_cannot_be_read_is_damage_and_what_cannot_be_written_is_an_error() -> None:
    body = codec.encode(ev.JobPaused(job=1, at_s=1.0))
    for kind, broken in (("JobPaused", body[:-1]), ("JobPaused", b""), ("JobSubmitted", body), ("NoSuchKind", body)):
        with pytest.raises(StoreDamaged):
            codec.decode(kind, broken)
    with pytest.raises(StoreError, match="cannot be written down"):
        codec.encode(ev.JobPaused(job=1, at_s=1.0, by="\ud800"))
    with pytest.raises(StoreError, match="cannot be written down"):
        codec.encode(ev.JobPaused(job=2**70, at_s=1.0))


@given(histories(max_events=10), st.integers(0, 10**6))
def test_a_checkpoint_with_one_byte_changed_is_never_believed(log: list[ev.Event], where: int) -> None:
    parts = codec.encode_state(replay(log), LINK)
    for number, part in enumerate(parts):
        at = where % len(part)
        broken = part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]
        with pytest.raises(StoreDamaged):
            codec.decode_state([*parts[:number], broken, *parts[number + 1 :]])
        with pytest.raises(StoreDamaged):
            codec.decode_state([*parts[:number], *parts[number + 1 :]])
