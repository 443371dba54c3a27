"""How people name a machine: user@host[:port], an alias of ~/.ssh/config, or a file of four lines."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swell.core.errors import SwellError

KEPT_IN = "~/.local/var"
FIELDS = {"username": "user", "ip": "host", "port": "port", "ssh_key_path": "key_file"}
"""Of a machine file, and what the daemon calls them."""
_TARGET = re.compile(r"(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:@]+))(?::(?P<port>\d+))?")


class NotATarget(SwellError):
    """What was written names no machine; the message says what to write."""


def machine(target: str) -> dict[str, Any]:
    """host, and what else the target says: user, port, key_file, name. A file is looked for as the path, with .yaml,
    and both in ~/.local/var; user@host never is one."""
    path = None if "@" in target else _file(target)
    if path is None and "@" not in target and ("/" in target or target.endswith(".yaml")):
        raise NotATarget(f"there is no machine file {target}, neither here nor in {KEPT_IN}; check its name")
    return from_file(path) if path is not None else parse(target)


def parse(target: str) -> dict[str, Any]:
    found = _TARGET.fullmatch(target)
    if found is None or target.startswith("-"):
        raise NotATarget(f"{target!r} names no machine; write user@host, user@host:port or an alias of ~/.ssh/config")
    host = found["six"] or found["host"]
    said = {"host": host, "user": found["user"], "port": found["port"] and _port(found["port"], target)}
    return {"name": short_name(host), **{key: value for key, value in said.items() if value}}


def short_name(host: str) -> str:
    """`gpu1.lab.example` is called gpu1; an address is called by itself."""
    try:
        return ipaddress.ip_address(host).compressed.replace(":", "-").strip("-")
    except ValueError:
        return host.split(".")[0]


def _file(target: str) -> Path | None:
    here, kept = Path(target).expanduser(), Path(KEPT_IN).expanduser() / target
    for path in (here, here.with_name(f"{here.name}.yaml"), kept, kept.with_name(f"{kept.name}.yaml")):
        if path.is_file():
            return path
    return None


def from_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise NotATarget(f"{path} is no machine file: {error}") from error
    if not isinstance(found, Mapping) or not {"username", "ip"} <= set(found) <= set(FIELDS):
        raise NotATarget(
            f"{path} is no machine file; it has the lines {', '.join(FIELDS)}, of which the first two must be"
        )
    said = {FIELDS[key]: value for key, value in found.items() if value is not None}
    port = {"port": _port(said["port"], str(path))} if "port" in said else {}
    return {"name": path.name.removesuffix(".yaml"), **{key: str(value) for key, value in said.items()}, **port}


def _port(value: object, where: str) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or not 1 <= int(str(value)) <= 65535:
        raise NotATarget(f"{where}: {value!r} is no port; a port is a number from 1 to 65535")
    return int(str(value))
