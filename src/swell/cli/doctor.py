"""`swell doctor`: what could be wrong on this machine, each with its fix."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, plural, print_json
from swell.cli.terminal import say
from swell.client.errors import DaemonUnreachable, Refused
from swell.client.http import Client
from swell.core.errors import SwellError
from swell.home import TOKEN_NAME, HomeRefused, check_state_files, default_home, kept_slots, make_directory, read_token
from swell.shim import limits, members

LOW_DISK_GIB = 1.0
CLOCK_OFF_S = 5.0
SHOWN = 5
"""Of removed jobs with files that could not be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`ok` is None for a note: nothing wrong, but worth knowing."""

    name: str
    ok: bool | None
    found: str
    fix: str = ""


@click.command()
@click.option("--rebuild", is_flag=True, help="Make the tables for reading anew from the log; the daemon must be down.")
@connected
def doctor(home: Path | None, as_json: bool, rebuild: bool) -> None:
    """Check this machine, the database and the daemon; 1 if something is wrong."""
    place = (home or default_home()).expanduser()
    if rebuild:
        _rebuild(place)
    checks = [check(place) for check in CHECKS]
    checks += [*_configured(place), *_daemon(home)]
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            _tell(check)
    sys.exit(1 if any(check.ok is False for check in checks) else 0)


def _tell(check: Check) -> None:
    word = {True: "ok  ", False: "FAIL", None: "note"}[check.ok]
    say(f"{word}  {check.name:<10} {check.found}" + (f"\n      fix: {check.fix}" if check.fix else ""))


def _python(_: Path) -> Check:
    version = platform.python_version()
    ok = sys.version_info >= (3, 11)
    return Check(
        name="python", ok=ok, found=f"{version} at {sys.executable}", fix="" if ok else "use Python 3.11 or newer"
    )


def _home(home: Path) -> Check:
    try:
        make_directory(home)
        check_state_files(home)
        with tempfile.TemporaryFile(dir=home):
            pass
    except HomeRefused as error:
        found, _, fix = str(error).partition("; ")
        return Check(name="home", ok=False, found=found, fix=fix)
    except OSError as error:
        fix = f"make {home} writable for {_me()}, or set SWELL_HOME to a directory that is"
        return Check(name="home", ok=False, found=f"{home}: {error.strerror}", fix=fix)
    return Check(name="home", ok=True, found=f"{home} is writable")


def _me() -> str:
    return f"user {os.getuid()}"


def _disk(home: Path) -> Check:
    existing = next(path for path in (home, *home.absolute().parents) if path.exists())
    free_gib = shutil.disk_usage(existing).free / (1 << 30)
    ok = free_gib >= LOW_DISK_GIB
    fix = (
        ""
        if ok
        else f"free some space there (at least {LOW_DISK_GIB:.0f} GiB): submissions are refused when it is full"
    )
    return Check(name="disk", ok=ok, found=f"{free_gib:.1f} GiB free under {existing}", fix=fix)


def _usage(home: Path) -> Check:
    """What the daemon's home takes of the disk."""
    from swell.config import Config
    from swell.home import DATABASE_NAME
    from swell.jobfile.outputs import disk_use
    from swell.jobfile.units import format_size

    config = Config(home=home)
    database = sum(path.stat().st_size for path in home.glob(f"{DATABASE_NAME}*") if path.is_file())
    kinds = (("logs", config.runs_dir), ("working copies", config.work_dir), ("checkpoints", config.checkpoints_dir))
    sizes = {"database": database, **{words: disk_use(path).bytes for words, path in kinds}}
    sizes["submitted files"] = disk_use(config.files_dir).bytes
    found = ", ".join(f"{words} {format_size(size)}" for words, size in sizes.items() if size)
    return Check(name="usage", ok=True, found=found or "nothing on disk yet")


def _token(home: Path) -> Check:
    path = home / TOKEN_NAME
    if not os.path.lexists(path):
        return Check(name="token", ok=None, found="none yet: the first start makes one")
    try:
        read_token(path)
    except (HomeRefused, OSError) as error:
        found, _, fix = str(error).partition("; ")
        return Check(name="token", ok=False, found=found, fix=fix)
    return Check(name="token", ok=True, found=f"{path}, readable by you only")


def _driver(home: Path) -> Check:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        found = f"no NVIDIA driver answers ({error})"
        slots = kept_slots(home)
        if slots:
            return Check(
                name="gpus",
                ok=True,
                found=f"{found}; {plural(slots, 'slot')} stand{'s' if slots == 1 else ''} in for GPUs",
            )
        fix = "install the NVIDIA driver, or declare slots to try Swell without one: swell up --gpus 4"
        return Check(name="gpus", ok=None, found=found, fix=fix)
    return Check(name="gpus", ok=True, found=f"{count} found by the NVIDIA driver")


def _git(_: Path) -> Check:
    if shutil.which("git"):
        return Check(name="git", ok=True, found="snapshots leave out what .gitignore names")
    return Check(name="git", ok=None, found="not there: snapshots go by .swellignore only")


def _processes(_: Path) -> Check:
    """What enforces that nothing of a run outlives it."""
    group = members.Members("", members.cgroup_for(f"doctor-{os.getpid()}"))
    group.make_cgroup()
    if group.cgroup and Path(group.cgroup).is_dir():
        group.remove_cgroup()
        where = Path(group.cgroup).parent
        return Check(name="processes", ok=True, found=f"each run is held in a cgroup of its own, below {where}")
    found = (
        "no cgroup may be made here: runs are held by a guard process and marks in their environment. Only a process "
        "that left its session and wiped its environment could outlive a run, and only if somebody kills the run's "
        "shim and its guard together"
    )
    fix = "start the daemon in a delegated cgroup, e.g. systemd-run --user --scope -p Delegate=yes swell up"
    return Check(name="processes", ok=None, found=found, fix=fix)


def _configured(home: Path) -> list[Check]:
    """What depends on config.yaml: what is wrong with it, else what keeps jobs apart and how the database is."""
    from swell.config import load_config

    try:
        config = load_config(home, {})
    except SwellError as error:
        return [Check(name="config", ok=False, found=str(error), fix="correct it; no daemon starts with it")]
    return [_isolation(config.as_submitter), *_database(config.database_url)]


def _isolation(as_submitter: bool) -> Check:
    """What keeps jobs of different people apart, as this machine is set up."""
    if as_submitter:
        whom = "jobs run as their submitters here; over SSH as the account of the machine, in pods as the image says"
    else:
        whom = f"jobs run as {_me()} and can read the daemon's token and each other's files, whoever submitted them"
    found = f"{whom}. {_held_to(as_submitter)}"
    fix = "" if as_submitter else "for people who do not trust each other: run_as: submitter (docs/security.md)"
    return Check(name="isolation", ok=None, found=found, fix=fix)


def _held_to(as_submitter: bool) -> str:
    """What keeps a job from taking the whole machine."""
    if not as_submitter:
        return "CPU, memory and processes are limited for jobs with an image only"
    mark = f"doctor-{os.getpid()}"
    held = limits.impose(mark, {"limits": {"memory_mib": 1024}})
    limits.remove(mark)
    if not held:
        return "CPU, memory and processes of jobs are not limited: no cgroup may be made here"
    return f"memory (if the job names it), processes and CPU shares are limited, in {len(held)} cgroups per worker"


CHECKS: Sequence[Callable[[Path], Check]] = (_python, _home, _disk, _usage, _token, _driver, _git, _processes)


def _rebuild(home: Path) -> None:
    """Raises what is in the way: a daemon that runs, a log that is bad."""
    from swell.config import load_config
    from swell.store.open import open_store
    from swell.store.sql import SqlStore

    store = open_store(load_config(home, {}).database_url, holder="swell doctor --rebuild")
    try:
        if isinstance(store, SqlStore):
            store.rebuild()
    finally:
        store.close()
    say("the tables for reading were made anew from the log")


def _database(url: str) -> list[Check]:
    """Every row of it."""
    from swell.store.check import check
    from swell.store.open import SQLITE, database_at

    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        return [Check(name="database", ok=None, found="none yet: the first start makes one")]
    try:
        database = database_at(url)
        damages = check(database)
    except SwellError as error:
        return [Check(name="database", ok=False, found=str(error))]
    if not damages:
        return [Check(name="database", ok=True, found=f"{database.where}: every row of it is as it was written")]
    return [Check(name="database", ok=False, found=damage.found, fix=damage.fix) for damage in damages]


def _daemon(home: Path | None) -> list[Check]:
    try:
        found = client(home)
        health = found.get("/v1/health")
        found.get("/v1/policy")
    except DaemonUnreachable as error:
        return [Check(name="daemon", ok=None, found=str(error).partition(";")[0], fix="swell up")]
    except Refused as error:
        fix = "use the token of this daemon (SWELL_TOKEN, or the file `token` in its home)"
        return [Check(name="daemon", ok=False, found=str(error).partition(";")[0], fix=fix)]
    if health.get("role") == "standby":
        active = f"the active one is at {health['active']}" if health.get("active") else "none is active yet"
        return [Check(name="daemon", ok=True, found=f"{found.address.url} is a standby; {active}")]
    degraded = str(health.get("degraded", ""))
    if degraded:
        return [Check(name="daemon", ok=False, found=degraded, fix="see its cause; the daemon goes on by itself")]
    answers = Check(
        name="daemon",
        ok=True,
        found=f"{found.address.url}, {health.get('role', 'active')}, version {health['version']}",
    )
    return [answers, *_clock(health), *_deaths(health), *_findings(health), *_files(found)]


def _clock(health: dict[str, Any]) -> list[Check]:
    """The daemon's clock passes steadily; somebody may have set the machine's."""
    off_s = time.time() - float(health.get("now_s", time.time()))
    if abs(off_s) < CLOCK_OFF_S:
        return []
    which = "ahead of" if off_s > 0 else "behind"
    found = (
        f"the machine's clock is {abs(off_s):.0f} s {which} the daemon's, in which all times are shown: it was set. "
        "Limits and back-offs go on as if it had not been; the two come together by 18 s per hour"
    )
    fix = "to take the machine's clock over at once: swell down, delete clock.json from the daemon's home, swell up"
    return [Check(name="clock", ok=None, found=found, fix=fix)]


def _deaths(health: dict[str, Any]) -> list[Check]:
    """Of background tasks that run again."""
    return [
        Check(
            name="daemon",
            ok=None,
            found=f"its task {task['name']} died {plural(task['deaths'], 'time')} and runs again; last: {task['why']}",
            fix="please report it, with daemon.log from its home",
        )
        for task in health.get("tasks", ())
    ]


def _findings(health: dict[str, Any]) -> list[Check]:
    """Of the clusters that the daemon uses."""
    ok = {"ok": True, "note": None, "failed": False}
    return [
        Check(name=found["name"], ok=ok[found["verdict"]], found=found["words"], fix=found["fix"])
        for found in health.get("findings", ())
    ]


def _files(found: Client) -> list[Check]:
    """Of jobs that are not in the record."""
    try:
        left = found.get("/v1/leftovers")
    except Refused:  # an older daemon, which does not know
        return []
    checks = [_undeleted(one) for one in left["undeleted"][:SHOWN]]
    if more := len(left["undeleted"]) - len(checks):
        checks.append(Check(name="files", ok=False, found=f"and files of {plural(more, 'more removed job')}"))
    if left["unknown"]["jobs"]:
        checks.append(_unknown(left["unknown"]))
    return checks


def _undeleted(one: dict[str, Any]) -> Check:
    tried = f"tried {plural(one['tries'], 'time')}"
    found = f"not all files of the removed job {one['job']} could be deleted ({tried}): {one['why']}"
    again = "the daemon's next start tries again" if one["given_up"] else "the daemon tries again by itself"
    return Check(name="files", ok=False, found=found, fix=f"see that {_me()} may delete it; {again}")


def _unknown(jobs: dict[str, Any]) -> Check:
    ids = ", ".join(f"{first} to {last}" if first < last else str(first) for first, last in jobs["ids"])
    found = (
        f"of {plural(jobs['jobs'], 'job')} of another database (ids {ids}) there are files in runs, work and "
        "checkpoints; they are left alone, and new jobs have other ids"
    )
    return Check(name="files", ok=None, found=found, fix="delete them yourself once nobody needs them")
