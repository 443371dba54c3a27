"""Peak GPU memory of this training, from the driver's own library (NVML) by way of ctypes: nothing to install.

Memory is summed per GPU over the process and its descendants. In a container the driver reports process ids of the
host, which mean nothing inside; if none is ours, the GPU's used memory is taken, unless the GPU is shared with others.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

MIB = 1 << 20
_MAX_PROCESSES = 256
_UNKNOWN = (1 << 64) - 1


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuMemory:
    """`peak_mib` is the most that one GPU held at a sample. 0: no driver, or nothing seen."""

    def __init__(self, shared: bool = False) -> None:
        self.peak_mib = 0
        self._shared = shared
        self._nvml: Any = None
        self._absent = not os.environ.get("CUDA_VISIBLE_DEVICES")

    def sample(self) -> None:
        if self._absent:
            return
        try:
            nvml = self._library()
            ours = descendants(os.getpid())
            for index in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
                self.peak_mib = max(self.peak_mib, self._used_mib(nvml, int(index), ours))
        except (OSError, AttributeError, ValueError):
            self._absent = True  # no driver here: not asked again

    def _library(self) -> Any:
        if self._nvml is None:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if nvml.nvmlInit_v2() != 0:
                raise OSError("the driver does not answer")
            self._nvml = nvml
        return self._nvml

    def _used_mib(self, nvml: Any, index: int, ours: frozenset[int]) -> int:
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            return 0
        used = _used_by(nvml, device, ours)
        if used == 0 and not self._shared:
            memory = _Memory()
            if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0:
                used = memory.used
        return int(used // MIB)


def _used_by(nvml: Any, device: Any, pids: frozenset[int]) -> int:
    count = ctypes.c_uint(_MAX_PROCESSES)
    found = (_Process * _MAX_PROCESSES)()
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found) != 0:
        return 0
    return sum(p.used for p in found[: count.value] if p.pid in pids and p.used != _UNKNOWN)


def descendants(pid: int) -> frozenset[int]:
    """The process and all below it, from /proc."""
    found, open_ = {pid}, [pid]
    while open_:
        parent = open_.pop()
        for path in Path("/proc").joinpath(str(parent), "task").glob("*/children"):
            children = {int(child) for child in _text(path).split()} - found
            found |= children
            open_ += sorted(children)
    return frozenset(found)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it ended meanwhile
