"""Turns the facts about a machine into checks with fixes for people, and into its node. Pure."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from swell.core.resources import Gpu, Node, Ssh, fingerprint
from swell.executors.nvml import short_type
from swell.ports import Check, Verdict
from swell.shim.gpus import number, rows_in

Fact = Mapping[str, Any]

DEFAULT_ROOT = "~/.swell"
OLDEST_PYTHON = (3, 8)
CLOCK_S = 5.0
"""A difference of clocks above this is reported; it affects times in logs and of files, not leases."""
LOW_MIB, TOO_LOW_MIB = 10 * 1024, 512
BUSY_MIB = 512
"""A GPU with more used memory than this counts as in use even if no process is shown (containers hide theirs)."""
GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used")
APP_FIELDS = ("gpu_uuid", "pid")
"""The fields that `probe` requests from `nvidia-smi`."""
NETWORK = re.compile(
    r"nfs\d?|cifs|smb.*|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|orangefs|pvfs2|panfs|fuse\.(?!overlay).*"
)
"""File systems on which locks can be lost, or are shared with other machines."""


def where(ssh: Ssh) -> str:
    if ssh.config_host and ssh.config_host != ssh.host:
        return f"{ssh.config_host} ({ssh.host})"
    return ssh.host if ssh.port == 22 else f"{ssh.host}:{ssh.port}"


def host_key(ssh: Ssh, *, pinned_before: bool) -> Check:
    pinned = "as pinned before" if pinned_before else "pinned: from now on no other is accepted"
    return Check(name="host key", verdict=Verdict.OK, words=f"{fingerprint(ssh.host_key)} {pinned}")


def login_fix(ssh: Ssh, error: Exception) -> str:
    """What to do about a failed login, from the exception of the library."""
    cause, kind = error.__cause__, type(error.__cause__).__name__
    port, user = f"-p {ssh.port} " if ssh.port != 22 else "", f"{ssh.user}@" if ssh.user else ""
    command = f"ssh {port}{user}{ssh.config_host or ssh.host}"
    if isinstance(cause, ImportError):
        return f"run that with the pip of the environment that runs the daemon ({sys.prefix}), then add it again"
    if isinstance(cause, socket.gaierror):
        return "check the spelling; give the address, or an alias from ~/.ssh/config of the daemon's machine"
    if isinstance(cause, ConnectionRefusedError):
        return f"see that sshd runs there and listens on port {ssh.port}; another port: user@host:PORT"
    if isinstance(cause, TimeoutError):
        return f"see that it is switched on and that no firewall or VPN is in between: `{command}`"
    if kind == "HostKeyNotVerifiable":
        return "ask its administrator whether the key changed; if it did, remove the machine and add it again"
    if kind == "PermissionDenied":
        key = f"-i {ssh.key_file}.pub " if ssh.key_file else ""
        return f"check the user name; then let the key in: ssh-copy-id {key}{port}{user}{ssh.host}"
    if kind in ("KeyImportError", "KeyEncryptionError", "FileNotFoundError", "PermissionError"):
        return "name a private key without a passphrase that the daemon can read: --key FILE"
    return f"see whether `{command}` works on the daemon's machine, as the user it runs as"


def of(fact: Fact, now_s: float) -> Sequence[Check]:
    """The checks from one fact of the probe; none for facts that only describe."""
    kind = fact["fact"]
    if kind == "chatter":
        return [_chatter(fact["printed"])]
    if kind == "python":
        return [_python(fact)]
    if kind == "clock":
        return [_clock(fact["now_s"] - now_s)]
    if kind == "disk":
        return [_disk(fact), _space(fact)]
    if kind == "gpus":
        return [_gpus(fact)]
    return []


def no_python(ssh: Ssh, status: int | None, said: str) -> Check:
    fix = "install Python 3.8 or newer, or name one that is there: --python /path/to/python3"
    version = re.fullmatch(r"Python (\d+)\.(\d+).*", said)
    if version and (int(version[1]), int(version[2])) < OLDEST_PYTHON:
        return Check(name="python3", verdict=Verdict.FAILED, words=f"{said} is older than 3.8", fix=fix)
    missing = status == 127 or not said
    words = f"there is no {ssh.python} there" if missing else f"{ssh.python} cannot run what it was sent: {said[:200]}"
    return Check(name="python3", verdict=Verdict.FAILED, words=words, fix=fix)


def _python(fact: Fact) -> Check:
    version = ".".join(map(str, fact["version"]))
    if tuple(fact["version"]) >= OLDEST_PYTHON:
        return Check(name="python3", verdict=Verdict.OK, words=version)
    fix = "name a newer one: --python /path/to/python3"
    return Check(name="python3", verdict=Verdict.FAILED, words=f"{version} is older than 3.8", fix=fix)


def _clock(ahead_s: float) -> Check:
    if abs(ahead_s) < CLOCK_S:
        return Check(name="clock", verdict=Verdict.OK, words="agrees with the daemon's")
    which = "ahead of" if ahead_s > 0 else "behind"
    words = f"{abs(ahead_s):.0f} s {which} the daemon's: times in logs and of files will not fit together"
    return Check(name="clock", verdict=Verdict.NOTE, words=words, fix="set it by NTP (chrony, systemd-timesyncd)")


def _disk(fact: Fact) -> Check:
    path, kind = fact["path"], fact["kind"]
    if fact["trouble"]:
        words, fix = f"{path} cannot be written: {fact['trouble']}", _other_root(fact)
    elif NETWORK.fullmatch(kind):
        words = f"{path} lies on a network file system ({kind}), where locks can be lost"
        fix = _other_root(fact)
    else:
        return Check(name="disk", verdict=Verdict.OK, words=f"{path} is local ({kind})")
    return Check(name="disk", verdict=Verdict.FAILED, words=words, fix=fix)


def _other_root(fact: Fact) -> str:
    """The largest local directory that can be written."""
    fit = [place for place in fact["elsewhere"] if not place["trouble"] and not NETWORK.fullmatch(place["kind"])]
    lasting = [place for place in fit if place["kind"] != "tmpfs"]
    best = max(lasting or fit, key=lambda place: int(place["free_mib"]), default=None)
    example = f"{best['path']}/swell" if best else "/path/on/a/local/disk"
    return f"name a directory on a local disk of that machine: --root {example}"


def _space(fact: Fact) -> Check:
    amount = f"{fact['free_mib'] / 1024:.1f} GiB" if fact["free_mib"] >= 1024 else f"{fact['free_mib']} MiB"
    free = f"{amount} free for working files, checkpoints and logs"
    if fact["free_mib"] >= LOW_MIB:
        return Check(name="space", verdict=Verdict.OK, words=free)
    fix = f"free some, or name a directory with more: {_other_root(fact).rpartition(': ')[2]}"
    verdict = Verdict.FAILED if fact["free_mib"] < TOO_LOW_MIB else Verdict.NOTE
    return Check(name="space", verdict=verdict, words=f"only {free}", fix=fix)


def no_session(said: str) -> Check:
    fix = "set MaxSessions in /etc/ssh/sshd_config of that machine to 1 or more (10 is the default), then reload sshd"
    return Check(name="sessions", verdict=Verdict.FAILED, words=f"sshd opens no session: {said}", fix=fix)


def _chatter(printed: str) -> Check:
    """The check of what a login prints: the agent uses its standard output, so other output there would corrupt its
    answers. That this check runs proves that sshd opens a session; one at a time is needed."""
    if not printed.strip():
        return Check(name="sessions", verdict=Verdict.OK, words="commands run; one session at a time is needed")
    words = f"the shell prints something before each command: {' '.join(printed.split())[:80]!r}"
    fix = "let ~/.bashrc (or the like) there print only when a person logs in: [ -t 1 ] || return, as its first line"
    return Check(name="sessions", verdict=Verdict.FAILED, words=words, fix=fix)


def survival(alive: bool, user: str) -> Check:
    if alive:
        return Check(name="logout", verdict=Verdict.OK, words="processes go on when the login that started them ends")
    words = "processes are killed when the login that started them ends, and jobs would be with it"
    fix = f"loginctl enable-linger {user}".rstrip() + ", or KillUserProcesses=no in /etc/systemd/logind.conf"
    return Check(name="logout", verdict=Verdict.FAILED, words=words, fix=f"on that machine: {fix}")


def _gpus(fact: Fact) -> Check:
    if fact["code"] == 127:
        return Check(name="gpus", verdict=Verdict.NOTE, words="none (no nvidia-smi); jobs without GPUs can run there")
    if fact["code"]:
        words = f"none: nvidia-smi fails ({' '.join(str(fact['rows']).split())[:160]})"
        return Check(name="gpus", verdict=Verdict.NOTE, words=words, fix="mend the driver; GPUs are seen when it works")
    found = gpus_in(fact)
    busy = sum(1 for gpu in found if gpu.others)
    if not busy:
        return Check(name="gpus", verdict=Verdict.OK, words=_listed(found))
    words = f"{_listed(found)}; {busy} of {len(found)} GPUs busy with others' work, left alone"
    return Check(name="gpus", verdict=Verdict.NOTE, words=words)


def _listed(gpus: Sequence[Gpu]) -> str:
    kinds = dict.fromkeys((gpu.type, gpu.memory_mib) for gpu in gpus)
    count = {kind: sum(1 for gpu in gpus if (gpu.type, gpu.memory_mib) == kind) for kind in kinds}
    return ", ".join(f"{n} x {kind} ({mib / 1024:.0f} GiB)" for (kind, mib), n in count.items()) or "none"


def gpus_in(fact: Fact) -> tuple[Gpu, ...]:
    """The GPUs of a new machine. No run of Swell is there yet, so every process on a GPU counts as others'."""
    taken = {row["gpu_uuid"] for row in rows_in(str(fact["apps"]).splitlines(), APP_FIELDS)}
    rows = rows_in(str(fact["rows"]).splitlines(), GPU_FIELDS)
    return tuple(_gpu(row, taken) for row in rows if row["index"].isdigit())


def _gpu(row: Mapping[str, str], taken: set[str]) -> Gpu:
    used_mib = number(row["memory.used"]) or 0
    others = row["uuid"] in taken or used_mib > BUSY_MIB
    memory_mib = used_mib if others else 0
    return Gpu(
        index=int(row["index"]),
        type=short_type(row["name"]),
        memory_mib=number(row["memory.total"]) or 0,
        uuid=row["uuid"],
        others=others,
        others_memory_mib=memory_mib,
    )


def as_found(declared: Node, facts: Iterable[Fact]) -> Node:
    """The node: declared fields as declared, the others as the machine reports them."""
    by_kind = {fact["fact"]: fact for fact in facts}
    size, reached = by_kind["size"], by_kind["address"]
    measured = {"gpus": gpus_in(by_kind["gpus"]), "cpus": size["cpus"], "memory_mib": size["memory_mib"]}
    changed = {name: value for name, value in measured.items() if name not in declared.declared}
    address = reached["address"] or declared.address
    return replace(declared, address=address, interface=reached["interface"], **changed)
