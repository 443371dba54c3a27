"""Random damage to the files of a database, with fixed seeds: each is refused by name or started whole, and a refusal
changes no file. 30 mutations in `make test`, 300 with SWELL_CHAOS=full."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from contract.test_store_damage import files
from lives import moving_life, short_life, submitted, two_nodes
from swell.core.errors import StoreError
from swell.core.events import Event
from swell.core.lifecycle import replay
from swell.ports import JobQuery, Record
from swell.store.check import check
from swell.store.open import database_at, open_store

COUNT = 300 if os.environ.get("SWELL_CHAOS") == "full" else 30
LIVES = [event for job in range(1, 200) for event in (moving_life(job) if job % 3 else short_life(job))]
LOG: list[Event] = [*two_nodes(), *LIVES, submitted(200, env={"T": "hunter2"}, secrets=("T",))]
FIRST, SECOND = len(LOG) // 3, 2 * len(LOG) // 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _killed(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _killed(tmp_path_factory.mktemp("compacted"), compact=True)


def _killed(directory: Path, *, compact: bool = False) -> Path:
    """Files of a writer that was killed: two checkpoints, and a third of the log only in the write-ahead log. With
    `compact`, the first third was removed from the log."""
    path = directory / "live" / "swell.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.append(1, LOG[:FIRST])
        store.checkpoint(store.load(), b"a book")
        store.append(FIRST + 1, LOG[FIRST:SECOND])
        store.checkpoint(store.load(), b"a book")
        assert not compact or store.compact(float("inf"), len(LOG)) == FIRST
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.append(SECOND + 1, LOG[SECOND:])
        shutil.copytree(path.parent, directory / "killed", ignore=shutil.ignore_patterns("*-shm", "*.lock"))
    return directory / "killed"


EXPECTED = replay(LOG)
Mutation = Callable[[random.Random, Path], str]


def _file(rng: random.Random, directory: Path) -> Path:
    return directory / rng.choice(("swell.db", "swell.db", "swell.db-wal", "swell.db-wal", "swell.db.last"))


def random_bytes(rng: random.Random, directory: Path) -> str:
    path = _file(rng, directory)
    data = bytearray(path.read_bytes())
    length = min(len(data), rng.choice((1, 4, 64, 4096, 20_000)))
    at = rng.randrange(len(data) - length + 1)
    data[at : at + length] = rng.randbytes(length)
    path.write_bytes(data)
    return f"{length} random bytes at {at} of {path.name}"


def truncation(rng: random.Random, directory: Path) -> str:
    path = _file(rng, directory)
    keep = rng.randrange(path.stat().st_size)
    os.truncate(path, keep)
    return f"{path.name} cut to {keep}"


def deletion(rng: random.Random, directory: Path) -> str:
    path = _file(rng, directory)
    path.unlink()
    return f"{path.name} deleted"


def swapped_pages(rng: random.Random, directory: Path) -> str:
    path = directory / rng.choice(("swell.db", "swell.db-wal"))
    data = bytearray(path.read_bytes())
    one, other = sorted(rng.sample(range(len(data) // 4096), 2))
    a, b = slice(one * 4096, (one + 1) * 4096), slice(other * 4096, (other + 1) * 4096)
    data[a], data[b] = data[b], data[a]
    path.write_bytes(data)
    return f"pages {one} and {other} of {path.name} swapped"


def in_sql(*statements: str) -> Mutation:
    """By a person with a SQL shell. `{a}` and `{b}` are numbers of events."""

    def mutate(rng: random.Random, directory: Path) -> str:
        a, b = rng.sample(range(1, len(LOG) + 1), 2)
        with closing(sqlite3.connect(directory / "swell.db", isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement.format(a=a, b=b, blob=rng.randbytes(9).hex()))
        return "; ".join(statements).format(a=a, b=b, blob="…")

    return mutate


MUTATIONS: tuple[Mutation, ...] = (
    random_bytes,
    random_bytes,
    random_bytes,
    truncation,
    truncation,
    deletion,
    swapped_pages,
    in_sql("DELETE FROM events WHERE seq = {a}"),
    in_sql("DELETE FROM events WHERE seq > {a}"),
    in_sql("UPDATE events SET body = X'{blob}' WHERE seq = {a}"),
    in_sql("UPDATE events SET at_s = at_s + 1 WHERE seq = {a}"),
    in_sql(
        "UPDATE events SET seq = -1 WHERE seq = {a}",
        "UPDATE events SET seq = {a} WHERE seq = {b}",
        "UPDATE events SET seq = {b} WHERE seq = -1",
    ),
    in_sql("UPDATE checkpoints SET body = X'{blob}' WHERE seq = (SELECT max(seq) FROM checkpoints) AND part = 0"),
    in_sql("UPDATE checkpoints SET body = X'{blob}'"),
    in_sql("DELETE FROM checkpoints WHERE seq = (SELECT max(seq) FROM checkpoints)"),
    in_sql("DELETE FROM checkpoints WHERE part = 1"),
    in_sql("DELETE FROM checkpoints"),
    in_sql("DELETE FROM log_start"),
    in_sql("INSERT INTO log_start VALUES (2, {a}, X'{blob}')"),
    in_sql("UPDATE log_start SET seq = {a}"),
    in_sql("UPDATE checkpoints SET seq = seq + 1"),
    in_sql("UPDATE jobs SET record = X'{blob}' WHERE id = {a} % 199 + 1"),
    in_sql("UPDATE jobs SET reported = X'{blob}' WHERE id = {a} % 199 + 1"),
    in_sql("UPDATE jobs SET state = 'queued' WHERE id = {a} % 199 + 1"),
    in_sql("DELETE FROM jobs WHERE id = {a} % 199 + 1"),
)


def outcome(directory: Path) -> str:
    """refused, whole, tables (whole, and the bad tables are named by the doctor); anything else is a silent loss."""
    url = f"sqlite:///{directory / 'swell.db'}"
    before = files(directory)
    try:
        store = open_store(url)
    except StoreError as error:
        named, after = str(directory / "swell.db") in str(error), files(directory)
        return "refused" if named and after == before else f"SILENT: {error}; changed: {changed(before, after)}"
    with closing(store):
        if store.load() != EXPECTED:
            return "SILENT LOSS"
        tables = tables_of(store)
    if tables == listing():
        return "whole"
    damages = [damage.found for damage in check(database_at(url))]
    return "tables" if damages else f"SILENT: {tables[:1]}"


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return [name for name in {*before, *after} if before.get(name) != after.get(name)]


def listing() -> list[tuple[int, str]]:
    return sorted(((job, record.state.value) for job, record in EXPECTED.jobs.items()), reverse=True)


def tables_of(store: Record) -> list[tuple[int, str]]:
    try:
        return [(record.id, record.state.value) for record in store.jobs(JobQuery(limit=1000))]
    except StoreError:
        return []


@pytest.mark.parametrize("kind", ["whole", "compacted"])
def test_every_mutation_is_refused_by_name_or_started_whole(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    original: Path = request.getfixturevalue(kind)
    outcomes: Counter[str] = Counter()
    silent: dict[int, str] = {}
    for seed in range(COUNT):
        rng = random.Random(seed)
        directory = tmp_path / str(seed)
        shutil.copytree(original, directory)
        what = MUTATIONS[seed % len(MUTATIONS)](rng, directory)
        found = outcome(directory)
        outcomes[found.partition(":")[0]] += 1
        if found.startswith("SILENT"):
            silent[seed] = f"{what}: {found}"
        shutil.rmtree(directory)
    print(f"{COUNT} mutations, {kind}: {dict(outcomes)}")
    assert silent == {}


@pytest.mark.parametrize("kind", ["whole", "compacted"])
def test_the_files_are_whole_without_a_mutation(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> None:
    shutil.copytree(request.getfixturevalue(kind), tmp_path / "copy")
    assert outcome(tmp_path / "copy") == "whole"
    assert check(database_at(f"sqlite:///{tmp_path / 'copy' / 'swell.db'}")) == []


def test_bad_tables_are_named_and_made_anew_from_the_log(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(whole, directory)
    url = f"sqlite:///{directory / 'swell.db'}"
    with closing(sqlite3.connect(directory / "swell.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM jobs WHERE id = 3")
        connection.execute("UPDATE jobs SET record = X'00' WHERE id = 4")
        connection.execute("UPDATE runs SET record = X'00' WHERE job = 5")
        connection.execute("UPDATE jobs SET state = 'queued' WHERE id = 6")
        before = rows(connection)
    [damage] = check(database_at(url))
    for word in ("job 3", "job 4 in jobs", "job 5 in runs", "job 6 is shown as queued"):
        assert word in damage.found
    assert "doctor --rebuild" in damage.fix
    with closing(open_store(url)) as store:
        store.rebuild()  # type: ignore[union-attr]
        assert tables_of(store) == listing()
        assert store.load() == EXPECTED
    assert check(database_at(url)) == []
    with closing(sqlite3.connect(directory / "swell.db", isolation_level=None)) as connection:
        after = rows(connection)
    assert {name: len(found) for name, found in after.items()} == {
        name: len(found) + (name == "jobs") for name, found in before.items()
    }


def rows(connection: sqlite3.Connection) -> Mapping[str, list[object]]:
    tables = ("jobs", "runs", "nodes", "gpus", "migrations", "secrets")
    return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def test_tables_are_left_as_they_are_when_the_log_is_bad(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(whole, directory)
    with closing(sqlite3.connect(directory / "swell.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE seq = 5")
        before = rows(connection)
    url = f"sqlite:///{directory / 'swell.db'}"
    with closing(open_store(url)) as store, pytest.raises(StoreError, match="event 5"):
        store.rebuild()  # type: ignore[union-attr]
    with closing(sqlite3.connect(directory / "swell.db", isolation_level=None)) as connection:
        assert rows(connection) == before
    assert any("events 5 to 5" in damage.found for damage in check(database_at(url)))
