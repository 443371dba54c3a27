"""Runs as bare pods of a Kubernetes cluster. Swell decides how many GPUs and on which node; Kubernetes runs them.

Pure: `objects` (objects of the API server, as values), `inventory` (nodes), `rules` (limits of the namespace),
`manifests` (objects to create), `verdict` (meaning of pods' statuses). With I/O: `api` (HTTP), `watch` (list and
watch), `namespace` (reads its rules), `logs` (kept after a pod is gone), `executor`.
"""
