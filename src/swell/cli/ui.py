"""`swell ui`: the dashboard in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from swell.cli.common import client, connected, print_json
from swell.cli.terminal import say
from swell.client.http import Client


@click.command()
@click.option("--no-browser", is_flag=True, help="Only print the address; it works once, for a minute.")
@connected
def ui(home: Path | None, as_json: bool, no_browser: bool) -> None:
    """Open the dashboard.

    The address holds a code that works once within a minute: the token never gets into the browser's history.
    """
    daemon = client(home)
    url = page_of(daemon)
    if as_json:
        print_json({"url": url})
        return
    if no_browser or not webbrowser.open(url):
        say(f"open within a minute: {url}")
    else:
        say(f"the dashboard is at {daemon.address.url}")


def page_of(daemon: Client) -> str:
    """Where the dashboard is, with a code that lets one page in."""
    return f"{daemon.address.url}/#code={daemon.post('/v1/ui/codes')['code']}"
