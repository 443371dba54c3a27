"""Events and records as bytes: MessagePack, by field name, written by msgspec.

MessagePack and not JSON, because a loss that is NaN or infinite must come back as it was. Every field is written, also
those at their default: a default that a later version changes must not change what happened. Fields that this version
does not know are skipped, fields that an earlier version did not write take their default.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from swell.core.errors import StoreDamaged, StoreError
from swell.core.events import EVENT_TYPES, Event
from swell.core.ids import JobId
from swell.core.state import JobRecord, Run, State
from swell.store.reported import Reported
from swell.store.secrets import concealed

T = TypeVar("T")

CHUNK_JOBS = 250
"""Records in one part of a checkpoint: a few milliseconds of work between two chances for other threads."""

_encoder = msgspec.msgpack.Encoder()
_decode_event: Mapping[str, Callable[[bytes], Event]] = {
    name: msgspec.msgpack.Decoder(kind).decode for name, kind in EVENT_TYPES.items()
}
_decode_record = msgspec.msgpack.Decoder(JobRecord).decode
_decode_run = msgspec.msgpack.Decoder(Run).decode
_decode_reported = msgspec.msgpack.Decoder(Reported).decode


def encode(value: Event | JobRecord | Run | Reported) -> bytes:
    """Without values of secrets."""
    try:
        return _encoder.encode(concealed(value))
    except (TypeError, ValueError, OverflowError) as error:  # a lone surrogate in a name, a number beyond 64 bits
        raise StoreError(f"a {type(value).__name__} cannot be written down: {error}") from error


def decode(kind: str, body: bytes) -> Event:
    """The event of this kind. Raises `StoreDamaged`: what is in the log was written by `encode`, or is broken."""
    try:
        return _decode_event[kind](body)
    except KeyError:
        raise StoreDamaged(f"an event of the unknown kind {kind!r} is in the log; a later version wrote it") from None
    except (TypeError, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"a {kind} event in the log cannot be read: {error}") from error


def decode_record(body: bytes) -> JobRecord:
    return _read(_decode_record, body)


def decode_run(body: bytes) -> Run:
    return _read(_decode_run, body)


def decode_reported(body: bytes) -> Reported:
    return _read(_decode_reported, body)


def _read(decoder: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decoder(body)
    except (TypeError, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"a record in the tables for reading cannot be read ({error}). The log has it: `swell down`, "
            "`swell doctor --rebuild`, `swell up`."
        ) from error


class _Head(msgspec.Struct, frozen=True):
    """The first part of a checkpoint: how many follow, and all of the state but its jobs."""

    parts: int
    crc: int
    state: State
    chain: bytes  # the link of the last event in it


_decode_head = msgspec.msgpack.Decoder(_Head).decode
_decode_jobs = msgspec.msgpack.Decoder(dict[JobId, JobRecord]).decode


def encode_state(state: State, chain: bytes) -> list[bytes]:
    """A checkpoint, in compressed parts, without values of secrets. Compression lets other threads run, which the
    encoding alone does not."""
    parts = [zlib.compress(_encoder.encode(chunk), 1) for chunk in _chunks(state.jobs)]
    head = _Head(parts=len(parts), crc=_crc(parts), state=_without_jobs(state), chain=chain)
    return [zlib.compress(_encoder.encode(head), 1), *parts]


def decode_state(parts: list[bytes]) -> tuple[State, bytes]:
    """State and link of `encode_state`. Raises `StoreDamaged` if a part is missing or was changed."""
    try:
        head = _decode_head(zlib.decompress(parts[0]))
        if head.parts != len(parts) - 1 or head.crc != _crc(parts[1:]):
            raise StoreDamaged(f"the checkpoint at event {head.state.seq} is not whole")
        for part in parts[1:]:
            head.state.jobs.update(_decode_jobs(zlib.decompress(part)))
    except (IndexError, TypeError, zlib.error, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"a checkpoint cannot be read: {error}") from error
    return head.state, head.chain


def _chunks(jobs: Mapping[JobId, JobRecord]) -> Iterator[dict[JobId, JobRecord]]:
    items = iter(jobs.items())
    while chunk := {job: concealed(record) for job, record in islice(items, CHUNK_JOBS)}:
        yield chunk


def _without_jobs(state: State) -> State:
    return State(**{name: getattr(state, name) for name in State.__slots__ if name not in ("jobs", "recent")})


def _crc(parts: list[bytes]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
