"""Reads GPUs from the driver (pynvml, imported on first use). Without a driver there are none."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from typing import Any

MIB = 1024 * 1024
_VENDOR = frozenset({"nvidia", "tesla", "geforce", "quadro", "gpu", "generation", "laptop"})
_FORM = re.compile(r"(?i)(\d+\s*gb|sxm\d*|pcie|hbm\d*e?|nvl|mig|\d+g\.\d+gb)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    pid: int
    memory_mib: int | None  # None: the driver does not report it


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU at one moment. `trouble`: what the driver reported instead."""

    index: int
    type: str = "gpu"
    total_mib: int = 0
    used_mib: int = 0
    percent: int | None = None  # of the last moments in which it computed; None: the driver does not report it
    processes: tuple[GpuProcess, ...] = ()
    link_group: int = 0
    trouble: str = ""
    uuid: str = ""


def short_type(product: str) -> str:
    """`NVIDIA A100-SXM4-40GB` -> `A100`: what people write in a job file."""
    words = [word for word in re.split(r"[\s-]+", product) if word and word.lower() not in _VENDOR]
    words = [word for word in words if not _FORM.fullmatch(word)]
    if len(words) > 1 and words[0] == "RTX" and re.fullmatch(r"A\d+", words[1]):
        words = words[1:]
    return "".join(words).upper() or "GPU"


class Nvml:
    """The driver's library, opened once. `read` is cheap: a few microseconds per GPU on real drivers."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._last: tuple[GpuReading, ...] = ()
        self._links: dict[int, int] = {}

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs; empty without a driver."""
        nvml = self._open()
        if nvml is None:
            return ()
        try:
            self._last = tuple(self._read_one(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        except nvml.NVMLError as error:  # the driver failed: its GPUs are still listed, but no job gets them
            return tuple(replace(reading, trouble=str(error)) for reading in self._last)
        return self._last

    def _open(self) -> Any:
        if self._nvml is None:
            import pynvml

            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError:
                return None
            self._nvml = pynvml
            with contextlib.suppress(pynvml.NVMLError):
                self._links = _link_groups(pynvml)
        return self._nvml

    def _read_one(self, nvml: Any, index: int) -> GpuReading:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            total, used = _memory(nvml, handle)
            return GpuReading(
                index=index,
                type=short_type(_text(nvml.nvmlDeviceGetName(handle))),
                total_mib=total // MIB,
                used_mib=used // MIB,
                percent=_percent(nvml, handle),
                processes=_processes(nvml, handle),
                link_group=self._links.get(index, 0),
                uuid=_uuid(nvml, handle),
            )
        except nvml.NVMLError as error:
            known = next((reading for reading in self._last if reading.index == index), GpuReading(index=index))
            return replace(known, processes=(), trouble=str(error))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _uuid(nvml: Any, handle: Any) -> str:
    """The UUID, by which container runtimes select the device; empty: the driver does not report it."""
    try:
        return _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError:
        return ""


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """(total, used). The second version of the call leaves out what the driver keeps for itself."""
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return int(info.total), int(info.used)


def _percent(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:
        return None


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    found: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):
        for process in _running(nvml, handle, kind):
            memory = process.usedGpuMemory
            found[process.pid] = None if memory is None else memory // MIB
    return tuple(GpuProcess(pid=pid, memory_mib=memory) for pid, memory in sorted(found.items()))


def _running(nvml: Any, handle: Any, kind: str) -> list[Any]:
    """Processes on the GPU, by the newest version of the call that this driver has."""
    for version in (3, 2):
        try:
            found: list[Any] = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v{version}")(handle)
            return found
        except nvml.NVMLError_FunctionNotFound:
            continue
        except nvml.NVMLError:
            break
    return []


def _link_groups(nvml: Any) -> dict[int, int]:
    """GPUs joined by NVLink share a group number above 0. Links into a switch join all that have one."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    buses = {_text(nvml.nvmlDeviceGetPciInfo(handle).busId): index for index, handle in enumerate(handles)}
    group = list(range(1, len(handles) + 1))
    linked: dict[int, None] = {}
    switched: list[int] = []
    for index, handle in enumerate(handles):
        for remote in _remotes(nvml, handle):
            linked[index] = None
            peer = buses.get(remote)
            switched += [index] if peer is None else []
            for other in [peer] if peer is not None else switched:
                old, new = max(group[index], group[other]), min(group[index], group[other])
                group = [new if value == old else value for value in group]
    return {index: group[index] for index in linked}


def _remotes(nvml: Any, handle: Any) -> list[str]:
    found = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link):
                found.append(_text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except nvml.NVMLError:
            break
    return found
