"""What every worker on this machine finds in its environment, beneath its own. Runs on that machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from swell.shim.files import Json

_PROGRAMS = frozenset(["PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"])
"""Which programs and libraries there are; so do all that begin with CONDA_. A job that brings its submitter's gets
none of the daemon's."""
_PASSED_ON = _PROGRAMS | frozenset(
    [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ]
)
_PASSED_ON_PREFIXES = ("LC_", "CONDA_", "NVIDIA_", "NCCL_", "XDG_", "HF_")
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY($|_)|APIKEY")
"""Names that look like secrets, such as HF_TOKEN: passed on only when somebody names them."""


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every worker on this machine finds, beneath its own: where things are, in which language. Nothing else of
    the daemon's environment, which may hold its secrets."""
    return {
        name: value
        for name, value in environ.items()
        if name in _PASSED_ON or (name.startswith(_PASSED_ON_PREFIXES) and not SECRET.search(name))
    }


def completed_environment(base: Mapping[str, str], request: Json) -> dict[str, str]:
    """What the worker of this request finds: its own environment over that of its machine."""
    beneath = base
    if request.get("shell_env"):
        beneath = {n: v for n, v in base.items() if n not in _PROGRAMS and not n.startswith("CONDA_")}
    env = {**beneath, **request["env"]}
    if first := request.get("path_first"):
        env["PATH"] = ":".join((*first, env.get("PATH", os.defpath)))
    return env


def completed_request(base: Mapping[str, str], request: Json) -> Json:
    """With what its machine adds. In a container that is for the runtime only: the image has its own."""
    if request.get("container"):
        return {**request, "runtime_env": dict(base)}
    return {**request, "env": completed_environment(base, request)}
