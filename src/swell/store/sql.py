"""The store on a SQL database. What differs between SQLite and PostgreSQL is behind `dialect.Database`.

One writer: the database's own lock keeps a second process out, and an epoch that every transaction checks keeps one out
that lost its lock without noticing. The store keeps a state of its own beside the log, which tells it what each event
changes in the tables; after a failure it is read again.
"""

from __future__ import annotations

import logging
import secrets as random_bytes
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from swell.core.errors import StoreBusy, StoreDamaged, StoreError, StoreFenced, StoreTooNew
from swell.core.events import Event, job_of
from swell.core.ids import JobId
from swell.core.resources import Node
from swell.core.state import ENDED, JobRecord, JobState, Run, State, copy_of
from swell.ports import Consumption, JobQuery, PastRun, Stored
from swell.store import chain, codec, compaction, rebuild, rows, secrets, statements
from swell.store.dialect import Connection, Cursor, Database
from swell.store.projection import Changes, past_run, project
from swell.store.replaying import RESTORE, Read, Tip, link_at, log_start, tip_of
from swell.store.reported import run_with_reported, with_reported
from swell.store.schema import SCHEMA_STEPS, VERSION, VERSION_TABLE

log = logging.getLogger(__name__)

KEEP_CHECKPOINTS = 2
ALL = 2**62


class SqlStore:
    """Implements `Store` and `Record`. `holder` names this process to others that find the database taken."""

    def __init__(self, database: Database, holder: str) -> None:
        self._db = database
        self._holder = holder
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._tip: Tip | None = None  # None: to be read
        self._just_opened = True  # and read by that
        self._reader: Connection | None = None
        self._first_seq = 1
        self._proven: tuple[int | None, int] = (None, 0)  # with which latest checkpoint, up to which event
        self._epoch = 0
        self._cluster_id = ""
        self._sql = database.dialect.sql
        self._upserts = {table: self._sql(sql) for table, sql in statements.UPSERTS.items()}
        self._writer: Connection | None = None
        with self._explained():
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def epoch(self) -> int:
        return self._epoch

    def still_ours(self) -> bool:
        """Nobody else has claimed the database since. False also if that cannot be known now."""
        try:
            with closing(self._db.reader()) as reader:
                self._check_epoch(reader.cursor(), "SELECT epoch, holder FROM writer")
        except StoreError:
            return False
        except Exception as error:
            if self._db.explain(error) is None:
                raise
            return False
        return True

    # Writing

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        with self._write_lock:
            tip = self._current()
            if first_seq != tip.state.seq + 1:
                raise StoreError(f"event {first_seq} cannot follow event {tip.state.seq} in {self._db.where}")
            if not events:
                return
            self._just_opened = False
            self._tip = None  # until this batch is in; a failure leaves it to be read again
            entries = chain.linked(tip.chain, _log_rows(first_seq, events))
            changes = project(tip.state, events)
            with self._transaction() as cursor:
                cursor.executemany(self._upserts["events"], entries)
                self._upsert(cursor, "secrets", list(secrets.rows_of(events)))
                erased = self._write(cursor, changes)
            self._tip = Tip(tip.state, entries[-1][-1])
            self._db.remember(tip.state.seq, self._tip.chain)
            if erased:
                self._scrub()

    def _scrub(self) -> None:
        try:
            with self._explained():
                self._db.scrub(self._writing())
        except StoreError as error:
            log.warning("secrets of a removed job are deleted, but what they left on disk is not erased yet: %s", error)

    def _write(self, cursor: Cursor, changes: Changes) -> bool:
        """True if secrets were deleted."""
        self._upsert(cursor, "jobs", [rows.job_row(job) for job in changes.jobs.values()])
        self._upsert(cursor, "reported", [rows.reported_row(job) for job in changes.reported.values()])
        self._upsert(cursor, "runs", [rows.run_row(run) for run in changes.runs.values()])
        self._upsert(cursor, "migrations", [rows.move_row(move) for move in changes.moves])
        erased = 0
        for job in changes.removed:
            for sql in statements.REMOVE_JOB:
                cursor.execute(self._sql(sql), (job,))
            erased += cursor.rowcount
        for name, node in changes.nodes.items():
            self._write_node(cursor, name, node)
        return erased > 0

    def _write_node(self, cursor: Cursor, name: str, node: Node | None) -> None:
        for sql in ("DELETE FROM nodes WHERE name = ?", "DELETE FROM gpus WHERE node = ?"):
            cursor.execute(self._sql(sql), (rows.text(name),))
        if node is not None:
            self._upsert(cursor, "nodes", [rows.node_row(node)])
            self._upsert(cursor, "gpus", list(rows.gpu_rows(node)))

    def _upsert(self, cursor: Cursor, table: str, values: list[rows.Row]) -> None:
        if values:
            cursor.executemany(self._upserts[table], values)

    def prove_writable(self) -> None:
        with self._write_lock, self._transaction() as cursor:
            cursor.execute(self._sql("UPDATE writer SET since = ?"), (rows.when(time.time()),))

    def checkpoint(self, state: State, book: bytes = b"") -> None:
        parts = codec.encode_state(
            state, link_at(self._read, state.seq) or chain.START
        )  # before the lock: appends go on meanwhile
        with self._write_lock:
            last = self._current().state.seq
            if state.seq > last:
                raise StoreError(f"a checkpoint at event {state.seq} is ahead of the log, which ends at {last}")
            with self._transaction() as cursor:
                cursor.execute(self._sql("DELETE FROM checkpoints WHERE seq = ?"), (state.seq,))
                values = [(state.seq, number, part) for number, part in enumerate(parts)]
                cursor.executemany(self._sql("INSERT INTO checkpoints VALUES (?, ?, ?)"), values)
                cursor.execute(self._sql(statements.FORGET_CHECKPOINTS), (KEEP_CHECKPOINTS,))
                if book:
                    packed = zlib.compress(book, 1)
                    cursor.execute(self._sql("DELETE FROM books WHERE seq = ?"), (state.seq,))
                    row = (state.seq, zlib.crc32(packed), packed)
                    cursor.execute(self._sql("INSERT INTO books VALUES (?, ?, ?)"), row)
                    cursor.execute(self._sql(statements.FORGET_BOOKS), (KEEP_CHECKPOINTS,))

    @property
    def first_seq(self) -> int:
        return self._first_seq

    def compact(self, before_s: float, limit: int) -> int:
        oldest = self._read("SELECT at_s FROM events ORDER BY seq LIMIT 1", ())
        if not oldest or oldest[0][0] >= before_s:  # the usual answer: the proof below is expensive
            return 0
        latest = self._read("SELECT max(seq) FROM checkpoints", ())[0][0]
        if latest != self._proven[0]:
            self._proven = latest, compaction.proven(self._read, self._db.where)
        piece = compaction.next_piece(
            self._read, self._db.where, through=self._proven[1], before_s=before_s, limit=limit
        )
        if piece is None:
            return 0
        with self._write_lock, self._transaction() as cursor:
            compaction.remove(cursor, self._sql, piece)
        self._first_seq = piece.seq + 1
        return piece.count

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """All or nothing, and only while the database is still ours."""
        with self._explained():
            try:
                cursor = self._writing().cursor()
                cursor.execute(self._db.dialect.begin)
                self._check_epoch(cursor)
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        """The connection is opened anew afterwards if even this fails."""
        try:
            if self._writer is not None:
                self._writer.cursor().execute("ROLLBACK")
        except Exception as error:
            if self._db.explain(error) is None:
                raise
            # SQLite has already rolled back on its own, or contact was lost: a new connection knows
            self._drop_writer()

    def _check_epoch(self, cursor: Cursor, select: str = "") -> None:
        cursor.execute(select or self._db.dialect.read_writer)
        epoch, holder = cursor.fetchone()
        if epoch != self._epoch:
            raise taken_over(self._db.where, holder)

    def _writing(self) -> Connection:
        if self._writer is None:
            try:
                self._writer = self._db.writer()
            except StoreBusy:
                self._check_not_taken()
                raise
        return self._writer

    def _check_not_taken(self) -> None:
        """Somebody else has the lock. If it has come to claim the database, waiting for it would be in vain."""
        if self._epoch == 0:  # we are only just opening it
            return
        with closing(self._db.reader()) as reader:
            self._check_epoch(reader.cursor(), "SELECT epoch, holder FROM writer")

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(Exception):  # its error is being reported already
                writer.close()

    def rebuild(self) -> None:
        """Make the tables for reading anew from the log, or change nothing. Raises StoreDamaged if the log is bad. Of a
        log that was compacted, the rows of jobs that ended before are kept as they are."""
        with self._write_lock, self._transaction() as cursor:
            for statement in rebuild.statements(whole=self._first_seq == 1):
                cursor.execute(self._sql(statement))
            for changes in rebuild.changes(self._read, self._db.where):
                self._write(cursor, changes)

    # Opening

    def _open(self) -> None:
        version = self._examine()
        cursor = self._writing().cursor()
        if 0 < version < VERSION:
            self._db.backup(self._writing(), version)
        cursor.execute(self._db.dialect.begin)
        try:
            self._migrate(cursor, version)
            self._claim(cursor)
            cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        tip = self._current()
        self._first_seq = log_start(self._read)[0] + 1
        self._db.remember(tip.state.seq, tip.chain)
        self._db.opened()

    def _examine(self) -> int:
        """Look before anything is opened for writing: what is refused is left as it was."""
        with self._db.examine() as connection:
            try:
                return 0 if connection is None else self._examined(connection)
            except (TypeError, ValueError, ArithmeticError, AttributeError) as error:  # values that nobody wrote
                raise StoreDamaged(f"{self._db.where} is damaged ({error!r}). {RESTORE}") from error

    def _examined(self, connection: Connection) -> int:
        """The version of its tables."""
        version = self._version(connection.cursor())
        if version > VERSION:
            raise StoreTooNew(
                f"{self._db.where} was written by a later version of Swell (its tables have version {version}, "
                f"this Swell knows {VERSION}). It was not touched. Install that version, or use another database."
            )
        if version == VERSION:
            self._tip = self._examined_tip(connection)
        return version

    def _examined_tip(self, connection: Connection) -> Tip:
        def read(sql: str, values: Sequence[Any]) -> list[Any]:
            cursor = connection.cursor()
            cursor.execute(self._sql(sql), values)
            return cursor.fetchall()

        tip = tip_of(read, self._db.where)
        self._first_seq = log_start(read)[0] + 1
        read("SELECT epoch, holder, since, cluster_id FROM writer", ())  # all that opening will touch
        if (known := self._db.remembered()) is not None:
            self._check_remembered(tip, known, read)
        return tip

    def _check_remembered(self, tip: Tip, known: tuple[int, bytes], read: Read) -> None:
        seq, link = known
        if tip.state.seq < seq:
            raise StoreDamaged(
                f"{self._db.where} has lost events: its log ends at event {tip.state.seq}, but {seq} were committed. "
                f"Its write-ahead log was cut or deleted, or an older copy was put in its place. {self._db.accept}"
            )
        found = read("SELECT chain FROM events WHERE seq = ?", (seq,))
        if found and bytes(found[0][0]) != link:
            raise StoreDamaged(
                f"{self._db.where} holds another log than the one that was written here: event {seq} differs. "
                f"{self._db.accept}"
            )

    def _version(self, cursor: Cursor) -> int:
        cursor.execute(self._db.dialect.tables)
        tables = {name for (name,) in cursor.fetchall()}
        if "schema_versions" in tables:
            cursor.execute("SELECT max(version) FROM schema_versions")
            return int(cursor.fetchone()[0] or 0)
        if tables & {"events", "jobs"}:
            raise StoreDamaged(
                f"{self._db.where} is not a database of Swell: it has tables of its own. Use another one."
            )
        return 0

    def _migrate(self, cursor: Cursor, version: int) -> None:
        if version == 0:
            cursor.execute(self._sql(VERSION_TABLE))
        for number, step in enumerate(SCHEMA_STEPS[version:], start=version + 1):
            for statement in step:
                if isinstance(statement, str):
                    cursor.execute(self._sql(statement))
                else:
                    statement(cursor, self._sql)
            insert = self._sql("INSERT INTO schema_versions VALUES (?, ?)")
            cursor.execute(insert, (number, rows.when(time.time())))

    def _claim(self, cursor: Cursor) -> None:
        """From here on whoever had the database before us is fenced off."""
        cursor.execute(self._db.dialect.read_writer)
        self._epoch = int(cursor.fetchone()[0]) + 1
        update = self._sql("UPDATE writer SET epoch = ?, holder = ?, since = ?")
        cursor.execute(update, (self._epoch, self._holder, rows.when(time.time())))
        name = self._sql("UPDATE writer SET cluster_id = ? WHERE cluster_id = ''")
        cursor.execute(name, (new_cluster_id(),))
        cursor.execute("SELECT cluster_id FROM writer")
        self._cluster_id = str(cursor.fetchone()[0])

    # Reading

    def events(self, after_seq: int = 0, limit: int | None = None) -> Sequence[Stored]:
        found = self._read(statements.EVENTS, (after_seq, ALL if limit is None else limit))
        return [Stored(seq=seq, event=codec.decode(kind, body)) for seq, kind, body in found]

    def load(self) -> State:
        with self._write_lock:
            if not self._just_opened:
                self._tip = None
            self._just_opened = False
            return copy_of(self._current().state)

    def _current(self) -> Tip:
        if self._tip is None:
            with self._explained():
                self._tip = tip_of(self._read, self._db.where)
        return self._tip

    def book(self) -> tuple[int, bytes]:
        """One that was changed costs time, not facts: the one before it and the log have them."""
        for seq, crc, packed in self._read("SELECT seq, crc, body FROM books ORDER BY seq DESC", ()):
            if isinstance(packed, bytes) and zlib.crc32(packed) == crc:
                return seq, zlib.decompress(packed)
            log.warning("%s: the speed book at event %s is damaged and is not used", self._db.where, seq)
        return 0, b""

    def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        sql, values = statements.jobs_page(query)
        return [record for row in self._read(sql, values) if (record := self._listed(row)) is not None]

    def _listed(self, row: Sequence[Any]) -> JobRecord | None:
        """One row that cannot be read does not take the others with it."""
        try:
            return self._whole(*row)
        except StoreDamaged as error:
            log.error("job %s is left out of a list: %s", row[0], error)
            return None

    def ended_before(self, before_s: float, limit: int) -> Sequence[JobId]:
        found = [
            job
            for state in sorted(ENDED)
            for job, ended_at in self._read(statements.ENDED_OF_STATE, (state, limit))
            if ended_at < rows.when(before_s)
        ]
        return sorted(found)[:limit]

    def consumed_since(self, since_s: float) -> Sequence[Consumption]:
        return [
            Consumption(user=user, team=team, state=JobState(state), jobs=jobs, ran_s=float(ran_s), gpu_s=float(gpu_s))
            for user, team, state, jobs, ran_s, gpu_s in self._read(
                statements.CONSUMED_SINCE, (rows.when(since_s) or "",)
            )
        ]

    def job(self, job: JobId) -> JobRecord | None:
        found = self._read("SELECT id, record, reported FROM jobs WHERE id = ?", (job,))
        return self._whole(*found[0]) if found else None

    def _whole(self, job: JobId, body: bytes, reported: bytes | None) -> JobRecord:
        record = codec.decode_record(body)
        if reported is not None:
            record = with_reported(record, codec.decode_reported(reported))
        if not record.spec.secrets:
            return record
        return secrets.revealed(record, self._read("SELECT job, name, value FROM secrets WHERE job = ?", (job,)))

    def runs(self, job: JobId) -> Sequence[Run]:
        return [_run(*row) for row in self._read(statements.RUNS, (job,))]

    def runs_between(self, from_s: float, to_s: float, limit: int) -> Sequence[PastRun]:
        found = self._read(statements.RUNS_BETWEEN, (rows.when(from_s), rows.when(to_s), limit))
        runs = [(_run(*row), name, user) for *row, name, user in found]
        resized = {run.id.job for run, _, _ in runs if run.changed_s > run.planned_s}
        changes = {job: self._plans_and_resizes(job) for job in sorted(resized)}
        return [past_run(run, name, user, changes.get(run.id.job, ())) for run, name, user in runs]

    def _plans_and_resizes(self, job: JobId) -> list[Event]:
        return [codec.decode(kind, body) for _, kind, body in self._read(statements.PLANS_AND_RESIZES, (job, job))]

    def _read(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._read_lock, self._explained():
            if self._reader is not None:
                with suppress(StoreError), self._explained():  # contact was lost since it was last used, perhaps
                    return self._ask(sql, values)
            return self._ask(sql, values)

    def _ask(self, sql: str, values: Sequence[Any]) -> list[Any]:
        if self._reader is None:
            self._reader = self._db.reader()
        try:
            cursor = self._reader.cursor()
            cursor.execute(self._sql(sql), values)
            return cursor.fetchall()
        except Exception:
            reader, self._reader = self._reader, None  # the next query opens a new connection
            with suppress(Exception):
                reader.close()
            raise

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            self._drop_writer()  # last: SQLite folds its log into the file when the last connection goes
            self._db.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            explained = None if isinstance(error, StoreError) else self._db.explain(error)
            if explained is None:
                raise
            raise explained from error


def taken_over(where: str, holder: str) -> StoreFenced:
    return StoreFenced(
        f"{where} has been taken over by {holder}. This process writes nothing more to it; "
        "stop it, or stop the other one and start this one again."
    )


def new_cluster_id() -> str:
    return random_bytes.token_hex(8)


def _log_rows(first_seq: int, events: Sequence[Event]) -> list[tuple[Any, ...]]:
    return [
        (seq, event.at_s, type(event).__name__, job_of(event), codec.encode(event))
        for seq, event in enumerate(events, start=first_seq)
    ]


def _run(body: bytes, is_last: bool, reported: bytes | None) -> Run:
    run = codec.decode_run(body)
    return run_with_reported(run, codec.decode_reported(reported)) if is_last and reported is not None else run
