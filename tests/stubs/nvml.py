"""A machine with GPUs, for tests: a stand-in for the driver's library, compiled when first needed.

stub = NvmlStub(tmp_path)             # skips the test where there is no C compiler
stub.write([FakeGpu(used_mib=300)], processes=[(0, pid, 300)])
stub.load(monkeypatch)                # for this process
subprocess.run(..., env={**os.environ, **stub.env})   # for another one
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_stub.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeGpu:
    name: str = "NVIDIA A100-SXM4-40GB"
    uuid: str = ""
    total_mib: int = 40_960
    used_mib: int = 0
    utilisation: int = 0
    error: int = 0  # an NVML error code that every question about it gets; 15: GPU is lost


@cache
def library() -> Path:
    """The compiled stub, one for all tests of this process."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to compile the stand-in for the GPU driver")
    target = Path(tempfile.mkdtemp(prefix="nvml-stub-")) / "libnvidia-ml.so.1"
    options = ["-shared", "-fPIC", "-O1", "-w", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run(["gcc", *options, "-o", target, SOURCE], check=True)
    return target


class NvmlStub:
    def __init__(self, folder: Path) -> None:
        self.library = library()
        self.state = folder / "gpus.tsv"

    @property
    def env(self) -> dict[str, str]:
        """What another process needs to find these GPUs."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVML_STUB_STATE": str(self.state)}

    def load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process find them: a library of that name is already open when pynvml asks for it."""
        ctypes.CDLL(str(self.library), mode=ctypes.RTLD_GLOBAL)
        monkeypatch.setenv("NVML_STUB_STATE", str(self.state))

    def write(
        self,
        gpus: Sequence[FakeGpu],
        *,
        processes: Sequence[tuple[int, int, int]] = (),
        links: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`processes` are (GPU, pid, MiB). Whole at once, so that a reader never sees half of it."""
        lines = [_line(index, gpu) for index, gpu in enumerate(gpus)]
        lines += [f"proc\t{gpu}\t{pid}\t{mib}" for gpu, pid, mib in processes]
        lines += [f"link\t{one}\t{other}" for one, other in links]
        fresh = self.state.with_suffix(f".{os.getpid()}")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.state)


def _line(index: int, gpu: FakeGpu) -> str:
    facts = (gpu.name, gpu.uuid or f"GPU-{index}", gpu.total_mib, gpu.used_mib, gpu.utilisation, gpu.error)
    return "\t".join(["gpu", *(str(fact) for fact in facts)])
