"""Checks a machine over SSH before it is added; each check is a value, yielded as soon as it is made.

The daemon connects as it will later. The first connection pins the host key, unless one is pinned already. All checks
are made even if one fails, so that a person can fix everything at once; only without a login no others are possible.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from swell.core.resources import Node, Ssh
from swell.executors.ssh import findings
from swell.executors.ssh.connection import Refusal, connect, fetch_host_key
from swell.executors.ssh.findings import DEFAULT_ROOT
from swell.executors.transport import Unreachable
from swell.ports import Check, Verdict

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

MARK = "swell-probe:"
LOGOUT_S = 1.0
"""Time for the system to end the processes of a login after it, if it is configured to."""
PROBE_S = 60.0


async def check_machine(declared: Node) -> AsyncIterator[Check | Node]:
    """Yields the checks, then, if none failed, the declared machine with its host key, address and inventory."""
    ssh = declared.ssh
    assert ssh is not None
    ok = True
    found: list[Mapping[str, Any]] = []
    try:
        who, ssh = await _login(ssh)
        yield Check(name="ssh", verdict=Verdict.OK, words=f"logged in as {who} at {findings.where(ssh)}")
        yield findings.host_key(ssh, pinned_before=bool(declared.ssh and declared.ssh.host_key))
        connection = await connect(ssh)
    except (Refusal, Unreachable) as error:
        yield Check(name="ssh", verdict=Verdict.FAILED, words=str(error), fix=findings.login_fix(ssh, error))
        return
    async for item in _checks(connection, ssh):
        if isinstance(item, Check):
            ok = ok and item.verdict is not Verdict.FAILED
            yield item
        else:
            found.append(item)
    if ok:
        yield findings.as_found(replace(declared, ssh=ssh), found)


async def _login(ssh: Ssh) -> tuple[str, Ssh]:
    """Logs in. Returns the user and `ssh` with the host key that is trusted from now on. Raises as `connect`."""
    trusted = ssh if ssh.host_key else replace(ssh, host_key=await fetch_host_key(ssh))
    async with await connect(trusted) as connection:
        who = str(connection.get_extra_info("username") or ssh.user)
    return who, trusted


async def _checks(connection: SSHClientConnection, ssh: Ssh) -> AsyncIterator[Check | Mapping[str, Any]]:
    """Checks by one login, and by a second one what remained of the first. Yields the facts too, for `as_found`."""
    left: Mapping[str, Any] = {}
    try:
        told = False
        async for fact in _facts(connection, ssh, ssh.root or DEFAULT_ROOT):
            told = True
            left = fact if fact["fact"] == "left" else left
            yield fact
            for check in findings.of(fact, time.time()):
                yield check
        if not told:
            yield await _no_python(connection, ssh)
            return
    except _not_opened() as error:
        yield findings.no_session(str(error))
        return
    except _lost() as error:
        yield Check(name="ssh", verdict=Verdict.FAILED, words=f"the connection was lost: {error}", fix="try again")
        return
    finally:
        connection.close()
        await connection.wait_closed()
    yield await _survival(ssh, left)


async def _facts(connection: SSHClientConnection, ssh: Ssh, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """The facts that the probe prints. Its text goes to standard input; a shell gets only fixed words and quoted
    arguments. What the shell itself printed before is a fact too."""
    source = (files(__package__) / "probe.py").read_text(encoding="utf-8")
    command = shlex.join([ssh.python, "-IS", "-", *arguments])
    async with (
        asyncio.timeout(PROBE_S),
        connection.create_process(command, encoding="utf-8", errors="replace") as probe,
    ):
        probe.stdin.write(source)
        probe.stdin.write_eof()
        chatter: list[str] | None = []
        async for line in probe.stdout:
            if not line.startswith(MARK):
                chatter = None if chatter is None else [*chatter, line]
                continue
            if chatter is not None:
                yield {"fact": "chatter", "printed": "".join(chatter)}
                chatter = None
            fact: dict[str, Any] = json.loads(line.removeprefix(MARK))
            yield fact


async def _no_python(connection: SSHClientConnection, ssh: Ssh) -> Check:
    """The check after a probe that printed nothing: Python is missing there, or too old."""
    command = f"{shlex.join([ssh.python, '--version'])} 2>&1"
    done = await connection.run(command, encoding="utf-8", errors="replace")
    said = str(done.stdout or "").strip()
    return findings.no_python(ssh, done.exit_status, said)


def _not_opened() -> type[Exception]:
    import asyncssh

    return asyncssh.ChannelOpenError


def _lost() -> tuple[type[Exception], ...]:
    import asyncssh

    return asyncssh.Error, OSError, ValueError, KeyError


async def _survival(ssh: Ssh, left: Mapping[str, Any]) -> Check:
    """Whether a process survives the end of its login: tries it with the process that the first login left."""
    await asyncio.sleep(LOGOUT_S)
    try:
        async with await connect(ssh) as connection:
            arguments = ("survived", str(left["pid"]), str(left["start"]))
            facts = [fact async for fact in _facts(connection, ssh, *arguments)]
    except _lost() as error:
        words = f"a second login failed: {error}"
        return Check(name="logout", verdict=Verdict.FAILED, words=words, fix="try again")
    return findings.survival(any(fact.get("alive") for fact in facts), ssh.user)
