"""What `hosts` keeps about a run that is not over, and the times it goes by. Nothing here acts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swell.executors.verdict import Epochs, Roster, Sight


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Times in seconds."""

    poll_s: float = 1.5  # locks and records are read this often, hints or not
    inventory_s: float = 3.0
    clean_s: float = 2.0  # how long a GPU's memory may take to be free before the end of its run is reported
    ask_again_s: float = 5.0  # a worker without a claim is asked for again
    ask_times: int = 4
    answer_s: float = 30.0  # a machine that has not answered a call by then is out of reach
    straggler_s: float = 5.0  # from the first failure in a gang to SIGTERM for the others
    report_s: float = 2.0  # how long a training's own report may take before its record is reported instead
    preparing_s: float = 3.0  # least time between two reports of how far the fetching of an image is
    force_s: float = 5.0  # a shim that was asked to kill its worker has so long; then it is done past it


@dataclass(slots=True)
class Tracked:
    """A run that is not over, as far as we know."""

    roster: Roster
    requests: Mapping[int, dict[str, Any]] = field(default_factory=dict)  # empty for runs that were only adopted
    sights: dict[str, Sight] = field(default_factory=dict)  # the latest one at each of its places
    untouched: bool = True  # report it also if it was never wholly started
    preparing: tuple[str, float] = ("", 0.0)  # as it was last reported, and when (monotonic)
    up_told: bool = False
    up_s: float = 0.0  # as it was reported: no later time may lie before it
    looked: bool = False
    epochs: Epochs | None = None  # as last seen in its own record
    epochs_s: float = 0.0  # monotonic, since when
    epochs_told: bool = True
    failed: str = ""  # why it could not be started; never the job's fault: that is in a worker's exit record
    withdrawn: bool = False  # refused before a shim was asked for: there is nothing that could start
    begun: bool = False  # a shim was asked for, or may have been
    asked_s: float = 0.0  # monotonic
    asked: int = 0
    broken_s: float | None = None  # monotonic, when its gang broke
    told_rest: bool = False
    kill_s: float | None = None  # monotonic, when its shims were last asked, or forced, to kill everything
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by who launches or signals it
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)  # its machines are watched side by side

    def could_not(self, be_done: str, error: OSError) -> None:
        self.failed = f"the run could not be {be_done}: {error}; see `swell doctor`"
        self.withdrawn = not self.begun
