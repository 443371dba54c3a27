"""Applies events about the cluster to the state: its machines, policy, users and tokens.

`core.lifecycle.apply` looks up `CLUSTER_CHANGES`; events about jobs and runs are in `core.lifecycle` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from swell.core import account_events
from swell.core import events as ev
from swell.core.accounts import Token, User
from swell.core.evolve import evolve
from swell.core.pods import runs_pods
from swell.core.resources import MEASURED, Node, NodeCondition
from swell.core.state import State


def _node_observed(state: State, event: ev.NodeObserved) -> None:
    known = state.nodes.get(event.node.name)
    state.nodes[event.node.name] = event.node if known is None else kept_facts(known, event.node)


def _node_condition(state: State, event: ev.NodeConditionChanged) -> None:
    node = state.nodes.get(event.node)
    if node is not None:
        cleared = {"failed_starts": ()} if event.condition is NodeCondition.READY else {}
        state.nodes[event.node] = evolve(node, condition=event.condition, why=event.why, **cleared)


def kept_facts(known: Node, seen: Node) -> Node:
    """The node as observed now, with the facts that no observation changes: people's decisions about it and its
    contact."""
    return evolve(
        _with_declared(known, seen),
        condition=known.condition,
        why=known.why,
        lease_s=seen.lease_s if runs_pods(seen) else seen.lease_s or known.lease_s,
        lease_waived=known.lease_waived,
        contact=known.contact,
        contact_s=known.contact_s,
        boot_id=known.boot_id,
        failed_starts=known.failed_starts,
    )


def _with_declared(known: Node, seen: Node) -> Node:
    """Merges the declaration of a machine over SSH (which has `ssh`) with its measured inventory (which has not)."""
    if known.ssh is None:
        return seen
    declared = known if seen.ssh is None else seen
    measured = seen if seen.ssh is None else known
    return evolve(declared, **{name: getattr(measured, name) for name in MEASURED if name not in declared.declared})


def _node_contact(state: State, event: ev.NodeContactChanged) -> None:
    node = state.nodes.get(event.node)
    if node is not None:
        since_s = node.contact_s if event.contact is node.contact else event.at_s
        boot_id = event.boot_id or node.boot_id
        state.nodes[event.node] = evolve(node, contact=event.contact, contact_s=since_s, boot_id=boot_id)


def _node_lease(state: State, event: ev.NodeLeaseWaived) -> None:
    node = state.nodes.get(event.node)
    if node is not None:
        state.nodes[event.node] = evolve(node, lease_waived=event.waived)


def _node_removed(state: State, event: ev.NodeRemoved) -> None:
    state.nodes.pop(event.node, None)


def _policy_set(state: State, event: ev.PolicySet) -> None:
    if event.name != state.policy:
        state.policy_memory = {}
    state.policy = event.name
    state.placer = event.placer or state.placer
    state.policy_options = dict(event.options)


def _nothing(state: State, event: ev.SpeedsFitted) -> None:
    """Nothing to do: this event changes only the speed book."""


def _policy_remembered(state: State, event: ev.PolicyRemembered) -> None:
    state.policy_memory = dict(event.memory)


def _user_set(state: State, event: account_events.UserSet) -> None:
    known = state.users.get(event.name)
    since_s = known.since_s if known else event.at_s
    state.users[event.name] = User(name=event.name, role=event.role, team=event.team, since_s=since_s)


def _user_removed(state: State, event: account_events.UserRemoved) -> None:
    state.users.pop(event.name, None)
    for token in [token.id for token in state.tokens.values() if token.user == event.name]:
        del state.tokens[token]


def _token_issued(state: State, event: account_events.TokenIssued) -> None:
    state.tokens[event.token] = Token(
        id=event.token,
        user=event.user,
        digest=event.digest,
        role=event.role,
        made_s=event.at_s,
        expires_s=event.expires_s,
        note=event.note,
    )


def _token_revoked(state: State, event: account_events.TokenRevoked) -> None:
    state.tokens.pop(event.token, None)


CLUSTER_CHANGES: Mapping[type, Callable[[State, Any], None]] = {
    ev.NodeObserved: _node_observed,
    ev.NodeConditionChanged: _node_condition,
    ev.NodeContactChanged: _node_contact,
    ev.NodeLeaseWaived: _node_lease,
    ev.NodeRemoved: _node_removed,
    ev.PolicySet: _policy_set,
    ev.PolicyRemembered: _policy_remembered,
    ev.SpeedsFitted: _nothing,
    account_events.UserSet: _user_set,
    account_events.UserRemoved: _user_removed,
    account_events.TokenIssued: _token_issued,
    account_events.TokenRevoked: _token_revoked,
}
