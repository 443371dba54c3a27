"""Runs as bare pods of a Kubernetes cluster. Swell decides how many GPUs and on which node; Kubernetes runs them.

Pure: `objects` (what the API server says, as values), `inventory` (nodes), `rules` (what the namespace allows),
`manifests` (what is created), `verdict` (what pods' statuses mean). Edges: `api` (HTTP), `watch` (list and watch),
`namespace` (reads its rules), `logs` (kept after a pod is gone), `executor`.
"""
