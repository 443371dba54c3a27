"""`swell`: one file a verb, each imported only when it is used, so that the command line starts fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

import click

from swell import __version__
from swell.cli import elsewhere
from swell.cli.terminal import say
from swell.core.errors import StoreError, SwellError

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 2, 3, 130

VERBS: Mapping[str, tuple[str, str]] = {
    "up": ("swell.cli.up", "Start the daemon in the background."),
    "run": ("swell.cli.run", "Run a command as a job and show its output."),
    "submit": ("swell.cli.submit", "Submit job files."),
    "batch": ("swell.cli.batch", "Run each line of a file as a job; bring results back."),
    "ls": ("swell.cli.ls", "List jobs."),
    "show": ("swell.cli.show", "Show one job, with its attempts."),
    "logs": ("swell.cli.logs", "Show what a job printed."),
    "attach": ("swell.cli.attach", "Watch a job: its log and its state until it has ended."),
    "port-forward": ("swell.cli.port_forward", "Reach a port of a running job from here."),
    "tensorboard": ("swell.cli.tensorboard", "Show what jobs write in TensorBoard while they run."),
    "wait": ("swell.cli.wait", "Wait until jobs have ended."),
    "fetch": ("swell.cli.fetch", "Copy what a job wrote here."),
    "explain": ("swell.cli.explain", "Say why a job waits, or has what it has."),
    "cancel": ("swell.cli.cancel", "Cancel jobs."),
    "rm": ("swell.cli.rm", "Remove ended jobs, with all they left on disk."),
    "update": ("swell.cli.update", "Change GPUs, time limit or priority of a job."),
    "requeue": ("swell.cli.requeue", "Put jobs back into the queue, ended ones too."),
    "exec": ("swell.cli.exec", "Run a command in the environment of a running job."),
    "pause": ("swell.cli.pause", "Stop jobs at their next checkpoint and hold them."),
    "resume": ("swell.cli.resume", "Let paused jobs go on."),
    "priority": ("swell.cli.priority", "Change a job's priority."),
    "what-if": ("swell.cli.what_if", "See what a change would do to the jobs there are."),
    "history": ("swell.cli.history", "List past jobs, with GPU hours per job, user or team."),
    "stats": ("swell.cli.stats", "Sum up: jobs, use of GPUs, completion times, cost of scaling."),
    "top": ("swell.cli.top", "Watch jobs and GPUs live."),
    "ui": ("swell.cli.ui", "Open the dashboard in a browser."),
    "nodes": ("swell.cli.nodes", "List machines and who has their GPUs."),
    "node": ("swell.cli.node", "Add, show, cordon, drain or remove a machine."),
    "policy": ("swell.cli.policy", "Show or change the scheduling policy."),
    "events": ("swell.cli.events", "Show what happened, and what happens."),
    "login": ("swell.cli.login", "Use a daemon elsewhere."),
    "logout": ("swell.cli.login", "Forget the daemon that login remembered."),
    "whoami": ("swell.cli.login", "Show who the daemon takes you for."),
    "user": ("swell.cli.user", "Add, list or remove people who share the daemon."),
    "token": ("swell.cli.token", "Make, list or revoke tokens."),
    "quota": ("swell.cli.quota", "Show your limits and your team's quota."),
    "audit": ("swell.cli.audit", "Show who did what, when, from where."),
    "hooks": ("swell.cli.hooks", "Show where notices go, or send a test."),
    "demo": ("swell.cli.demo", "Watch real trainings share a few slots."),
    "sim": ("swell.cli.sim", "Simulate policies on a workload."),
    "backup": ("swell.cli.backup", "Copy the database, also while the daemon runs."),
    "restore": ("swell.cli.backup", "Put a copy of the database in place."),
    "doctor": ("swell.cli.doctor", "Check this machine and the daemon."),
    "serve": ("swell.cli.serve", "Run the daemon in the foreground."),
    "down": ("swell.cli.down", "Stop the daemon; jobs go on running."),
}

OF_VERBS = ("--home", "--json")
"""Options that most verbs have, and `swell` itself has not."""


class _Lazy(click.Group):
    """Knows its verbs from the table; imports one only to run it or to show its help."""

    def invoke(self, ctx: click.Context) -> object:
        """Ctrl-C ends any verb as it would end any program, without a traceback."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            say("", err=True)
            ctx.exit(EXIT_INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in OF_VERBS:
                raise
            raise click.UsageError(
                f"{error.option_name} goes behind the verb: swell ls {error.option_name}", ctx
            ) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args:
            args = elsewhere.ours(args)
        if args and args[0] == "help":
            args = [*(args[1:2] or [""]), "--help"]
        if args and args[0] == "":
            say(ctx.get_help())
            ctx.exit()
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from swell.core.spelling import nearest

            meant = nearest(args[0], VERBS)
            ctx.fail(
                f"there is no verb {args[0]!r}; {f'did you mean {meant}?' if meant else '`swell help` lists them'}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="swell")
def swell() -> None:
    """Elastic scheduling of deep-learning training.

    Try: swell run --gpus 1-4 -- python train.py
    """


def main() -> None:
    guarded(swell)


def guarded(command: Callable[[], object]) -> None:
    """Run a command; turn what went wrong into a line for people and an exit code."""
    try:
        command()
    except SwellError as error:
        sys.exit(_fail(error))
    except KeyboardInterrupt:  # before a verb has begun
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # `swell ls | head`
        _hush_stdout()
        sys.exit(0)
    except OSError as error:  # a full disk, a directory that may not be read
        say(f"swell: {_of_the_system(error)}", err=True)
        sys.exit(EXIT_FAILED)


def _of_the_system(error: OSError) -> str:
    import os

    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not imported for every command
    except FileNotFoundError:
        return "the directory that you are in was deleted; `cd` to one that is there"
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def _fail(error: SwellError) -> int:
    from swell.client.errors import DaemonUnreachable, Refused

    say(f"swell: {error}", err=True)
    if isinstance(error, DaemonUnreachable):
        return EXIT_UNREACHABLE
    if isinstance(error, StoreError) or (isinstance(error, Refused) and error.status >= 500):
        return EXIT_FAILED
    return EXIT_USAGE


def _hush_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining when it flushes at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
