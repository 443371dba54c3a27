"""`execute_batch` and `execute_remote`, the commands of ml-scheduler with its options: aliases of `swell batch`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from swell.cli.batch_run import Several, batch_options, read_file, run_lines
from swell.cli.main import EXIT_INTERRUPTED, guarded
from swell.cli.terminal import say
from swell.jobfile.batchfile import read_batch, stem

forward_option = click.option(
    "--copy-forward", "forward", multiple=True, metavar="PATTERN...", help="Only these go to the jobs.  [default: .]"
)
exclude_option = click.option("--exclude", multiple=True, metavar="PATTERN...", help="These do not go to the jobs.")
back_option = click.option(
    "--copy-backwards", "back", multiple=True, metavar="PATTERN...", help="These come back.  [default: all new]"
)


@click.command("execute_batch", cls=Several)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@forward_option
@exclude_option
@back_option
@batch_options
def execute_batch(file: Path, **said: Any) -> None:
    """Run each line of FILE as a job on the machines, and bring results into job_results (`swell batch FILE`)."""
    sys.exit(run_lines(read_file(file), **said))


@click.command("execute_remote", cls=Several)
@click.argument("command")
@click.option("--job-name", default="", help="Name of the job and of its results.  [default: made of COMMAND]")
@forward_option
@exclude_option
@back_option
@batch_options
def execute_remote(command: str, job_name: str, **said: Any) -> None:
    """Run COMMAND, one shell line, as a job on the machines, and bring its results into job_results."""
    if "\n" in command.strip():
        raise click.UsageError("COMMAND is one line; put several into a file for execute_batch")
    (line,) = read_batch(command, "execute_remote")
    sys.exit(run_lines([replace(line, name=stem(job_name)) if job_name else line], **said))


def execute_batch_main() -> None:
    guarded(lambda: _interruptible(execute_batch))


def execute_remote_main() -> None:
    guarded(lambda: _interruptible(execute_remote))


def _interruptible(command: click.Command) -> None:
    """Ctrl-C outside the batch itself ends it as it would end any program."""
    try:
        command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        say("", err=True)
        sys.exit(EXIT_INTERRUPTED)
