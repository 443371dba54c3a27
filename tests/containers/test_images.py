"""The images of deploy/, built of a local root file system and packages that lie beside it: no registry is asked."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.images import OPTIONS, podman, python
from containers.jobs import containers_of, ended, log_of, serving
from harness import ROOT, eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

EPOCHS = 3
OFFLINE = "[global]\nno-index = true\nfind-links = /wheels\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip installs in the images, fetched here as for any environment of the project."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "wheels").mkdir()
    (folder / "pip.conf").write_text(OFFLINE)
    words = ["wheel", "-qq", "--wheel-dir", str(folder / "wheels"), "hatchling", f"{ROOT}[kubernetes,postgres]"]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, env={**os.environ, "SWELL_WEB": "skip"})
    for own in (folder / "wheels").glob("swell-*.whl"):
        own.unlink()  # the image makes it of the sources
    return folder


def built(dockerfile: str, packages: Path) -> Iterator[str]:
    name = f"localhost/swell-test-{secrets.token_hex(4)}"
    mounts = [f"--volume={packages}/wheels:/wheels:ro", f"--volume={packages}/pip.conf:/etc/pip.conf:ro"]
    offline = ["--isolation=chroot", "--pull=never", f"--build-arg=BASE={python()}"]
    done = podman("build", *offline, *mounts, f"--file={ROOT / 'deploy' / dockerfile}", f"--tag={name}", str(ROOT))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    yield name
    podman("rmi", "--force", name)


@pytest.fixture(scope="module")
def daemon_image(packages: Path) -> Iterator[str]:
    yield from built("Dockerfile", packages)


@pytest.fixture(scope="module")
def trainer_image(packages: Path) -> Iterator[str]:
    yield from built("trainer.Dockerfile", packages)


def test_the_daemons_image_serves_and_runs_jobs(daemon_image: str) -> None:
    name = f"swell-test-{secrets.token_hex(4)}"
    served = ["swell", "serve", "--home", "/home/swell/state", "--gpus", "2", "--port", "0"]
    done = podman("run", "--detach", f"--name={name}", "--network=none", *OPTIONS, daemon_image, *served)
    assert done.returncode == 0, done.stderr

    def inside(*words: str) -> str:
        done = podman("exec", "--env=SWELL_HOME=/home/swell/state", "--workdir=/tmp", name, *words)
        return done.stdout + done.stderr

    try:
        eventually(
            lambda: '"gpus_total": 2' in inside("swell", "nodes", "--json"), 60.0, what="it answers", every_s=0.5
        )
        assert "trained in here" in inside("swell", "run", "--", "echo trained in here")
        assert inside("id", "-un").strip() == "swell"
    finally:
        print(podman("logs", name).stdout[-2000:])
        podman("rm", "--force", "--time=0", name)


def test_the_trainers_image_trains_as_a_job(trainer_image: str, tmp_path: Path) -> None:
    with serving(tmp_path / "home") as served:
        command = ["python", "/app/train.py"]
        job = {"command": command, "image": trainer_image, "gpus": 1, "epochs": EPOCHS, "uses_library": True}
        (made,) = served.submit(name="trainer", **job)
        told = ended(served, made, 120.0)
        assert (told["state"], told["message"]) == ("completed", ""), log_of(served.home, made)
        assert told["progress"]["epochs_done"] == EPOCHS
        assert containers_of(served.home) == []
