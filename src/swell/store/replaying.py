"""Reads the state back from checkpoint and log, and makes sure that no row between them was changed or is missing."""

from __future__ import annotations

import gc
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from swell.core.errors import InvalidTransition, StoreDamaged
from swell.core.lifecycle import replay
from swell.core.state import State
from swell.store import chain, codec, secrets

log = logging.getLogger(__name__)

Read = Callable[[str, Sequence[Any]], list[Any]]

PAGE = 20_000
"""Events read from the database at a time."""
ROWS = "SELECT seq, at_s, kind, job, body, chain FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
RESTORE = (
    "Nothing was changed. Restore it from a copy, or move it away to start anew; `swell doctor` lists all that is "
    "wrong with it."
)


@dataclass(slots=True)
class Tip:
    """The end of the log: the state there, and the last link of the chain."""

    state: State
    chain: bytes = chain.START


def log_start(read: Read) -> tuple[int, bytes]:
    """Number and link of the event that the first one in the log follows: the last one that compaction removed."""
    found = read("SELECT seq, chain FROM log_start", ())
    return (int(found[0][0]), bytes(found[0][1])) if found else (0, chain.START)


def link_at(read: Read, seq: int) -> bytes | None:
    """Of the event of this number; None if it is not in the log."""
    found = read("SELECT chain FROM events WHERE seq = ?", (seq,))
    if found:
        return bytes(found[0][0])
    start, link = log_start(read)
    return link if seq == start else None


def tip_of(read: Read, where: str) -> Tip:
    """Latest good checkpoint plus the events after it. Raises StoreDamaged, with the number of the bad event."""
    tip = _latest_checkpoint(read, where)
    with no_garbage_collection():
        while page := read(ROWS, (tip.state.seq, PAGE)):
            replay_page(tip, page, where)
    secrets.reveal(tip.state, read("SELECT job, name, value FROM secrets", ()))
    return tip


def replay_page(tip: Tip, page: list[Any], where: str) -> None:
    tip.chain = verified(page, tip.state.seq, tip.chain, where)
    try:
        replay((codec.decode(kind, body) for _, _, kind, _, body, _ in page), tip.state)
    except (StoreDamaged, InvalidTransition) as error:
        raise StoreDamaged(f"{where}: event {tip.state.seq + 1}: {error}. {RESTORE}") from error


def verified(page: list[Any], seq: int, before: bytes, where: str) -> bytes:
    """The link of the page's last row, if every row follows the one before. Raises StoreDamaged at the first one that
    does not."""
    for row in page:
        if row[0] != seq + 1:
            raise StoreDamaged(f"{where} has a gap in its log: event {seq + 1} is missing. {RESTORE}")
        seq += 1
        before = linked(row, before)
        if before != row[5]:
            kind = f"a row of kind {str(row[2])[:40]!r} with a wrong checksum"
            raise StoreDamaged(f"{where}: event {seq}: it is not as it was written ({kind}). {RESTORE}")
    return before


def linked(row: Sequence[Any], before: bytes) -> bytes:
    """The link that this row must have, given the link of the row before."""
    try:
        return chain.link(before, *row[:5])
    except (TypeError, AttributeError, ValueError, struct.error):  # the value now has another type
        return b""


def _latest_checkpoint(read: Read, where: str) -> Tip:
    """A checkpoint that cannot be read costs time, not facts: the one before it and the log have them all."""
    for (seq,) in read("SELECT DISTINCT seq FROM checkpoints ORDER BY seq DESC", ()):
        try:
            return checkpoint(read, seq)
        except StoreDamaged as error:
            log.warning("%s: the checkpoint at event %s is not used: %s", where, seq, error)
    if (start := log_start(read)[0]) > 0:
        raise StoreDamaged(
            f"{where}: no checkpoint can be read, and its log begins with event {start + 1}: those before it were "
            f"removed because checkpoints had them. {RESTORE}"
        )
    return Tip(State())


def checkpoint(read: Read, seq: int) -> Tip:
    """The checkpoint at this event. Raises StoreDamaged."""
    parts = [body for (body,) in read("SELECT body FROM checkpoints WHERE seq = ? ORDER BY part", (seq,))]
    with no_garbage_collection():
        state, link = codec.decode_state(parts)
    if state.seq != seq:
        raise StoreDamaged(f"it is one of event {state.seq}")
    return Tip(state, link)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Off while a log is read: that makes a million objects and no garbage, and collecting would double the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
