"""`swell serve`: the daemon in the foreground."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from swell.cli.common import home_option
from swell.cli.numbers import PORT

MAX_SLOTS = 1024


class Slots(click.ParamType[int | str]):
    """A number of slots, or `auto`."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "auto":
            return "auto"
        if not (str(value).isdecimal() and int(value) <= MAX_SLOTS):
            self.fail(f"{value!r} is not a number of slots; write 0 to {MAX_SLOTS}, or auto to find GPUs", param, ctx)
        return int(value)


def daemon_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What `serve` and `up` both take."""
    options = (
        click.option(
            "--gpus",
            type=Slots(),
            help="Number of slots to declare instead of looking for GPUs; kept for later starts. auto: look for GPUs.",
        ),
        click.option(
            "--policy", help="Scheduling policy of the first start; later `swell policy` or `swell up` sets it."
        ),
        click.option("--placer", help="Which GPUs: the placer of the first start."),
        click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
        click.option("--advertise", help="Name or address that others reach it by.  [default: --host]"),
        click.option(
            "--tls",
            is_flag=True,
            default=None,
            help="Encrypt what comes over --host. The first start makes a certificate, which `swell login` pins.",
        ),
        click.option(
            "--insecure-listen",
            is_flag=True,
            default=None,
            help="Allow a --host that other machines can reach, without encryption.",
        ),
        click.option(
            "--socket",
            help="Also listen on this Unix socket, such as /run/swell/socket: users of this machine need no token.",
        ),
        click.option("--port", type=PORT, help="Port to listen on.  [default: any free one]"),
        click.option("--kubernetes-context", help="Nodes of the cluster of this context of the kubeconfig take part."),
        click.option("--kubeconfig", help="The kubeconfig with the cluster.  [default: $KUBECONFIG, ~/.kube/config]"),
        click.option("--database", help="postgresql://… instead of SQLite in the home directory."),
        click.option(
            "--shared", help="Directory that all daemons of the database see: files, logs, token.  [default: the home]"
        ),
        click.option(
            "--standby",
            is_flag=True,
            default=None,
            help="Wait while another daemon has the database, and take over within seconds when it is gone.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@home_option
@daemon_options
def serve(home: Path | None, **options: Any) -> None:
    """Run the daemon in the foreground. SIGTERM or Ctrl-C ends it; jobs go on running."""
    from swell.config import load_config
    from swell.serve import main

    sys.exit(main(load_config(home, options)))
