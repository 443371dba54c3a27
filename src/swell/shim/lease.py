"""Until when the runs of this machine may go on by themselves. Runs on that machine; the shims read it.

The end is absolute, in this machine's own clock (`boot_s`), and bound to a boot: a renewal that is delayed on its way
extends nothing, and wall clocks do not matter. Without an end: leases are waived for planned maintenance.
"""

from __future__ import annotations

import json
import math
import os

from swell.shim.files import Json, boot_id, boot_s, read_json, write_whole

NAME = "lease"


def left_s(runs_dir: str) -> float:
    """How long the runs here may still go on; below 0: their lease is over, or there was never one of this boot."""
    return _left_s(read_json(os.path.join(runs_dir, NAME)))


def order_left_s(order: Json | None) -> float:
    """The same for the lease that came with a request to start something: one that arrives late starts nothing."""
    return _left_s(order)


def _left_s(lease: Json | None) -> float:
    if lease is None or lease.get("boot") != boot_id():
        return -math.inf
    until_s = lease.get("until")
    return math.inf if until_s is None else float(until_s) - boot_s()


def renew(runs_dir: str, boot: str, until_s: float | None, epoch: int) -> bool:
    """Write down a renewal (None: without an end). False: it is for another boot. One that was overtaken on its way by
    a later one of the same daemon changes nothing; a newer daemon's replaces what an older one wrote."""
    if boot != boot_id():
        return False
    known = read_json(os.path.join(runs_dir, NAME)) or {}
    same = known.get("boot") == boot and known.get("epoch") == epoch
    if same and (known.get("until") is None or (until_s is not None and known["until"] >= until_s)):
        return True
    write_whole(runs_dir, NAME, json.dumps({"boot": boot, "until": until_s, "epoch": epoch}).encode())
    return True
