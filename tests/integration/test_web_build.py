"""Building the dashboard where it cannot be built: said with what to do, and nothing else is touched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_without_node_and_without_packages_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "web" / "build.py", tmp_path / "web")
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "web" / "build.py")],
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), **unreachable},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "everything else works" in done.stderr
    assert "make web" in done.stderr
    assert not (tmp_path / "src").exists()


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    """What was built from the same sources is left alone: no Node.js is looked for."""
    script = ROOT / "web" / "build.py"
    (tmp_path / "web").mkdir()
    shutil.copy(script, tmp_path / "web")
    code = "import sys; sys.path.insert(0, 'web'); import build; print(build.digest())"
    env = {"PATH": "", "HOME": str(tmp_path)}
    digest = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()
    static = tmp_path / "src" / "swell" / "web" / "static"
    static.mkdir(parents=True)
    (static / "built-from.txt").write_text(digest)
    done = subprocess.run([sys.executable, str(tmp_path / "web" / "build.py")], env=env, timeout=60, check=False)
    assert done.returncode == 0
