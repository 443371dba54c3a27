"""Reads files of jobs: passes each request to the implementation for the executor of the run's first node."""

from __future__ import annotations

from collections.abc import Mapping

from swell.core.errors import NotFound
from swell.ports import Files, JobTree, Order, Piece

_PODS = "the files of job {job} were in its pods on {node}, which end with it; write results to a volume, or print them"
_OTHER = "the files of job {job} are on {node}, from where this version cannot bring them"


class FileRouter:
    """See `ports.Files`. `files`: implementations by executor; for others it raises NotFound."""

    def __init__(self, files: Mapping[str, Files]) -> None:
        self._by_kind = dict(files)

    async def tree(self, order: Order) -> JobTree:
        return await self._chosen(order).tree(order)

    async def content(self, order: Order, path: str, offset: int, limit: int) -> Piece:
        return await self._chosen(order).content(order, path, offset, limit)

    def _chosen(self, order: Order) -> Files:
        node = next(iter(order.nodes.values()))
        found = self._by_kind.get(node.executor)
        if found is None:
            words = _PODS if node.executor == "kubernetes" else _OTHER
            raise NotFound(words.format(job=order.record.id, node=node.name))
        return found
