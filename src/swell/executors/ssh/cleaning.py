"""Deletes the directory of this cluster, and nothing else, on a machine that was removed."""

from __future__ import annotations

import asyncio
import shlex

from swell.core.resources import Ssh
from swell.executors.ssh.connection import Refusal, connect
from swell.executors.ssh.findings import DEFAULT_ROOT, where
from swell.executors.transport import Unreachable
from swell.ports import Answer, Done, Refused, Unknown

CLEAN_S = 60.0
_PROGRAM = """
import os, shutil, sys, time
root, cluster = os.path.expanduser(sys.argv[1]), sys.argv[2]
place = os.path.join(root, cluster)
foreign = os.path.join(place, "foreign")
deadline = time.monotonic() + 10
while os.path.isdir(place) and time.monotonic() < deadline:  # the agent that is just ending may still write
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if path == foreign and os.listdir(foreign):
            continue
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    try:
        os.rmdir(place)
    except OSError:
        if os.listdir(place) == ["foreign"]:
            break
        time.sleep(0.2)
left = os.listdir(place) if os.path.isdir(place) else []
if not left and os.path.isdir(root) and not os.listdir(root):
    os.rmdir(root)
print("swell-left:" + ",".join(left))
"""


async def clean_machine(ssh: Ssh, cluster_id: str) -> Answer:
    """Files that another database left (`foreign`) are never deleted."""
    root = ssh.root or DEFAULT_ROOT
    by_hand = f"delete {root}/{cluster_id} there by hand"
    try:
        async with asyncio.timeout(CLEAN_S), await connect(ssh) as connection:
            command = shlex.join([ssh.python, "-IS", "-", root, cluster_id])
            done = await connection.run(command, input=_PROGRAM, encoding="utf-8", errors="replace")
    except (Unreachable, TimeoutError) as error:
        return Unknown(why=f"{where(ssh)} does not answer ({error}); {by_hand}")
    except Refusal as error:
        return Refused(why=f"{error}; {by_hand}")
    return _answer(str(done.stdout or ""), str(done.stderr or ""), f"{root}/{cluster_id}", by_hand)


def _answer(printed: str, trouble: str, place: str, by_hand: str) -> Answer:
    left = [line.removeprefix("swell-left:") for line in printed.splitlines() if line.startswith("swell-left:")]
    if left == [""]:
        return Done()
    if left == ["foreign"]:
        return Refused(why=f"{place}/foreign has files of jobs of another database, which Swell never deletes")
    said = left[0] if left else " ".join(trouble.split())[-200:]
    return Refused(why=f"not all could be deleted ({said}); {by_hand}")
