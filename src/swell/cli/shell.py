"""What a job takes from the shell it is submitted from, so that it runs as its user would run it: which programs there
are (PATH, the active Python environment), variables that its file names, secrets by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swell.cli.terminal import say
from swell.core.errors import SwellError
from swell.jobfile.units import written
from swell.shim.environment import SECRET

Document = dict[str, Any]
PROGRAMS = ("PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYENV_VERSION", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "LANG")
"""Which programs, libraries and language the shell has; so do all that begin with CONDA_ or LC_."""
_PREFIXES = ("CONDA_", "LC_")


class Wrong(SwellError):
    """A field of a job that only this machine can judge."""

    def __init__(self, field: str, what: str, fix: str) -> None:
        super().__init__(f"{field}: {what} ({fix})")
        self.field, self.what, self.fix = field, what, fix


def complete(document: Document, *, local: bool, snapshot: bool, environ: Mapping[str, str] = os.environ) -> None:
    """Put into the document what its job is to have of this shell. Of a daemon elsewhere it has only what it names."""
    env = document.setdefault("env", {})
    named, secrets = (_names(document.get(key, [])) for key in ("env_from_shell", "secrets"))
    if not isinstance(env, dict) or named is None or secrets is None:
        return  # the daemon says what is wrong with them
    for name in (*named, *secrets):
        if name not in env and name in environ:
            env[name] = environ[name]
    _warn_of_secrets([name for name in named if name not in secrets and SECRET.search(name.upper())])
    _place_outputs(document, local=local)
    if local and "image" not in document:
        document.setdefault("shell_env", shell_environment(environ, snapshot=snapshot, document=document))
        _choose_python(document, environ)


def _place_outputs(document: Document, *, local: bool) -> None:
    """Relative to this directory; a daemon elsewhere cannot write here."""
    if not document.get("outputs"):
        return
    wanted = document.get("outputs_to", "")
    if isinstance(wanted, str) and not wanted.startswith("/"):
        if not local:
            raise Wrong(
                "outputs",
                "the daemon is on another machine and cannot write into this directory",
                "name a directory of that machine (outputs_to: /data/results), or leave outputs out and use "
                "`swell fetch`",
            )
        document["outputs_to"] = str(Path.cwd() / Path(wanted).expanduser())


def _names(value: object) -> list[str] | None:
    found = [value] if isinstance(value, str) else value
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None


def _warn_of_secrets(names: list[str]) -> None:
    if names:
        say(f"note: {', '.join(names)} will be shown with the job; name it as a secret to hide it", err=True)


def shell_environment(environ: Mapping[str, str], *, snapshot: bool, document: Document) -> dict[str, str]:
    """Which programs run, as the shell would choose them. Nothing that may hold a secret."""
    found = {
        name: value
        for name, value in sorted(environ.items())
        if (name in PROGRAMS or name.startswith(_PREFIXES)) and not SECRET.search(name) and value.isprintable()
    }
    if snapshot and "PYTHONPATH" in found:
        found["PYTHONPATH"] = _in_the_copy(found["PYTHONPATH"], str(document.get("workdir", "")))
    return found


def _in_the_copy(python_path: str, workdir: str) -> str:
    """Entries within this directory mean the copy that the job runs in, not files that change meanwhile."""
    if workdir.startswith("/"):
        return python_path
    here = Path.cwd()
    entries = [Path(entry) for entry in python_path.split(":") if entry]
    return ":".join(os.path.relpath(e, here / workdir) if e.is_relative_to(here) else str(e) for e in entries)


def _choose_python(document: Document, environ: Mapping[str, str]) -> None:
    """`python: DIRECTORY` is the environment there; a name is looked for now, not when the job starts hours later. A
    script runs with python3 where the shell has no `python`."""
    path, chosen = environ.get("PATH", os.defpath), document.get("python")
    if isinstance(chosen, str) and chosen:
        document["python"] = _found(chosen, path)
    elif str(document.get("script", "")).endswith(".py") and not shutil.which("python", path=path):
        python3 = shutil.which("python3", path=path)
        if python3:
            document["python"] = python3


def _found(chosen: str, path: str) -> str:
    place = Path(chosen).expanduser()
    if os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises for a long word
        place = place / "bin" / "python"
    found = shutil.which(str(place.absolute() if "/" in chosen or place.parent != Path() else chosen), path=path)
    if found is None:
        raise Wrong(
            "python",
            f"there is no interpreter {written(chosen)} here",
            "write a path such as /opt/env/bin/python, a directory with a virtual environment, or a name that is on "
            "your PATH",
        )
    return found
