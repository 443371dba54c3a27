"""A kill campaign over jobs in containers: daemons, shims, containers and their runtime's processes are killed at
random moments. The truth is that of `chaos.campaign`; containers that are left over are counted as well."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.campaign import EPOCHS, SCRIPT, Campaign
from containers.images import python
from containers.jobs import containers_of, write_config
from swell.shim import processes as proc

RUNTIME = (b"podman", b"conmon")


@dataclass(kw_only=True)
class ContainerCampaign(Campaign):
    container_kills: int = 0
    runtime_kills: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        write_config(self.home, (str(self.truth),))
        self.counts |= {"container_kills": 0, "runtime_kills": 0}

    def _round(self, number: int) -> None:
        super()._round(number)
        for kind, of in (("container_kills", self.container_kills), ("runtime_kills", self.runtime_kills)):
            for _ in range(of * (number + 1) // self.daemon_kills - of * number // self.daemon_kills):
                self._strike_inside(kind)

    def _submit(self, number: int) -> None:
        training = number % 4 == 0
        env = {"TRUTH": str(self.truth), "TOKEN": self.token, "SECONDS_": f"{self.rng.uniform(0.1, 0.8):.2f}"}
        job: dict[str, Any] = {"name": "short", "gpus": 1, "cpus": 0, "grace": 1, "env": env, "image": python()}
        job |= {"mounts": [f"{self.truth}:{self.truth}"], "retries": 1000, "backoff": 0.1}
        if training:
            env |= {"EPOCHS": str(EPOCHS)}
            job |= {"command": ["python", str(self.truth / "train.py")], "epochs": EPOCHS, "uses_library": True}
        else:
            job |= {"command": ["/bin/sh", "-c", SCRIPT], "preemptible": "never"}
        made = self._ask("POST", "/v1/jobs", job, {"Idempotency-Key": f"k{number}"})
        self.submitted[int(made["jobs"][0]["id"])] = training

    def _strike_inside(self, kind: str) -> None:
        """SIGKILL the first process of a container, or one of its runtime's processes."""
        for tries in range(500):
            claims = [path for path in self.home.glob("runs/*/0/claim") if not (path.parent / "swept").exists()]
            found = [pid for claim in claims for pid in (_runtime if kind == "runtime_kills" else _first)(claim)]
            if found and self._end(self.rng.choice(found)):
                self.counts[kind] += 1
                return
            if self.served.process is not None and self.served.process.poll() is not None:
                self._revive()
            elif not claims and tries % 50 == 49:
                self._submit(len(self.submitted))
            time.sleep(0.02)

    def _end(self, pid: int) -> bool:
        stat = proc.stat_of(pid)
        return stat is not None and stat.alive and proc.send(pid, stat.start, signal.SIGKILL)

    def _repeated_tail(self, job: int) -> bool:
        """A container that was killed in its tail is rightly tried again; here nobody knows which were."""
        return False

    def _orphans(self) -> int:
        left = super()._orphans()
        give_up = time.monotonic() + 30
        while (names := containers_of(self.home)) and time.monotonic() < give_up:
            time.sleep(0.3)
        return left + len(names)


def _first(claim: Path) -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        return [int((claim.parent / "pid").read_text())]
    return []


def _runtime(claim: Path) -> list[int]:
    """Below the shim of this claim only: others run the same programs."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        shim = int(json.loads(claim.read_text())["pid"])
        return [pid for pid in proc.descendants(shim) if _name(pid).startswith(RUNTIME)]
    return []


def _name(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_bytes()
    return b""
