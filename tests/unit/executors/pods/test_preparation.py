"""What pods bring along: the in-job library, and what starts a worker and says how it ended."""

from __future__ import annotations

from pathlib import Path

import swell.shim
from swell.executors.kubernetes.preparation import pod_files

SHIM = Path(swell.shim.__file__).parent


def test_pods_get_the_library_the_shim_as_a_package_and_the_script_that_starts_it() -> None:
    found = pod_files({"swell/sdk/__init__.py": b"# the library"})
    assert found.pop("sdk/swell/sdk/__init__.py") == b"# the library"
    assert found.pop("start.sh") == (SHIM / "start.sh").read_bytes()
    assert found.pop("shim/swell/__init__.py") == b"", "nothing of the daemon's own package"
    assert found == {f"shim/swell/shim/{path.name}": path.read_bytes() for path in SHIM.glob("*.py")}
