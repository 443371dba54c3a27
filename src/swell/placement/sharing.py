"""Several jobs on one GPU: what each is accounted for, and when a pairing has to be undone.

A reservation is what the job's user estimated, until its peak was measured; from then on the measured peak with a
margin counts (`JobView.share_memory_mib`). Amounts are whole MiB and whole thousandths: sums are exact. Swell accounts
for memory and keeps neighbours apart; it does not stop a process from allocating more than it said.
"""

from __future__ import annotations

from swell.core.snapshot import JobView


def outgrown(view: JobView) -> bool:
    """It uses more than it reserved: its neighbours are in danger, so it must fit anew or go."""
    held = view.allocation
    return held is not None and held.share is not None and view.share_memory_mib > held.share.memory_mib
