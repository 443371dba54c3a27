"""The tables, as numbered steps. A released step never changes; a change of the tables is a new step at the end.

Written once for both databases: types are those of SQLite, and the PostgreSQL adapter maps them. Times that people read
are UTC in ISO 8601; `body` and `record` are the same facts for machines (see codec). Environment variables of jobs
are only in those; the values of those that are secrets only in the table `secrets`, and deleted with their job.
"""

from __future__ import annotations

from collections.abc import Callable

from swell.store import migrate
from swell.store.dialect import Cursor

Step = str | Callable[[Cursor, migrate.Sql], None]

SCHEMA_STEPS: tuple[tuple[Step, ...], ...] = (
    (
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, job INTEGER,"
        " body BLOB NOT NULL)",
        "CREATE TABLE checkpoints (seq INTEGER NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (seq, part))",
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL, team TEXT NOT NULL,"
        " batch TEXT NOT NULL, state TEXT NOT NULL, gpus INTEGER NOT NULL, gpus_min INTEGER NOT NULL,"
        " gpus_max INTEGER NOT NULL, nodes TEXT NOT NULL, priority INTEGER NOT NULL, paused INTEGER NOT NULL,"
        " submitted_at TEXT NOT NULL, started_at TEXT, ended_at TEXT, epochs_done INTEGER NOT NULL,"
        " epochs_total INTEGER NOT NULL, attempts INTEGER NOT NULL, failures INTEGER NOT NULL,"
        " preemptions INTEGER NOT NULL, resizes INTEGER NOT NULL, migrations INTEGER NOT NULL, waited_s REAL NOT NULL,"
        " ran_s REAL NOT NULL, gpu_s REAL NOT NULL, message TEXT NOT NULL, record BLOB NOT NULL)",
        "CREATE INDEX jobs_state ON jobs (state, id)",
        "CREATE TABLE runs (job INTEGER NOT NULL, attempt INTEGER NOT NULL, gpus INTEGER NOT NULL,"
        " gpu_type TEXT NOT NULL, nodes TEXT NOT NULL, planned_at TEXT NOT NULL, started_at TEXT, ended_at TEXT,"
        " reason TEXT NOT NULL, stop_why TEXT, exit_reason TEXT, exit_code INTEGER, message TEXT NOT NULL,"
        " record BLOB NOT NULL, PRIMARY KEY (job, attempt))",
        "CREATE TABLE nodes (name TEXT PRIMARY KEY, condition TEXT NOT NULL, why TEXT NOT NULL, gpus INTEGER NOT NULL,"
        " cpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL, rack TEXT NOT NULL, address TEXT NOT NULL,"
        " executor TEXT NOT NULL)",
        "CREATE TABLE gpus (node TEXT NOT NULL, gpu INTEGER NOT NULL, type TEXT NOT NULL, memory_mib INTEGER NOT NULL,"
        " health TEXT NOT NULL, why TEXT NOT NULL, others INTEGER NOT NULL, PRIMARY KEY (node, gpu))",
        "CREATE TABLE migrations (seq INTEGER PRIMARY KEY, job INTEGER NOT NULL, attempt INTEGER NOT NULL,"
        " at TEXT NOT NULL, from_nodes TEXT NOT NULL, to_nodes TEXT NOT NULL, reason TEXT NOT NULL)",
        "CREATE TABLE writer (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT NOT NULL,"
        " since TEXT NOT NULL)",
        "INSERT INTO writer VALUES (1, 0, '', '')",
    ),
    ("ALTER TABLE writer ADD COLUMN cluster_id TEXT NOT NULL DEFAULT ''",),
    (  # who had which GPUs when (`runs_between`)
        "CREATE INDEX runs_ended ON runs (ended_at)",
        "CREATE INDEX events_of_allocations ON events (job) WHERE kind IN ('RunPlanned', 'RunResized')",
    ),
    (
        "CREATE TABLE secrets (job INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job, name))",
        "ALTER TABLE events ADD COLUMN chain BLOB",
        migrate.seal_log,
    ),
    ("CREATE TABLE books (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)",),
    ("ALTER TABLE jobs ADD COLUMN reported BLOB",),
    (  # compaction of the log
        "CREATE TABLE log_start (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, chain BLOB NOT NULL)",
        "CREATE TABLE allocations (seq INTEGER PRIMARY KEY, job INTEGER NOT NULL, kind TEXT NOT NULL,"
        " body BLOB NOT NULL)",
        "CREATE INDEX allocations_job ON allocations (job)",
    ),
    (  # for people who read with SQL
        "ALTER TABLE jobs ADD COLUMN command TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE jobs ADD COLUMN image TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE jobs ADD COLUMN metrics TEXT NOT NULL DEFAULT '{}'",
        migrate.fill_plain_columns,
        "CREATE VIEW job_history AS SELECT id, name, owner, team, state, command, image, gpus_min, gpus_max,"
        " submitted_at, started_at, ended_at, waited_s, ran_s, gpu_s / 3600.0 AS gpu_hours, epochs_done, epochs_total,"
        " metrics, attempts, failures, preemptions, resizes, migrations, message FROM jobs WHERE ended_at IS NOT NULL",
    ),
)

VERSION_TABLE = "CREATE TABLE schema_versions (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)"
VERSION = len(SCHEMA_STEPS)
