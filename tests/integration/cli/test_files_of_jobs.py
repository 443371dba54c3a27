"""Each job works in its own copy of the files that were submitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import ROOT, daemon, eventually


def test_jobs_of_one_snapshot_never_see_each_others_writes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "count.sh").write_text("cat seen 2>/dev/null | wc -l; echo x >> seen\n")
    with daemon(tmp_path / "home", gpus=1) as served:
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(tmp_path / "home")}
        for _ in range(2):
            command = [sys.executable, "-m", "swell", "run", "-d", "--gpus", "1", "--", "sh", "count.sh"]
            subprocess.run(command, cwd=project, env=env, check=True, capture_output=True)
        eventually(lambda: served.get("/v1/health")["jobs"]["completed"] == 2, 20)
        logs = [(tmp_path / "home" / "runs" / f"{job}.1" / "0" / "log").read_text().strip() for job in (1, 2)]
    assert logs == ["0", "0"]
    assert not (project / "seen").exists()
