"""What people type who come from other schedulers, and the words that do it here. `cli.main` asks it first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ALSO: Mapping[str, str] = {
    "apply": "submit",
    "create": "submit",
    "daemon": "up",
    "delete": "rm",
    "describe": "show",
    "gpus": "nodes",
    "hold": "pause",
    "info": "show",
    "jobs": "ls",
    "kill": "cancel",
    "limits": "quota",
    "list": "ls",
    "log": "logs",
    "modify": "update",
    "prune": "rm",
    "ps": "ls",
    "queue": "ls",
    "release": "resume",
    "remove": "rm",
    "restart": "requeue",
    "sacct": "history",
    "sbatch": "submit",
    "scancel": "cancel",
    "set": "update",
    "simulate": "sim",
    "sinfo": "nodes",
    "squeue": "ls",
    "start": "up",
    "status": "ls",
    "stop": "cancel",
    "why": "explain",
}
_THINGS: Mapping[str, str] = {"job": "ls", "jobs": "ls", "node": "nodes", "nodes": "nodes", "events": "events"}
"""What `get` lists."""


def ours(typed: Sequence[str]) -> list[str]:
    """The same in our words; what is ours already stays as it is."""
    verb, *rest = typed
    if verb == "get":
        thing, *which = rest or ["jobs"]
        return ["show", *which] if _named(which) else [_THINGS.get(thing, "show"), *(rest[1:] or _unknown(thing))]
    if verb in ("create", "apply"):
        return ["submit", *(word for word in rest if word not in ("-f", "--filename"))]
    if verb == "status" and _named(rest):
        return ["show", *rest]
    return [ALSO.get(verb, verb), *rest]


def _named(words: Sequence[str]) -> bool:
    """A job is named, not only options."""
    return bool(words) and not words[0].startswith("-")


def _unknown(thing: str) -> list[str]:
    return [] if thing in _THINGS else [thing]
