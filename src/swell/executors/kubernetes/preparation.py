"""Turns an order into the objects of its run: adds the daemon's addresses and token, the in-job library, and the
program that starts a worker and reports its end. Called by the executor in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import swell.shim
from swell.core.ids import RunId
from swell.core.pods import runs_as_mpijob
from swell.executors.kubernetes.manifests import Manifest, RunObjects, Site, library_of, objects_of
from swell.executors.kubernetes.mpijob import as_mpijob
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.ports import Order


class PodPreparation:
    """`library`: path -> content of the in-job library, as it goes on PYTHONPATH."""

    def __init__(
        self,
        *,
        cluster: str,
        namespace: str,
        url: str,
        token_of: Callable[[RunId], str],
        library: Mapping[str, bytes],
        settings: KubernetesSettings,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._url = url
        self._token_of = token_of
        self._files = pod_files(library)
        self._settings = settings

    def __call__(self, order: Order) -> RunObjects:
        manifest, paths = library_of(self._files, self._cluster, self._namespace)
        site = Site(
            cluster=self._cluster,
            namespace=self._namespace,
            library=manifest["metadata"]["name"],
            library_paths=paths,
            url=self._url,
            token=self._token_of(order.run),
            settings=self._settings,
        )
        return objects_of(order.record, order.nodes, site, as_mpijob if runs_as_mpijob(order.record.spec) else None)

    def library(self, namespace: str) -> Manifest:
        """The ConfigMap that pods of a namespace need first."""
        return library_of(self._files, self._cluster, namespace)[0]


def pod_files(library: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files below /swell/lib: path -> content."""
    shim = Path(swell.shim.__file__).parent
    found = {f"sdk/{path}": content for path, content in library.items()}
    found |= {f"shim/swell/shim/{path.name}": path.read_bytes() for path in shim.glob("*.py")}
    found |= {"shim/swell/__init__.py": b"", "start.sh": (shim / "start.sh").read_bytes()}
    return dict(sorted(found.items()))
