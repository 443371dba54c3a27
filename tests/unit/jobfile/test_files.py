"""Snapshots: what is taken, that the hash names the content, and that unpacking never writes outside."""

import io
import os
import sqlite3
import subprocess
import tarfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from swell.core.database_mark import APPLICATION_ID
from swell.jobfile import choosing
from swell.jobfile.choosing import Wanted, choose, matches
from swell.jobfile.files import (
    ARCHIVE_S,
    Packed,
    adopt,
    copy_for_job,
    pack,
    sweep,
    touch,
    unpacked_path,
    write_archive,
)
from swell.jobfile.outputs import disk_use
from swell.jobfile.unpacking import SnapshotError, unpack


def tree(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def packed(root: Path, max_mib: int = 10) -> tuple[Packed, bytes]:
    buffer = io.BytesIO()
    return pack(root, buffer, max_mib=max_mib), buffer.getvalue()


def test_without_git_everything_but_the_usual_clutter(tmp_path: Path) -> None:
    tree(
        tmp_path, {"a.py": "1", "d/b.py": "2", ".git/config": "", "__pycache__/x.pyc": "", "d/c.ckpt": "", "out/x": ""}
    )
    (tmp_path / ".swellignore").write_text("# heavy\n*.ckpt\nout/\n")
    assert choose(tmp_path).names == [".swellignore", "a.py", "d/b.py"]


def test_with_git_what_git_would_take(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    tree(tmp_path, {"a.py": "1", "new.py": "2", "data.bin": "", ".gitignore": "*.bin\n", "gone.py": ""})
    subprocess.run(["git", "-C", str(tmp_path), "add", "a.py", "gone.py"], check=True)
    (tmp_path / "gone.py").unlink()
    assert choose(tmp_path).names == [".gitignore", "a.py", "new.py"]


def test_a_directory_that_git_ignores_is_still_taken(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    tree(tmp_path, {".gitignore": "scratch/\n", "scratch/train.py": "1"})
    assert choose(tmp_path / "scratch").names == ["train.py"]


@pytest.mark.parametrize("git", [False, True])
def test_environments_caches_and_homes_of_swell_are_left_out_and_told(tmp_path: Path, git: bool) -> None:
    if git:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    clutter = {
        "env/pyvenv.cfg": "a virtual environment",
        "deep/conda/conda-meta/x": "a conda environment",
        "old/daemon.lock": "a home of Swell",
        "sub/.cache/x": "a cache",
        "sub/.ssh/id_rsa": "it may hold keys",
    }
    tree(tmp_path, {"a.py": "1", "env/lib/big.so": "x", "old/token": "t", "sub/b.py": "1", **clutter})
    chosen = choose(tmp_path)
    assert chosen.names == ["a.py", "sub/b.py"]
    told = {"env": 0, "deep/conda": 1, "old": 2, "sub/.cache": 3, "sub/.ssh": 4}
    assert chosen.left_out == {path: list(clutter.values())[n] for path, n in told.items()}


def test_only_what_is_named_and_nothing_that_is_excluded(tmp_path: Path) -> None:
    for name in ("a.py", "data/x.csv", "data/y.bin", "job_results/r.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    chosen = choose(tmp_path, wanted=Wanted(leave_out=["/job_results", "*.bin"]))
    assert chosen.names == ["a.py", "data/x.csv"]
    assert chosen.left_out == {"data/y.bin": "--exclude", "job_results": "--exclude"}
    assert choose(tmp_path, wanted=Wanted(only=["data"], leave_out=["*.bin"])).names == ["data/x.csv"]


def test_what_git_ignores_is_told_and_can_be_included(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    tree(tmp_path, {"a.py": "1", ".gitignore": "data/\nout\n", "data/x.csv": "1", "data/y.bin": "1", "out": "1"})
    chosen = choose(tmp_path)
    assert chosen.names == [".gitignore", "a.py"]
    assert chosen.left_out == {"data": ".gitignore", "out": ".gitignore"}
    assert choose(tmp_path, wanted=Wanted(include=["data"])).names == [".gitignore", "a.py", "data/x.csv", "data/y.bin"]
    assert choose(tmp_path, wanted=Wanted(include=["*.csv"])).names == [".gitignore", "a.py", "data/x.csv"]


def test_keys_are_never_included(tmp_path: Path) -> None:
    tree(tmp_path, {"a.py": "1", ".ssh/id_rsa": "k", ".netrc": "k", "env/pyvenv.cfg": ""})
    assert choose(tmp_path, wanted=Wanted(include=[".ssh", ".netrc", "*"])).names == ["a.py", "env/pyvenv.cfg"]


def test_a_copy_of_swells_database_is_never_included_and_other_databases_are(tmp_path: Path) -> None:
    tree(tmp_path, {"a.py": "1"})
    for name, mark in (("monday", APPLICATION_ID), ("scores.db", 7)):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute(f"PRAGMA application_id = {mark}")
    chosen = choose(tmp_path, wanted=Wanted(include=["monday"]))
    assert chosen.names == ["a.py", "scores.db"]
    assert chosen.left_out == {"monday": "a database of Swell, which may hold secrets"}


def test_of_a_home_directory_no_hidden_file_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tree(tmp_path, {"train.py": "1", ".bashrc": "x", ".config/gcloud/key": "k"})
    chosen = choose(tmp_path)
    assert chosen.names == ["train.py"]
    assert set(chosen.left_out) == {".bashrc", ".config"}


def test_swells_own_home_is_left_out(tmp_path: Path) -> None:
    tree(tmp_path, {"a.py": "1", "home/swell.db": "x", "home2/b": "y"})
    assert choose(tmp_path, [tmp_path / "home"]).names == ["a.py", "home2/b"]


def test_the_hash_names_the_content(tmp_path: Path) -> None:
    tree(tmp_path / "one", {"a.py": "1", "b/c.py": "2"})
    tree(tmp_path / "two", {"b/c.py": "2", "a.py": "1"})
    first, second = packed(tmp_path / "one")[0], packed(tmp_path / "two")[0]
    assert first.hash == second.hash
    (tmp_path / "two" / "a.py").chmod(0o755)
    assert packed(tmp_path / "two")[0].hash != first.hash


def test_round_trip_keeps_contents_modes_and_inner_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    tree(source, {"run.sh": "#!/bin/sh", "d/data.txt": "x"})
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("d/data.txt")
    (source / "out").symlink_to("/etc")
    result, data = packed(source)
    assert result.links_out == ("out",)
    part = tmp_path / "part"
    part.write_bytes(data)
    final = adopt(tmp_path, result.hash, part, max_mib=10)
    assert (final / "link").read_text() == "x"
    assert (final / "run.sh").stat().st_mode & 0o111
    again = io.BytesIO()
    assert write_archive(tmp_path, result.hash, again) == len(data)
    assert again.getvalue() == data
    assert not (final / "out").exists()


def test_adopting_twice_is_harmless(tmp_path: Path) -> None:
    tree(tmp_path / "source", {"a": "1"})
    result, data = packed(tmp_path / "source")
    for _ in range(2):
        (tmp_path / "part").write_bytes(data)
        adopt(tmp_path, result.hash, tmp_path / "part", max_mib=10)
    assert [p.name for p in tmp_path.glob(".unpack-*")] == []


def test_old_snapshots_go_but_never_one_that_a_job_needs_or_somebody_just_asked_for(tmp_path: Path) -> None:
    kept = []
    for name in ("old", "needed", "asked"):
        tree(tmp_path / name, {"a": name})
        result, data = packed(tmp_path / name)
        (tmp_path / "part").write_bytes(data)
        adopt(tmp_path, result.hash, tmp_path / "part", max_mib=10)
        os.utime(unpacked_path(tmp_path, result.hash), (100.0, 100.0))
        kept.append(result.hash)
    old, needed, asked = kept
    assert touch(tmp_path, asked)
    assert sweep(tmp_path, {needed}, before_s=200.0) == [old]
    assert not touch(tmp_path, old)
    assert not unpacked_path(tmp_path, old).exists()
    assert [touch(tmp_path, one) for one in (needed, asked)] == [True, True]
    assert sweep(tmp_path, (), before_s=200.0) == []


def kept(files: Path, source: Path, contents: dict[str, str]) -> str:
    tree(source, contents)
    result, data = packed(source)
    (files / "part").write_bytes(data)
    adopt(files, result.hash, files / "part", max_mib=10)
    (files / "part").unlink()
    return result.hash


def test_content_that_did_not_change_is_kept_once(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    large = "x" * 400_000
    first = kept(files, tmp_path / "source", {"model.py": large, "lr.txt": "1"})
    before = disk_use(files).bytes
    second = kept(files, tmp_path / "source", {"model.py": large, "lr.txt": "2"})
    assert before < 420_000 + 8192  # neither an archive beside it, nor a copy
    assert disk_use(files).bytes - before <= 8192
    assert [(files / one / "lr.txt").read_text() for one in (first, second)] == ["1", "2"]
    os.utime(unpacked_path(files, first), (100.0, 100.0))
    assert sweep(files, {second}, before_s=200.0) == [first]
    assert (files / second / "model.py").read_text() == large
    os.utime(unpacked_path(files, second), (100.0, 100.0))
    sweep(files, (), before_s=200.0)
    assert disk_use(files).files == 0


def test_a_job_that_writes_into_its_copy_never_changes_another(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    snapshot = kept(files, tmp_path / "source", {"d/data.txt": "as submitted", "run.sh": "#!/bin/sh"})
    for job in ("1", "2"):
        copy_for_job(files, snapshot, tmp_path / job)
    with (tmp_path / "1" / "d" / "data.txt").open("r+") as file:
        file.write("CHANGED")
    (tmp_path / "1" / "run.sh").chmod(0o777)
    assert (tmp_path / "2" / "d" / "data.txt").read_text() == "as submitted"
    assert (files / snapshot / "d" / "data.txt").read_text() == "as submitted"
    assert (tmp_path / "2" / "run.sh").stat().st_mode & 0o777 == 0o644


def test_too_large_names_the_largest_and_the_setting(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"0" * (2 << 20))
    with pytest.raises(SnapshotError, match=r"weights.bin \(2 MiB\).*snapshot_max_mib|snapshot_max_mib.*weights.bin"):
        packed(tmp_path, max_mib=1)


def entry(name: str, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


SYM = tarfile.SYMTYPE


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../evil")],
        [entry("/tmp/evil")],
        [entry("a/../../evil")],
        [entry("link", type=SYM, linkname="/etc")],
        [entry("link", type=SYM, linkname="../..")],
        [entry("hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [entry("dev", type=tarfile.CHRTYPE)],
        [entry("d/up", type=SYM, linkname=".."), entry("out", type=SYM, linkname="d/up/..")],
        [entry("l", type=SYM, linkname="d"), entry("l", type=SYM, linkname="..")],
    ],
)
def test_never_outside(tmp_path: Path, entries: list[tarfile.TarInfo]) -> None:
    archive = tmp_path / "x.tar"
    with tarfile.open(archive, "w") as tar:
        for item in entries:
            tar.addfile(item)
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    with pytest.raises((SnapshotError, FileExistsError)):
        unpack(archive, target, 1 << 20)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "x.tar"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["target"]


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(entry("d", type=SYM, linkname="e"))
        tar.addfile(entry("d/file"))
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises((SnapshotError, FileExistsError)):
        unpack(archive, target, 1 << 20)


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"not a tar" * 200)
    with pytest.raises(SnapshotError, match="not a tar"):
        unpack(tmp_path / "x", tmp_path, 1 << 20)


def test_archives_that_nobody_has_used_for_an_hour_go(tmp_path: Path) -> None:
    for name, age_s in (("left", ARCHIVE_S + 60.0), ("under-way", ARCHIVE_S - 600.0)):
        (tmp_path / f"{name}.tar").write_bytes(b"")
        os.utime(tmp_path / f"{name}.tar", (0.0, time.time() - age_s))
    assert sweep(tmp_path, (), 0.0) == []
    assert [path.name for path in tmp_path.glob("*.tar")] == ["under-way.tar"]


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("*.ckpt", ["a.ckpt", "deep/down/a.ckpt", "b.ckpt/x"]),
        ("data/", ["data/x", "deep/data/x", "a/b/data/c/x"]),
        ("a/b", ["a/b", "a/b/c"]),
        ("/top", ["top", "top/x"]),
    ],
)
def test_a_pattern_is_read_as_in_a_gitignore(pattern: str, taken: list[str]) -> None:
    others = ["data", "deep/data", "x/a/b", "a", "b", "ckpt", "deep/top.txt"]
    assert [name for name in (*taken, *others) if matches(name, [pattern])] == taken


def test_a_directory_may_have_as_many_files_as_there_may_be_and_not_one_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "MAX_FILES", 3)
    tree(tmp_path, {"a": "", "sub/b": "", "sub/c": ""})
    assert sorted(packed(tmp_path)[0].names) == ["a", "sub/b", "sub/c"]
    (tmp_path / "sub/d").touch()
    with pytest.raises(SnapshotError, match="has more than 3 files"):
        packed(tmp_path)
