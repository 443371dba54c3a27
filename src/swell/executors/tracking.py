"""The state that `hosts` keeps about a run that has not ended, and its time-outs. Plain values."""

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
    ask_again_s: float = 5.0  # a worker without a claim is requested again
    ask_times: int = 4
    answer_s: float = 30.0  # a machine that has not answered a call by then is unreachable
    straggler_s: float = 5.0  # from the first failure in a gang to SIGTERM for the others
    report_s: float = 2.0  # how long a training's own report may take before its record is reported instead
    preparing_s: float = 3.0  # minimum time between two reports of the progress of fetching an image
    force_s: float = 5.0  # time for a shim to kill its worker when asked; then the worker is killed directly


@dataclass(slots=True)
class Tracked:
    """A run that has not ended, as far as is known."""

    roster: Roster
    requests: Mapping[int, dict[str, Any]] = field(default_factory=dict)  # empty for runs that were only adopted
    sights: dict[str, Sight] = field(default_factory=dict)  # the latest one from each of its machines
    untouched: bool = True  # report it even if not all its workers were started
    preparing: tuple[str, float] = ("", 0.0)  # as last reported, and when (monotonic)
    up_told: bool = False
    up_s: float = 0.0  # as reported; its end must not be earlier
    looked: bool = False
    epochs: Epochs | None = None  # as last seen in its own record
    epochs_s: float = 0.0  # monotonic, since when
    epochs_told: bool = True
    failed: str = ""  # why it could not be started, for a cause outside the job (those are in a worker's exit record)
    withdrawn: bool = False  # refused before a shim was requested: nothing can start
    begun: bool = False  # a shim was requested, or may have been
    asked_s: float = 0.0  # monotonic
    asked: int = 0
    broken_s: float | None = None  # monotonic, when its gang broke
    told_rest: bool = False
    kill_s: float | None = None  # monotonic, when its shims were last asked, or forced, to kill everything
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held during a launch or signal
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)  # its machines are watched concurrently

    def could_not(self, be_done: str, error: OSError) -> None:
        self.failed = f"the run could not be {be_done}: {error}; see `swell doctor`"
        self.withdrawn = not self.begun
