"""`swell backup` and `swell restore`: copies of the database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from swell.cli.common import connected, plural, print_json
from swell.cli.terminal import say
from swell.home import default_home
from swell.jobfile.units import format_size

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=_FILE)
@connected
def backup(home: Path | None, as_json: bool, file: Path) -> None:
    """Copy the database to FILE, also while the daemon runs, and verify the copy by reading it back.

    FILE is one SQLite database, whatever database the daemon uses. It holds the values of secrets, and only you can
    read it. Logs, checkpoints and working files of jobs are not in it.
    """
    from swell.config import load_config
    from swell.store.backup import back_up
    from swell.store.open import database_at

    path = file.expanduser().absolute()
    config = load_config((home or default_home()).expanduser(), {})
    copied = back_up(database_at(config.database_url, "swell backup"), path)
    if as_json:
        print_json({"file": str(path), **asdict(copied)})
        return
    what = f"{plural(copied.jobs, 'job')} and the log up to event {copied.events}"
    say(f"copied {what} to {path} ({format_size(copied.bytes)}); every row of the copy was verified")
    say(f"not in it: logs, checkpoints and working files of jobs, under {config.home}")


@click.command()
@click.argument("file", type=_FILE)
@connected
def restore(home: Path | None, as_json: bool, file: Path) -> None:
    """Put the database that `swell backup` copied to FILE in place; the daemon must be down.

    A SQLite database that is there is moved aside, not deleted. On a PostgreSQL server the database must be empty. Jobs
    that were running when the copy was made are looked for where they ran; start one daemon on one copy only.
    """
    from swell.config import load_config
    from swell.serve import held, prepare_home
    from swell.store.backup import restore as put_in_place
    from swell.store.open import database_at

    config = load_config((home or default_home()).expanduser(), {})
    prepare_home(config)
    with held(config):
        copied, aside = put_in_place(file.expanduser().absolute(), database_at(config.database_url, "swell restore"))
    if as_json:
        print_json({"home": str(config.home), "aside": aside, **asdict(copied)})
        return
    say(f"restored {plural(copied.jobs, 'job')} and the log up to event {copied.events}; start it with: swell up")
    if aside:
        say(aside)
