"""Jobs as objects of a Kubernetes cluster: `kubectl apply`, `get`, `delete` of a SwellJob do what `swell submit`, `ls`
and `cancel` do. The daemon's log stays the truth; the object's uid makes submission idempotent.

`resource` is pure: what an object asks for, and the status that it gets. `controller` watches, submits and writes."""
