"""Why a container could not be started or was lost: the exit reason, and for people, what to do. Pure; `verdict` calls
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swell.core.events import ExitReason

_REASONS = {
    "missing": ExitReason.START_FAILED,
    "image": ExitReason.START_FAILED,
    "architecture": ExitReason.START_FAILED,
    "command": ExitReason.START_FAILED,
    "mount": ExitReason.START_FAILED,
    "runtime": ExitReason.START_FAILED,
    "registry": ExitReason.NODE_FULL,
    "node": ExitReason.NODE_FULL,
    "gpus": ExitReason.NODE_FULL,
    "lost": ExitReason.SHIM_LOST,
}
"""Exit reasons by the failed step. Temporary problems of the node or the registry are retried and count no failure."""


def container_reason(failed: Mapping[str, Any]) -> ExitReason | None:
    """The exit reason of a failed step; None: the step is not one of containers."""
    return _REASONS.get(failed["step"])


def why_not_contained(failed: Mapping[str, Any]) -> str:
    step, said, image = failed["step"], failed["said"], failed.get("image", "")
    if step == "missing":
        return f"{said} on the node to run image {image} with; install podman there, or leave out image"
    if step == "image":
        return (
            f"the image {image} is not on the node and cannot be pulled ({said}); check its name and tag, log in "
            "to its registry on the node, or load it there (`podman load`)"
        )
    if step == "architecture":
        return f"the image {image} is not for this node ({said}); build it for the node's architecture"
    if step == "command":
        return f"cannot start {failed['program']}: {_why_not_executed(said, image)}"
    if step == "mount":
        return f"a mount is refused: {said}; mount something else, or ask the operator (container_mounts)"
    if step == "registry":
        return f"the image {image} cannot be pulled now ({said}); it is tried again"
    if step == "node":
        return f"the node has no room for the container ({said}); make room on its disk, or wait"
    if step == "gpus":
        return f"the container lost its GPUs ({said}); the job is tried again, and nothing is counted against it"
    if step == "lost":
        return str(said)
    return f"the container of image {image} could not be started: {said}"


def _why_not_executed(said: str, image: str) -> str:
    if said.lower().startswith("error: workdir "):
        return f"its workdir is not in image {image} ({said}); write a path of the image or of a mount, or leave it out"
    if "permission denied" in said.lower():
        return f"it is not executable in image {image}; `chmod +x` it, or run it by its interpreter (python, sh)"
    if "not found" in said.lower() or "no such file" in said.lower():
        return f"there is no such program in image {image}; check the command, or take an image that has it"
    return f"{said}; check the command, and image {image}"
