"""The daemon's clock: seconds since the epoch, but monotonic, so that setting the system clock never breaks a duration.

`now_s` is CLOCK_BOOTTIME plus an offset that an anchor file in the home keeps over restarts of the daemon. After a boot
it continues from the system clock, or from the last anchor if that is later. When the two clocks differ, `now_s`
approaches the system clock at a rate of at most `SLEW` (ADR "a clock that nobody sets").
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from swell.shim.files import boot_id, boot_s

log = logging.getLogger(__name__)

SLEW = 0.005
"""Maximum relative error of a duration while `now_s` approaches the system clock."""
KEEP_S = 30.0
"""The anchor file is rewritten this often."""
NOTICED_S = 5.0
"""A new difference from the system clock of at least this much is logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    boot: str
    boot_s: float
    now_s: float
    off_s: float  # the system clock was ahead by this

    def at_s(self, boot_s: float) -> float:
        passed_s = boot_s - self.boot_s
        return self.now_s + passed_s + math.copysign(min(abs(self.off_s), SLEW * max(0.0, passed_s)), self.off_s)


class SystemClock:
    """See `ports.Clock`. `path`: the anchor file; without one every start begins at the system clock."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        wall_s: Callable[[], float] = time.time,
        passed_s: Callable[[], float] = boot_s,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self._path = path
        self._wall_s = wall_s
        self._passed_s = passed_s
        self._boot = boot
        self._anchor = self._begin()
        self._noticed = False
        self.note()

    def now_s(self) -> float:
        return self._anchor.at_s(self._passed_s())

    def monotonic_s(self) -> float:
        return self._passed_s()

    @property
    def off_s(self) -> float:
        """Seconds by which the system clock is ahead of `now_s`."""
        return self._wall_s() - self.now_s()

    async def keep(self) -> None:
        """Rewrites the anchor file and logs changes of the system clock, until cancelled."""
        while True:
            await asyncio.sleep(KEEP_S)
            await asyncio.to_thread(self.note)

    def note(self) -> None:
        """Set the anchor to the present time and write it to its file."""
        passed_s = self._passed_s()
        now_s = self._anchor.at_s(passed_s)
        self._anchor = Anchor(boot=self._boot(), boot_s=passed_s, now_s=now_s, off_s=self._wall_s() - now_s)
        if (abs(self._anchor.off_s) > NOTICED_S) != self._noticed:
            self._noticed = not self._noticed
            log.warning(
                "the machine's clock is %.0f s ahead of the daemon's; `swell doctor` says more", self._anchor.off_s
            )
        if self._path is not None:
            try:
                _write(self._path, json.dumps(asdict(self._anchor)))
            except OSError as error:
                log.warning("where the daemon's clock stands could not be kept in %s: %s", self._path, error)

    def _begin(self) -> Anchor:
        passed_s, wall_s, boot = self._passed_s(), self._wall_s(), self._boot()
        kept = _read(self._path) if self._path is not None else None
        now_s = wall_s
        if kept is not None and kept.boot == boot and kept.boot_s <= passed_s:
            now_s = kept.at_s(passed_s)
        elif kept is not None:
            now_s = max(kept.now_s, wall_s)
        return Anchor(boot=boot, boot_s=passed_s, now_s=now_s, off_s=wall_s - now_s)


def _read(path: Path) -> Anchor | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        numbers = {name: float(found[name]) for name in ("boot_s", "now_s", "off_s")}
        return Anchor(boot=str(found["boot"]), **numbers) if all(map(math.isfinite, numbers.values())) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s); the daemon's clock begins with the machine's", path, error)
        return None


def _write(path: Path, text: str) -> None:
    """Write the file atomically."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
