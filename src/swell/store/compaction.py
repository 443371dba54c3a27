"""Removes old events from the log, a few at a time, so that what is left still makes the same state.

An event may go once two checkpoints and two speed books cover it, and replaying the log from the earlier checkpoint has
made the later one. It is checked against the chain once more before it goes: a log that is damaged is not made shorter.
The row `log_start` then has its number and link, which the first event that is left follows. Number, link and removal
are one transaction. What became of jobs stays in the tables for reading; see ADR 18.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from swell.core.errors import StoreDamaged
from swell.core.state import State
from swell.store import codec, replaying
from swell.store.dialect import Cursor
from swell.store.migrate import Sql
from swell.store.replaying import ROWS, Read, Tip

KEEP = 2
"""Checkpoints and books that must cover an event: the latest may be damaged."""
PAGE = 250
PAUSE_S = 0.005
"""Events that are replayed at a time; then other threads have their turn, above all the one that writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Events from the start of the log that may go: up to `seq`, which has this link."""

    seq: int
    link: bytes
    count: int


def proven(read: Read, where: str) -> int:
    """The last event that neither a start nor the speed book needs any more; 0 if there is none. Replays the log from
    one checkpoint to the next. Raises StoreDamaged if that does not make the later one."""
    seqs = [seq for (seq,) in read("SELECT DISTINCT seq FROM checkpoints ORDER BY seq DESC LIMIT ?", (KEEP,))]
    books = list(_good_books(read))
    if len(seqs) < KEEP or len(books) < KEEP:
        return 0
    _check_replay(read, where, earlier=seqs[-1], later=seqs[0])
    return int(min(seqs[-1], books[KEEP - 1]))


def _good_books(read: Read) -> Iterator[int]:
    for seq, crc, packed in read("SELECT seq, crc, body FROM books ORDER BY seq DESC", ()):
        if isinstance(packed, bytes) and zlib.crc32(packed) == crc:
            yield seq


def _check_replay(read: Read, where: str, *, earlier: int, later: int) -> None:
    tip, wanted = replaying.checkpoint(read, earlier), replaying.checkpoint(read, later)
    if replaying.link_at(read, earlier) != tip.chain:
        raise StoreDamaged(f"{where}: the checkpoint at event {earlier} is of another log")
    with replaying.no_garbage_collection():
        while (left := later - tip.state.seq) > 0 and (page := read(ROWS, (tip.state.seq, min(PAGE, left)))):
            replaying.replay_page(tip, page, where)
            time.sleep(PAUSE_S)
    if tip.chain != wanted.chain or not _same(tip, wanted):
        raise StoreDamaged(f"{where}: the log does not make the state of the checkpoint at event {later}")


def _same(one: Tip, other: Tip) -> bool:
    """As bytes if not as values: a loss that is NaN does not equal itself."""
    return one.state == other.state or _bytes(one.state) == _bytes(other.state)


def _bytes(state: State) -> list[bytes]:
    return codec.encode_state(state, b"")


def next_piece(read: Read, where: str, *, through: int, before_s: float, limit: int) -> Piece | None:
    """The next events to remove: at most `limit`, none after `through`, none that happened at `before_s` or later."""
    seq, link = replaying.log_start(read)
    page = read(ROWS, (seq, max(0, min(limit, through - seq))))
    old = list(takewhile(lambda row: row[1] < before_s, page))
    if not old:
        return None
    link = replaying.verified(old, seq, link, where)
    return Piece(seq=old[-1][0], link=link, count=len(old))


def remove(cursor: Cursor, sql: Sql, piece: Piece) -> None:
    """In the caller's transaction."""
    cursor.execute(sql(_KEEP_ALLOCATIONS), (piece.seq,))
    cursor.execute(sql("DELETE FROM events WHERE seq <= ?"), (piece.seq,))
    cursor.execute(sql("DELETE FROM log_start"))
    cursor.execute(sql("INSERT INTO log_start (id, seq, chain) VALUES (1, ?, ?)"), (piece.seq, piece.link))


_KEEP_ALLOCATIONS = (
    "INSERT INTO allocations (seq, job, kind, body) SELECT seq, job, kind, body FROM events WHERE seq <= ?"
    " AND kind IN ('RunPlanned', 'RunResized') AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = events.job"
    " AND (jobs.resizes > 0 OR jobs.ended_at IS NULL))"
)
"""What a run held when, of those that changed it in place or still may: `runs` has the last allocation only."""
