"""Checks the volume claims that a job's pods mount: a claim that only one node can mount at a time is refused for a run
on several nodes, whose pods would wait for it until the gang times out."""

from __future__ import annotations

from swell.core.errors import Infeasible
from swell.core.state import JobRecord
from swell.executors.kubernetes.api import Api, Refusal, namespaced

_OF_SEVERAL = frozenset({"ReadWriteMany", "ReadOnlyMany"})


async def check_claims(api: Api, record: JobRecord, storage_claim: str) -> None:
    """Raises Infeasible. Claims that are missing, or may not be read, are left to the cluster."""
    assert record.run is not None  # it is being launched
    options, nodes = record.spec.kubernetes, record.run.allocation.nodes
    if options is None or len(nodes) < 2:
        return
    claims = [volume.claim for volume in options.volumes if volume.claim]
    for claim in dict.fromkeys([*claims, *([storage_claim] if storage_claim else ())]):
        try:
            found = await api.get(namespaced(options.namespace or api.namespace, "persistentvolumeclaims", claim))
        except Refusal:
            continue
        modes = (found.get("spec") or {}).get("accessModes") or ()
        if modes and not _OF_SEVERAL & set(modes):
            raise Infeasible(_refused(claim, modes[0], nodes))


def _refused(claim: str, mode: str, nodes: tuple[str, ...]) -> str:
    return (
        f"the claim {claim} is {mode}, which one node at a time can mount, and this run has pods on "
        f"{' and '.join(nodes)}; use a ReadWriteMany claim, or keep the job on one node: `gpus` up to what a node has "
        "and `nodes:` with its name"
    )
