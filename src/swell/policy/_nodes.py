"""How many GPUs of each type fit on one node: sizes up to that need no network."""

from __future__ import annotations

from swell.core.resources import Node


def most_on_one_node(nodes: tuple[Node, ...]) -> dict[str, int]:
    most: dict[str, int] = {}
    for node in nodes:
        counts: dict[str, int] = {}
        for gpu in node.gpus:
            counts[gpu.type] = counts.get(gpu.type, 0) + 1
        for gpu_type, count in counts.items():
            most[gpu_type] = max(most.get(gpu_type, 0), count)
    return most
