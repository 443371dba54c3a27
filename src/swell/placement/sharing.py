"""Several jobs on one GPU: what each is accounted for, and when a pairing has to be undone.

A reservation is what the job's user estimated, until its peak was measured; from then on the measured peak with a
margin counts (`JobView.share_memory_mib`). Amounts are whole MiB and whole thousandths: sums are exact. Swell accounts
for memory and keeps neighbours apart; it does not stop a process from allocating more than it requested.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.capacity import share_milli
from swell.core.resources import GPU_MILLI, Gpu, Share
from swell.core.snapshot import JobView

MEMORY_MARGIN_PERCENT = 10
"""Added to the measured peak of a shared job: reservations follow what was measured, with this to spare."""
LEAST_SAVING = 0.1
"""Jobs that share must get this much more done together than if they took turns."""


def share_on(gpu: Gpu, memory_mib: int, utilisation_milli: int) -> Share:
    return Share(memory_mib=memory_mib, milli=share_milli(memory_mib, utilisation_milli, gpu.memory_mib))


def utilisation_milli(view: JobView) -> int:
    """Of a GPU's compute: what its user specified, or all of it for a job that has to be alone."""
    return GPU_MILLI if view.gpu_milli >= GPU_MILLI else view.spec.gpus.utilisation_milli


def share_now(view: JobView, gpu: Gpu) -> Share:
    """What a running job that shares is accounted for on the GPU it is on."""
    return share_on(gpu, _now_mib(view), utilisation_milli(view))


def _now_mib(view: JobView) -> int:
    """The measured peak with its margin, but at most the reservation while the peak itself stays within it: the margin
    alone never evicts a job."""
    held = view.allocation.share if view.allocation else None
    if held is None or view.share_memory_mib <= held.memory_mib:
        return view.share_memory_mib
    peak_mib = view.share_memory_mib * 100 // (100 + MEMORY_MARGIN_PERCENT)
    return held.memory_mib if peak_mib <= held.memory_mib else view.share_memory_mib


def outgrown(view: JobView) -> bool:
    """It uses more memory than it reserved, so it must fit again with its real use or move."""
    return needs_more_memory(view) or must_be_alone(view)


def needs_more_memory(view: JobView) -> bool:
    held = view.allocation.share if view.allocation else None
    return held is not None and _now_mib(view) > held.memory_mib


def must_be_alone(view: JobView) -> bool:
    """It shares a GPU although it must not: sharing slows it, or its neighbours, more than it saves."""
    held = view.allocation.share if view.allocation else None
    return held is not None and held.milli < GPU_MILLI <= view.gpu_milli


def pays_to_share(alone_step_s: Sequence[float], shared_step_s: Sequence[float]) -> bool:
    """Whether jobs on one GPU get more done together than if they took turns, from step times measured alone and
    together (0: not measured, taken as undisturbed). Two jobs at 60 % of their speed each do 20 % more: that pays."""
    speeds = [a / s if a > 0 and s > 0 else 1.0 for a, s in zip(alone_step_s, shared_step_s, strict=True)]
    return len(speeds) < 2 or sum(speeds) >= 1 + LEAST_SAVING
