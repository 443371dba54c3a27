"""A job that waits because its machine takes nothing new: the machine is named, with what opens it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.decision import Reason, ReasonCode
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Contact, Gpu, Node, NodeCondition
from swell.plan.explain import explain, sentence

NODE = Node(name="vm", gpus=(Gpu(index=0),))
JOB = JobSpec(name="echo", command=("echo",))


def said(node: Node, spec: JobSpec = JOB) -> tuple[str, ...]:
    state = replay([ev.NodeObserved(node=node, at_s=0.0), ev.JobSubmitted(job=1, spec=spec, at_s=0.0)])
    state.nodes[node.name] = node
    return explain(state, state.jobs[1], (), now_s=1.0).sentences


@pytest.mark.parametrize("condition", [NodeCondition.CORDONED, NodeCondition.DRAINING, NodeCondition.QUARANTINED])
def test_a_machine_that_was_set_aside_is_named_with_what_opens_it(condition: NodeCondition) -> None:
    assert f"vm takes no jobs ({condition}, new disk) until `swell node uncordon vm`" in said(
        replace(NODE, condition=condition, why="new disk")
    )


def test_a_machine_that_does_not_answer_is_named() -> None:
    assert "vm takes no jobs: it does not answer (away)" in said(replace(NODE, contact=Contact.AWAY))


def test_a_machine_that_its_cluster_closed_is_named_with_why() -> None:
    assert "vm takes no jobs: tainted" in said(replace(NODE, closed="tainted"))


@pytest.mark.parametrize(
    "spec", [replace(JOB, nodes=("gpu1",)), replace(JOB, gpus=GpuRequest(types=("a100",))), replace(JOB, image="")]
)
def test_a_machine_that_it_could_not_use_or_that_is_open_is_not_named(spec: JobSpec) -> None:
    closed = NodeCondition.READY if spec == JOB else NodeCondition.CORDONED
    assert not [line for line in said(replace(NODE, condition=closed), spec) if "takes no jobs" in line]


def test_what_is_missing_is_a_machine_where_no_type_was_asked_for() -> None:
    assert sentence(Reason(code=ReasonCode.GPU_TYPE)) == "no machine with a usable GPU takes jobs at present"
