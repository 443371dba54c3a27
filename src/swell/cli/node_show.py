"""One machine in lines: whether it answers, how it is reached, what it has and who uses it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from swell.cli.common import table
from swell.cli.terminal import safe
from swell.jobfile.units import format_duration

View = Mapping[str, Any]
GPU_HEAD = ("GPU", "TYPE", "MEMORY", "JOBS", "USE", "UUID")


def described(view: View) -> str:
    lines = [(name, text) for name, text in _facts(view) if text]
    facts = "\n".join(f"{name:<12}{safe(text)}" for name, text in lines)
    gpus = table(GPU_HEAD, [_gpu(gpu) for gpu in view["gpus"]]) if view["gpus"] else ""
    return f"{facts}\n\n{gpus}" if gpus else facts


def _facts(view: View) -> Sequence[tuple[str, str]]:
    return [
        ("node", view["name"]),
        ("condition", str(view["condition"]).upper()),
        ("contact", _contact(view)),
        ("why", view["why"]),
        ("reached", _reached(view["ssh"])),
        ("host key", _host_key(view["ssh"])),
        ("address", view["address"]),
        ("realm", view["realm"]),
        ("lease", _lease(view["lease_s"])),
        ("boot", view["boot_id"]),
        ("size", f"{view['cpus']} CPUs, {view['memory_mib'] / 1024:.0f} GiB, {len(view['gpus'])} GPUs"),
        ("GPUs free", f"{view['gpus_free']} of {view['gpus_total']}"),
        ("setup", "; ".join(view["ssh"]["setup"]) if view["ssh"] else ""),
        ("files", (view["ssh"]["root"] or "~/.swell") + " on the machine" if view["ssh"] else ""),
        ("containers", f"none: {view['no_containers']}" if view["no_containers"] else ""),
        ("rack", view["rack"]),
        ("labels", ", ".join(f"{key}={value}" for key, value in view["labels"].items())),
    ]


def _contact(view: View) -> str:
    if not view["lease_s"]:
        return "here: the daemon's own machine"
    if not view["boot_id"]:
        return "not heard of yet"
    since_s = max(0.0, time.time() - view["contact_s"])
    return f"{view['contact']} for {format_duration(since_s)}"


def _reached(ssh: View | None) -> str:
    if ssh is None:
        return ""
    user = f"{ssh['user']}@" if ssh["user"] else ""
    port = f" port {ssh['port']}" if ssh["port"] != 22 else ""
    key = f", key {ssh['key_file']}" if ssh["key_file"] else ""
    config = ", with ~/.ssh/config" if ssh["config_host"] else ""
    return f"ssh {user}{ssh['host']}{port}{key}{config}"


def _host_key(ssh: View | None) -> str:
    return ssh["fingerprint"] if ssh is not None else ""


def _lease(lease_s: float) -> str:
    return f"{format_duration(lease_s)}: jobs end by themselves so long after they lost the daemon" if lease_s else ""


def _gpu(gpu: View) -> tuple[str, ...]:
    use = f"{gpu['health']}: {gpu['why']}" if gpu["health"] != "ok" else "free"
    if gpu["others"]:
        use = f"others' work ({gpu['others_memory_mib'] / 1024:.0f} GiB), left alone"
    elif gpu["jobs"]:
        use = "in use"
    memory = f"{gpu['memory_mib'] / 1024:.0f}GiB" if gpu["memory_mib"] else "-"
    return (str(gpu["index"]), gpu["type"], memory, ", ".join(map(str, gpu["jobs"])) or "-", use, gpu["uuid"] or "-")
