"""What a person sets about a Kubernetes cluster: section `kubernetes:` of the configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """Empty texts: what the kubeconfig says, or nothing."""

    kubeconfig: str = ""  # empty: $KUBECONFIG, ~/.kube/config, or the service account of the daemon's own pod
    context: str = ""  # of the kubeconfig; empty: its current one
    namespace: str = ""  # of the pods; empty: of the context, else `default`
    gpu_resource: str = "nvidia.com/gpu"  # what a node's GPUs are called
    storage_claim: str = ""  # a ReadWriteMany claim that holds checkpoints and working copies of all jobs
    storage_path: str = ""  # or a directory that every node has at this path (NFS)
    tolerate: tuple[str, ...] = ()  # keys of taints that pods tolerate, besides the name of the GPU resource
    probe_image: str = "busybox:1.36"  # tries at the start whether pods reach the daemon; empty: nothing does
    requests_per_s: float = 20.0  # at most, to the API server
    lease_s: float = 600.0  # pods end their work so long after they lost the daemon. 0: never, nor is it taken as over

    @property
    def has_storage(self) -> bool:
        return bool(self.storage_claim or self.storage_path)
