"""Clusters by name: `16x4` is sixteen nodes of four GPUs; `6x4xT4,3x8xA100` gives the types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby

from swell.core.errors import SwellError
from swell.core.resources import Gpu, Node

_GROUP = re.compile(r"(\d+)x(\d+)(?:x([A-Za-z0-9][\w.-]*))?")
DEFAULT_TYPE = "gpu"
CPUS_PER_NODE = 1024
MEMORY_PER_NODE_MIB = 1 << 24
"""Traces say nothing of CPU and memory: nodes of a simulated cluster have plenty of both."""


MAX_GPUS = 100_000
"""Of a cluster by name: beyond this it is a slip of the pen, and would fill the memory."""


def parse_cluster(text: str) -> tuple[Node, ...]:
    """Nodes of a cluster as written on the command line. Raises `SwellError` with an example."""
    nodes: list[Node] = []
    left = MAX_GPUS
    for group in text.split(","):
        match = _GROUP.fullmatch(group.strip())
        if match is None:
            raise SwellError(
                f"{group!r} is not a group of nodes; write 16x4 (nodes × GPUs) or 3x8xA100, joined by commas"
            )
        count, gpus, gpu_type = int(match[1]), int(match[2]), match[3] or DEFAULT_TYPE
        if not count:
            raise SwellError(f"{group!r} is no node at all; write 1x4 for one node of four GPUs")
        left -= count * max(1, gpus)
        if left < 0:
            raise SwellError(f"{text[:80]!r} is too large a cluster; {MAX_GPUS:,} GPUs, or as many nodes, is the most")
        first = len(nodes)
        nodes.extend(_node(first + i, gpus, gpu_type) for i in range(count))
    return tuple(nodes)


def _node(index: int, gpus: int, gpu_type: str) -> Node:
    return Node(
        name=f"n{index:04d}",
        gpus=tuple(Gpu(index=i, type=gpu_type) for i in range(gpus)),
        cpus=CPUS_PER_NODE,
        memory_mib=MEMORY_PER_NODE_MIB,
    )


def with_types(nodes: tuple[Node, ...], name: Callable[[str], str]) -> tuple[Node, ...]:
    """The same nodes, their GPU types called otherwise."""
    return tuple(replace(node, gpus=tuple(replace(gpu, type=name(gpu.type)) for gpu in node.gpus)) for node in nodes)


def gpus_by_type(nodes: tuple[Node, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        for gpu in node.gpus:
            counts[gpu.type] = counts.get(gpu.type, 0) + 1
    return dict(sorted(counts.items()))


def cluster_name(nodes: Iterable[Node]) -> str:
    """As `parse_cluster` reads it, nodes without GPUs left out; a node with several types counts as its first."""
    shapes = [(len(node.gpus), node.gpus[0].type) for node in nodes if node.gpus]
    groups = [(gpus, kind, len(list(same))) for (gpus, kind), same in groupby(sorted(shapes))]
    return ",".join(f"{count}x{gpus}" + (f"x{kind}" if kind != DEFAULT_TYPE else "") for gpus, kind, count in groups)
