"""`make test-kubernetes`: one cluster; first the tests that share it, several at a time, then those that need it for
themselves. Words after it go to pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kubernetes import cluster

AT_ONCE = 3
SHARED, ALONE = ("kubernetes and not alone", f"-n{AT_ONCE}"), ("kubernetes and alone",)
NO_TESTS = 5


def main(words: list[str]) -> int:
    if cluster.why_not() and "SWELL_TEST_CLUSTER" not in os.environ:
        return tested({}, "kubernetes", *words)  # each is skipped with the reason
    with cluster.running() as found:
        env = {"SWELL_TEST_CLUSTER": str(found.directory)}
        codes = [tested(env, *selected, *words) for selected in (SHARED, ALONE)]
    return max(0 if code == NO_TESTS else code for code in codes)


def tested(env: dict[str, str], selected: str, *words: str) -> int:
    argv = [sys.executable, "-m", "pytest", "-m", selected, "--timeout", "300", *words]
    return subprocess.run([*argv, str(Path(__file__).parent)], env={**os.environ, **env}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
