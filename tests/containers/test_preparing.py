"""An image that is not there yet: fetched once per node, visibly, while the gang's clock waits."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.images import busybox, podman
from containers.jobs import containers_of, ended, serving
from harness import eventually

pytestmark = pytest.mark.containers

GANG_S = 3.0
SLOW = """#!/bin/sh
# podman, with a registry that is slow
if [ "$1" = pull ]; then
    echo $$ >> {pulls}
    echo "Copying blob sha256:1234"
    while [ ! -e {go} ]; do sleep 0.1; done
    exec podman tag {base} "$2"
fi
exec podman "$@"
"""


@pytest.fixture
def image() -> Iterator[str]:
    name = f"registry.test/swell/{secrets.token_hex(6)}:1"
    yield name
    podman("rmi", name)


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    program = tmp_path / "podman-slow"
    program.write_text(SLOW.format(pulls=tmp_path / "pulls", go=tmp_path / "go", base=busybox()))
    program.chmod(0o755)
    return program


def test_two_runs_fetch_an_image_once_and_their_clock_waits(tmp_path: Path, slow: Path, image: str) -> None:
    with serving(tmp_path / "home", container_runtime=str(slow), gang_timeout_s=GANG_S) as served:
        jobs = [
            *served.submit(command="true", image=image, gpus=1),
            *served.submit(command="true", image=image, gpus=1),
        ]

        def preparing() -> bool:
            return all(served.get(f"/v1/jobs/{job}")["preparing"] for job in jobs)

        eventually(preparing, 30.0, what="both are seen to be preparing")
        shown = [served.get(f"/v1/jobs/{job}") for job in jobs]
        assert {told["state"] for told in shown} == {"starting"}
        assert sorted(told["why"] for told in shown) == [
            "preparing: Copying blob sha256:1234",
            "preparing: another run fetches the same image",
        ]
        told = served.get(f"/v1/jobs/{jobs[0]}/explain")
        assert f"its node fetches the image {image}" in str(told)
        eventually(lambda: time.time() > shown[0]["started_s"] + 2 * GANG_S, 30.0, what="twice the gang's time")
        (tmp_path / "go").touch()
        assert [ended(served, job)["state"] for job in jobs] == ["completed", "completed"]
        assert [served.get(f"/v1/jobs/{job}")["attempts"] for job in jobs] == [1, 1]
        assert len((tmp_path / "pulls").read_text().split()) == 1


def test_a_run_that_fetches_its_image_can_be_cancelled(tmp_path: Path, slow: Path, image: str) -> None:
    with serving(tmp_path / "home", container_runtime=str(slow)) as served:
        (job,) = served.submit(command="true", image=image, gpus=1)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["preparing"], 30.0)
        served.post(f"/v1/jobs/{job}/cancel")
        assert ended(served, job, 20.0)["state"] == "cancelled"
        assert containers_of(served.home) == []


def test_a_daemon_that_is_killed_meanwhile_finds_the_run_preparing(tmp_path: Path, slow: Path, image: str) -> None:
    with serving(tmp_path / "home", container_runtime=str(slow)) as served:
        (job,) = served.submit(command="true", image=image, gpus=1)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["preparing"], 30.0)
        served.kill()
        served.start()
        assert served.get(f"/v1/jobs/{job}")["preparing"]
        (tmp_path / "go").touch()
        assert ended(served, job)["state"] == "completed"
