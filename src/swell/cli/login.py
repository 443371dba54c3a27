"""`swell login`, `swell logout`, `swell whoami`."""

from __future__ import annotations

import json
import ssl
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from swell.cli.common import client, connected, print_json
from swell.cli.terminal import say
from swell.client.errors import DaemonUnreachable
from swell.client.find import Address
from swell.client.http import TIMEOUT_S, Client, PinnedConnection
from swell.client.http import fingerprint as fingerprint_of
from swell.home import LOGIN_NAME, default_home, make_directory, write_private


@click.command()
@click.argument("url")
@click.option("--or", "others", multiple=True, metavar="URL", help="Where else it may be: a standby. May be repeated.")
@click.option("--token", help="Better typed when asked, or piped: arguments can be seen by other users.")
@click.option("--fingerprint", default="", help="Of the daemon's certificate, as `swell up --tls` printed it.")
@connected
def login(
    home: Path | None, as_json: bool, url: str, others: tuple[str, ...], token: str | None, fingerprint: str
) -> None:
    """Use the daemon at URL from now on: https://host:port, unix:/path on this machine, or in a Kubernetes cluster
    kubernetes://CONTEXT/NAMESPACE/SERVICE:PORT.

    A token is asked for, unless URL is a Unix socket, where the daemon knows who you are.
    """
    pinned = _trusted(url, fingerprint)
    if not url.startswith("unix:") and token is None:
        token = _asked()
    elsewhere = tuple(other.rstrip("/") for other in others)
    address = Address(
        url=url.rstrip("/"), token=(token or "").strip(), local=False, fingerprint=pinned, others=elsewhere
    )
    who = Client(address).get("/v1/whoami")
    folder = (home or default_home()).expanduser()
    make_directory(folder)
    kept = {"url": address.url, "others": elsewhere, "token": address.token, "fingerprint": pinned}
    write_private(folder / LOGIN_NAME, json.dumps(kept))
    if as_json:
        print_json({"url": address.url, **who})
        return
    say(f"logged in at {address.url} as {_described(who)}")


def _asked() -> str:
    """From the terminal, without showing it; else what was piped."""
    if not sys.stdin.isatty():
        return sys.stdin.readline()
    typed: str = click.prompt("token", hide_input=True, err=True)
    return typed


def _trusted(url: str, fingerprint: str) -> str:
    """The fingerprint to pin; empty: this machine's authorities vouch for the daemon, or there is no TLS."""
    if fingerprint or not url.startswith("https:"):
        return fingerprint
    parts = urlsplit(url)
    try:
        with closing(PinnedConnection(parts.hostname or "", parts.port or 443, TIMEOUT_S, "")) as connection:
            connection.connect()
    except ssl.SSLCertVerificationError:
        found = ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=TIMEOUT_S)
        shown = fingerprint_of(ssl.PEM_cert_to_DER_cert(found))
        say(
            f"nobody vouches for {url}. Its certificate is\n  {shown}\nCompare it with what `swell up` printed there.",
            err=True,
        )
        click.confirm("trust it from now on?", abort=True, err=True)
        return shown
    except OSError as error:
        raise DaemonUnreachable(f"{url} does not answer ({error}); check the address") from error
    return ""


@click.command()
@connected
def logout(home: Path | None, as_json: bool) -> None:
    """Forget the daemon that `swell login` remembered; the token stays valid until it is revoked or expires."""
    kept = (home or default_home()).expanduser() / LOGIN_NAME
    known = kept.exists()
    kept.unlink(missing_ok=True)
    if as_json:
        print_json({"removed": str(kept) if known else ""})
    else:
        say(f"removed {kept}" if known else "nothing to forget: `swell login` remembers no daemon here")


@click.command()
@connected
def whoami(home: Path | None, as_json: bool) -> None:
    """Show who the daemon takes you for, and what you may do."""
    who = client(home).get("/v1/whoami")
    if as_json:
        print_json(who)
    else:
        say(_described(who))


def _described(who: dict[str, Any]) -> str:
    if who["by"] == "owner":
        return f"{who['user'] or 'the owner'}, who started the daemon and may do everything"
    team = f" in team {who['team']}" if who["team"] else ""
    return f"{who['user']}, {who['role']}{team} (known by {who['by']})"
