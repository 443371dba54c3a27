"""Who may read what the daemon gives to jobs of other users."""

from __future__ import annotations

import stat
from pathlib import Path

from swell.executors.ownership import make_readable


def test_everybody_reads_the_library_and_nobody_else_writes_it(tmp_path: Path) -> None:
    folder = tmp_path / "sdk"
    (folder / "swell").mkdir(parents=True, mode=0o700)
    for name, mode in (("swell/sdk.py", 0o600), ("swell/run", 0o700)):
        (folder / name).touch()
        (folder / name).chmod(mode)
    make_readable(folder)
    modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"sdk": 0o755, "sdk/swell": 0o755, "sdk/swell/sdk.py": 0o644, "sdk/swell/run": 0o755}
