"""Names the machines that a pending job could use but that take no new jobs. `plan.explain` calls it. Pure."""

from __future__ import annotations

from swell.core.capacity import accepts_type, need_of_spec
from swell.core.resources import Contact, Node, NodeCondition
from swell.core.state import JobRecord, State

NAMED = 5
"""At most this many machines get a sentence of their own."""
_BY_HAND = (NodeCondition.CORDONED, NodeCondition.DRAINING, NodeCondition.QUARANTINED)


def closed_nodes(state: State, record: JobRecord) -> list[str]:
    """A sentence per machine, with the command that opens it again. Machines that cannot hold the job are left out."""
    closed = [node for _, node in sorted(state.nodes.items()) if not node.schedulable and _could_use(record, node)]
    more = len(closed) - NAMED
    said = [_takes_nothing(node) for node in closed[:NAMED]]
    return [*said, f"{more} more {'machine takes' if more == 1 else 'machines take'} no jobs"] if more > 0 else said


def _could_use(record: JobRecord, node: Node) -> bool:
    spec = record.spec
    if not need_of_spec(spec, 1, "").accepts(node):
        return False
    return spec.cpu_only or any(accepts_type(spec.gpus, gpu.type) for gpu in node.gpus)


def _takes_nothing(node: Node) -> str:
    if node.contact is not Contact.HERE:
        return f"{node.name} takes no jobs: it does not answer ({node.contact})"
    why = f", {node.why}" if node.why else ""
    if node.condition in _BY_HAND:
        return f"{node.name} takes no jobs ({node.condition}{why}) until `swell node uncordon {node.name}`"
    return f"{node.name} takes no jobs: {node.closed or node.why or 'it is not ready yet'}"
