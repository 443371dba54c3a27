"""What one granted job needs of its nodes: the rules are in `core.capacity`, measured values in the job's view. The
placers call it."""

from __future__ import annotations

from swell.core.capacity import Need, need_of_spec
from swell.core.evolve import changer
from swell.placement.sharing import utilisation_milli
from swell.ports import Placed

_with_measured = changer(Need, "share_memory_mib", "share_milli")
_with_files = changer(Need, "only_on")


def need_of(placed: Placed, n: int | None = None) -> Need:
    """What this job needs at its granted size, or at another one."""
    view = placed.view
    need = need_of_spec(view.spec, placed.grant.n if n is None else n, placed.grant.gpu_type, job=view.id)
    need = _with_files(need, view.only_on) if view.only_on else need
    return _with_measured(need, view.share_memory_mib, utilisation_milli(view)) if need.shared else need
