"""What a job with an image may ask for: refused with a sentence, or passed on as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.core.containers import check_container, outside
from swell.core.errors import Infeasible
from swell.core.job import JobSpec, Launcher, Mount, PodOptions


def spec(**fields: object) -> JobSpec:
    return JobSpec(**{"name": "j", "command": ("true",), "image": "train:1", **fields})  # type: ignore[arg-type]


def mounting(source: str, target: str = "/data") -> JobSpec:
    return spec(mounts=(Mount(source=source, target=target),))


@pytest.mark.parametrize(
    "image",
    [
        *("train", "train:1", "pytorch/pytorch:2.4.0-cuda12", "127.0.0.1:5000/team/x@sha256:" + "a" * 64),
        *("a.b/c_d/e-f:v1", "dir", "oci/dir:1", "docker:24", "lab:5000/dir", "sha256:" + "0" * 64),
        "a:1@sha256:" + "b" * 64,
    ],
)
def test_names_of_images_are_taken(image: str) -> None:
    check_container(spec(image=image))


@pytest.mark.parametrize(
    "image",
    [
        *("--privileged", "-v/:/host", "a b", "a\nb", "$(id)", "`id`", "a;id", "a//b", "é", "x" * 300, "a\0b", "~/x"),
        *("a/", "/a", "a:b:c", "a@b", "http://a/b", "a:/b"),
    ],
)
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(Infeasible, match="is not the name of an image"):
        check_container(spec(image=image))


@pytest.mark.parametrize(
    "image",
    [
        *("dir:/home/eve/image", "dir:home", "oci:/srv/x:1", "oci-archive:/x.tar", "docker-archive:/srv/private.tar"),
        *("docker-daemon:x:1", "containers-storage:x:1", "sif:/x", "tarball:/etc/shadow", "dir:5000/x"),
    ],
)
def test_never_an_image_of_files_of_the_node(image: str) -> None:
    with pytest.raises(Infeasible, match="is not the name of an image"):
        check_container(spec(image=image))


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("data", "/data", "is not absolute"),
        ("/data", "data", "is not absolute"),
        ("/home/../etc", "/data", "has .. in it"),
        ("/home", "/data/..", "has .. in it"),
        ("/home", "/", "would cover the image's own system"),
        ("/home", "/proc/1", "would cover the image's own system"),
        ("/home", "//dev/shm", "would cover the image's own system"),
        ("/dev/sda", "/data", "is part of the machine's system"),
        ("/proc", "/data", "is part of the machine's system"),
        ("/a,readonly", "/data", "a comma, colon"),
        ("/a:/etc", "/data", "a comma, colon"),
        ('/a"', "/data", "a comma, colon"),
        ("/a\n", "/data", "a comma, colon"),
        ("/a\udcff", "/data", "a comma, colon"),
    ],
)
def test_mounts_that_mean_something_else_are_refused(source: str, target: str, says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        check_container(mounting(source, target))


def test_two_mounts_never_share_a_target() -> None:
    mounts = (Mount(source="/a", target="/data"), Mount(source="/b", target="/data/"))
    with pytest.raises(Infeasible, match="two mounts have the target /data"):
        check_container(spec(mounts=mounts))


@pytest.mark.parametrize("value", ["a\nb", "a\r", "\ud800", "x" * 70_000])
def test_values_that_no_runtime_passes_on_are_refused(value: str) -> None:
    with pytest.raises(Infeasible, match="the value of KEY"):
        check_container(spec(env={"KEY": value}))


@pytest.mark.parametrize("launcher", [Launcher.HOROVOD, Launcher.MPI])
def test_launchers_that_leave_the_image_are_refused(launcher: Launcher) -> None:
    with pytest.raises(Infeasible, match="outside of the image"):
        check_container(spec(launcher=launcher))


@given(st.text(), st.text())
def test_a_mount_is_refused_or_is_one_plain_word(source: str, target: str) -> None:
    try:
        check_container(mounting(source, target))
    except Infeasible:
        return
    assert not any(character in source + target for character in ',:"\\\n\r\0')
    assert source.startswith("/")
    assert ".." not in source.split("/")


def test_paths_inside_are_found_outside() -> None:
    job = spec(
        mounts=(Mount(source="/home/me/snap/", target="/snapshots"), Mount(source="/x", target="/snapshots/deep"))
    )
    assert outside(job, "/snapshots/7") == "/home/me/snap/7"
    assert outside(job, "/snapshots") == "/home/me/snap"
    assert outside(job, "/snapshots/deep/a") == "/x/a"
    assert outside(job, "/snapshots2") == "/snapshots2"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"checkpoint_dir": "/ckpt"}, "no mount leads there"),
        ({"checkpoint_dir": "ckpt", "workdir": "/app"}, "checkpoints in /app/ckpt would be lost"),
        ({"checkpoint_dir": "../ckpt"}, "no mount leads there"),
        ({"checkpoint_dir": "/data/c", "mounts": (Mount(source="/d", target="/data", read_only=True),)}, "read-only"),
    ],
)
def test_never_checkpoints_that_go_with_the_container(fields: dict[str, object], says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        check_container(spec(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoint_dir": "ckpt"},
        {"checkpoint_dir": "ckpt", "workdir": "src"},
        {"checkpoint_dir": "/data/c", "mounts": (Mount(source="/d", target="/data"),)},
        {"checkpoint_dir": "c", "workdir": "/data", "mounts": (Mount(source="/d", target="/data/"),)},
        {"checkpoint_dir": "/ckpt", "kubernetes": PodOptions()},
    ],
)
def test_checkpoints_that_are_kept_are_taken(fields: dict[str, object]) -> None:
    check_container(spec(**fields))
