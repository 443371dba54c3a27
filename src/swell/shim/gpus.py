"""GPUs as `nvidia-smi` reports them. Runs on their machine. No driver, no program: no GPUs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence

from swell.shim.files import Json
from swell.shim.processes import alive, mark_of, stat_of

TIMEOUT_S = 20.0
_GPU = ("index", "uuid", "name", "memory.total", "memory.used", "mig.mode.current", "utilization.gpu")
_PROCESS = ("gpu_uuid", "pid", "used_memory")
_NO_GPUS = (9, 127)
"""Exit codes: no driver, no such program."""


def read_gpus() -> Json:
    """{"gpus": […], "trouble": ""}: `trouble` is what the driver printed instead of, or beside, its GPUs."""
    rows, trouble = _query("gpu", _GPU)
    if not rows:
        return {"gpus": [], "trouble": trouble}
    used = _processes(_query("compute-apps", _PROCESS)[0])
    return {"gpus": [_gpu(row, used) for row in rows], "trouble": trouble}


def _query(what: str, fields: tuple[str, ...]) -> tuple[list[dict[str, str]], str]:
    """Rows by field; values that the driver does not know are empty."""
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (FileNotFoundError, PermissionError):
        return [], ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {error}"
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    rows = rows_in(lines, fields)
    said = [line.strip() for line in (*lines, *done.stderr.decode("utf-8", "replace").splitlines()) if line.strip()]
    failed = done.returncode not in (0, *_NO_GPUS)
    other = [line for line in said if line.count(", ") != len(fields) - 1]
    return rows, (other[0] if other else f"nvidia-smi ended with {done.returncode}")[:300] if failed else ""


def rows_in(lines: Iterable[str], fields: Sequence[str]) -> list[dict[str, str]]:
    """Lines of CSV as `nvidia-smi` prints them, by field; values that the driver does not know are empty."""
    return [dict(zip(fields, map(_value, line.split(", ")))) for line in lines if line.count(", ") == len(fields) - 1]


def _value(text: str) -> str:
    text = text.strip()
    return "" if text.startswith("[") and text.endswith("]") else text  # [N/A], [Not Supported], [Unknown Error]


def number(text: str) -> int | None:
    try:
        return int(float(text))
    except ValueError:
        return None


def _gpu(row: dict[str, str], used: dict[str, list[Json]]) -> Json:
    return {
        "index": int(row["index"]) if row["index"].isdigit() else -1,
        "uuid": row["uuid"],
        "name": row["name"],
        "total_mib": number(row["memory.total"]) or 0,
        "used_mib": number(row["memory.used"]) or 0,
        "percent": number(row["utilization.gpu"]),
        "mig": row["mig.mode.current"] == "Enabled",
        "processes": used.get(row["uuid"], []),
    }


def _processes(rows: list[dict[str, str]]) -> dict[str, list[Json]]:
    """By GPU: whose each process is can only be seen here."""
    found: dict[str, list[Json]] = {}
    for row in rows:
        if row["pid"].isdigit() and alive([int(row["pid"])]):
            pid = int(row["pid"])
            process = {"pid": pid, "memory_mib": number(row["used_memory"])}
            found.setdefault(row["gpu_uuid"], []).append({**process, **whose(pid)})
    return found


def whose(pid: int) -> Json:
    """The mark that a process carries, and the processes above it."""
    above, stat = [], stat_of(pid)
    while stat is not None and stat.parent > 1:
        above.append(stat.parent)
        stat = stat_of(stat.parent)
    return {"mark": mark_of(pid).decode("ascii", "replace"), "above": above}
