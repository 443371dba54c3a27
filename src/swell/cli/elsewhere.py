"""What people type who come from other schedulers, and the words that do it here. `cli.main` asks it first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ALSO: Mapping[str, str] = {
    word: verb
    for verb, words in {
        "attach": ("follow", "sattach"),
        "cancel": ("bkill", "kill", "qdel", "scancel", "stop"),
        "down": ("shutdown",),
        "exec": ("bash", "shell", "ssh"),
        "explain": ("why",),
        "fetch": ("download",),
        "history": ("sacct",),
        "logs": ("bpeek", "cat", "log", "output", "tail"),
        "ls": ("bjobs", "jobs", "list", "ps", "qstat", "queue", "squeue", "status"),
        "nodes": ("bhosts", "cluster", "gpu", "gpus", "machine", "machines", "pbsnodes", "sinfo"),
        "pause": ("hold", "suspend"),
        "policy": ("algorithm", "policies"),
        "quota": ("limits",),
        "requeue": ("preempt", "restart", "resubmit", "retry"),
        "resume": ("continue", "release", "unpause"),
        "rm": ("delete", "prune", "remove"),
        "run": ("launch", "srun"),
        "show": ("describe", "info"),
        "sim": ("simulate",),
        "stats": ("sreport",),
        "submit": ("apply", "bsub", "create", "qsub", "sbatch"),
        "top": ("monitor", "watch"),
        "ui": ("dashboard", "web"),
        "up": ("daemon", "init", "start"),
        "update": ("edit", "modify", "resize", "scale", "set"),
    }.items()
    for word in words
}
_WITHIN: Mapping[str, Mapping[str, str]] = {
    "node": {"list": "ls", "rm": "remove", "delete": "remove", "describe": "show", "info": "show", "create": "add"},
    "user": {"list": "ls", "remove": "rm", "delete": "rm", "create": "add", "new": "add"},
    "token": {"list": "ls", "create": "new", "add": "new", "delete": "revoke", "rm": "revoke", "remove": "revoke"},
    "policy": {"set": "", "use": "", "show": "", "get": "", "ls": "", "list": ""},
}
"""What follows these verbs; empty: nothing does, the word is left out."""
_SEVERAL: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "nodes": ("node", ("add", "cordon", "drain", "ls", "lost", "remove", "show", "uncordon")),
    "users": ("user", ("add", "ls", "rm")),
    "tokens": ("token", ("ls", "new", "revoke")),
}
"""A plural, whose it is, and what may follow."""
_JOBS, _NODES = ("job", "jobs", "pod", "pods"), ("node", "nodes")
_THINGS: Mapping[str, str] = {**dict.fromkeys(_JOBS, "ls"), **dict.fromkeys(_NODES, "nodes"), "events": "events"}
"""What `get` lists."""


def ours(typed: Sequence[str]) -> list[str]:
    """The same in our words; what is ours already stays as it is."""
    verb, *rest = typed
    if verb == "get":
        thing, *which = rest or ["jobs"]
        return ["show", *which] if _named(which) else [_THINGS.get(thing, "show"), *(rest[1:] or _unknown(thing))]
    if verb in ("create", "apply"):
        return ["submit", *(word for word in rest if word not in ("-f", "--filename"))]
    if verb in _SEVERAL:
        return _of_one(*_SEVERAL[verb], typed)
    if verb in ("resize", "scale") and len(rest) > 1:
        return [
            "update",
            rest[0],
            *(word if "=" in word or word.startswith("-") else f"gpus={word}" for word in rest[1:]),
        ]
    if verb == "version":
        return ["--version"]
    if verb == "scontrol" and rest:
        return _scontrol(rest)
    if rest and (word := _WITHIN.get(verb, {}).get(rest[0])) is not None:
        return [verb, *([word] if word else []), *rest[1:]]
    if verb == "status" and _named(rest):
        return ["show", *rest]
    return [ALSO.get(verb, verb), *rest]


def _of_one(one: str, follow: Sequence[str], typed: Sequence[str]) -> list[str]:
    """`users add x` is `user add x`; alone it lists them, as `nodes` does by itself."""
    plural, *rest = typed
    if rest and _WITHIN[one].get(rest[0], rest[0]) in follow:
        return ours([one, *rest])
    return list(typed) if plural == "nodes" else [one, "ls", *rest]


def _scontrol(words: Sequence[str]) -> list[str]:
    """show job 5, hold 5, update job 5 gpus=2."""
    verb, *rest = words
    if rest and rest[0] in _NODES and verb == "show":
        return ["node", "show", *rest[1:]] if rest[1:] else ["nodes"]
    rest = rest[1:] if rest and rest[0] in _JOBS else rest
    return ours([verb, *rest]) if rest or verb != "show" else ["ls"]


def _named(words: Sequence[str]) -> bool:
    """A job is named, not only options."""
    return bool(words) and not words[0].startswith("-")


def _unknown(thing: str) -> list[str]:
    return [] if thing in _THINGS else [thing]
