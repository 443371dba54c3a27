"""Whatever is in a tar: what is unpacked stays inside and within the limits, or the tar is refused in our own words."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swell.jobfile import unpacking
from swell.jobfile.files import pack
from swell.jobfile.unpacking import MIB, SnapshotError, SnapshotTooLarge, unpack


def tar(*entries: tuple[str, bytes], pax: dict[str, str] | None = None, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.pax_headers = kind, len(content), pax or {}
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def link(name: str, to: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, to
    return info


def links(*made: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info in made:
            archive.addfile(info)
    return buffer.getvalue()


def opened(directory: Path, content: bytes, max_bytes: int = MIB) -> Path:
    archive, target = directory / "x.tar", directory / "target"
    archive.write_bytes(content)
    target.mkdir()
    unpack(archive, target, max_bytes)
    return target


def on_disk(directory: Path) -> int:
    """Bytes that files in it claim to have."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def gnu_sparse(size: int) -> bytes:
    """One member of 1.5 KiB that claims to be `size` bytes of nothing."""
    info = tarfile.TarInfo("hole")
    info.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[386:398] = block[398:410] = b"%011o\0" % 0
    block[483:495] = b"%011o\0" % size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block) + bytes(1024)


PAX_SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(3 << 30)}
OLD_PAX_SPARSE = {"GNU.sparse.map": f"{3 << 30},0", "GNU.sparse.size": str(3 << 30)}


@pytest.mark.parametrize(
    "content",
    [
        gnu_sparse(3 << 30),
        gnu_sparse(10),
        tar(("hole", b"1\n3221225472\n0\n" + bytes(497)), pax=PAX_SPARSE),
        tar(("hole", b""), pax=OLD_PAX_SPARSE),
    ],
    ids=["gnu", "gnu-small", "pax-1.0", "pax-0.1"],
)
def test_holes_are_not_unpacked(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SnapshotError):
        opened(tmp_path, content)
    assert on_disk(tmp_path / "target") == 0


def test_more_bytes_than_allowed(tmp_path: Path) -> None:
    with pytest.raises(SnapshotTooLarge, match="snapshot_max_mib"):
        opened(tmp_path, tar(*((str(i), b"x" * 300_000) for i in range(4))))
    assert on_disk(tmp_path / "target") <= MIB


@pytest.mark.parametrize("form", ["{i}", "{i}/x"])
def test_more_files_or_directories_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(unpacking, "MAX_FILES", 100)
    with pytest.raises(SnapshotTooLarge, match="more than 100 files"):
        opened(tmp_path, tar(*((form.format(i=i), b"") for i in range(101))))
    assert len(list((tmp_path / "target").iterdir())) <= 100


def test_links_count_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_FILES", 100)
    with pytest.raises(SnapshotTooLarge):
        opened(tmp_path, links(*(link(str(i), "x") for i in range(101))))
    assert list((tmp_path / "target").iterdir()) == []


def test_directories_in_between_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_FILES", 100)
    with pytest.raises(SnapshotTooLarge):
        opened(tmp_path, tar(*((f"{i}/" + "d/" * 20 + "x", b"") for i in range(6))))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "a"], "twice"),
        (["a", "./a"], "twice"),
        (["a//b", "a/b"], "twice"),
        (["a", "a/b"], "both a file and a directory"),
        (["a/b", "a"], "both a file and a directory"),
        (["a/b/c/d", "a/b"], "both a file and a directory"),
        (["n" * 256], "too long"),
        (["é" * 128], "too long"),
        (["/".join(["n" * 200] * 11)], "too long"),
        (["d/" * 64 + "x"], "64 directories deep"),
        (["../x"], "not a path inside"),
        (["/x"], "not a path inside"),
        (["a/../../x"], "not a path inside"),
        (["."], "not a path inside"),
    ],
)
def test_names_that_clash_or_are_none(tmp_path: Path, names: list[str], says: str) -> None:
    with pytest.raises(SnapshotError, match=says) as refused:
        opened(tmp_path, tar(*((name, b"x") for name in names)))
    str(refused.value).encode()  # can be sent
    assert len(str(refused.value)) < 400


def test_a_link_and_a_file_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="twice"):
        opened(tmp_path, links(link("a", "b"), link("a", "c")))


def test_names_up_to_the_limits_are_unpacked(tmp_path: Path) -> None:
    names = ["n" * 255, "d/" * 63 + "x", "/".join(["n" * 200] * 10)]
    target = opened(tmp_path, tar(*((name, b"x") for name in names)))
    assert all((target / name).is_file() for name in names)


@pytest.mark.parametrize(
    "kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CONTTYPE]
)
def test_only_files_and_links(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(SnapshotError, match="neither a plain file nor a link"):
        opened(tmp_path, tar(("x", b""), kind=kind))


def longlong_names(count: int) -> bytes:
    """A name for a name for a name …: the tar module follows them by calling itself."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    return (info.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")) * count + bytes(1024)


def long_header(kind: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 5 * MIB
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(5 * MIB)


@pytest.mark.parametrize(
    "content",
    [
        tar(("x", b"y"), pax={"size": "-512"}),
        tar(("x", b"y"), pax={"size": "-1"}),
        tar(("x", b"y"), pax={"size": "99999999999999999999999999"}),
        tar(("x", b"y"), pax={"size": "ten"}),
        tar(("x", b"y"), pax={"path": "a\0b"}),
        tar(("x", b"y"), pax={"linkpath": "z", "uid": "-1", "mtime": "nan"}),
        longlong_names(3000),
        long_header(tarfile.XHDTYPE),
        long_header(tarfile.XGLTYPE),
        long_header(tarfile.GNUTYPE_LONGNAME),
        tar(("x", b"y" * 2000))[:1000],
        b"x" * 600,
        b"",
        bytes(512),
        links(link("a", ""), link("b", "\0")),
        links(link("a", "x/" * 2000)),
        links(*(link(f"l{i}", f"l{i + 1}") for i in range(3000))),
        links(link("a", "b"), link("b", "a")),
    ],
)
def test_odd_tars(tmp_path: Path, content: bytes) -> None:
    """Refused in our words, or harmless."""
    try:
        target = opened(tmp_path, content)
    except SnapshotError as error:
        str(error).encode()
        target = tmp_path / "target"
    assert on_disk(target) <= MIB


good = tar(("a.py", b"print(1)"), ("d/b", b"x" * 700)) + bytes(512)


@given(st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)), min_size=1, max_size=12))
@settings(max_examples=int(os.environ.get("SWELL_EXAMPLES", "300")), suppress_health_check=list(HealthCheck))
def test_bytes_changed_anywhere(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]) -> None:
    content = bytearray(good)
    for at, byte in changes:
        content[at] = byte
    for start in (0, 1024):  # checksums that hold, so that more than the first look is tried
        content[start + 148 : start + 156] = b" " * 8
        content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + 512])
    directory = tmp_path_factory.mktemp("tar")
    try:
        target = opened(directory, bytes(content))
    except SnapshotError as error:
        str(error).encode()
        target = directory / "target"
    assert on_disk(target) <= MIB


def test_what_would_be_refused_is_not_packed(tmp_path: Path) -> None:
    """By the same rule, where the user can do something about it."""
    deep = tmp_path / ("d/" * 64)
    deep.mkdir(parents=True)
    (deep / "x").write_text("1")
    with pytest.raises(SnapshotError, match="64 directories deep"):
        pack(tmp_path, io.BytesIO(), max_mib=1)
