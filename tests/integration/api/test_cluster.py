"""Nodes, policy, health, schema, OpenAPI, files."""

import errno
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from integration.api.conftest import Server
from swell.config import Config
from swell.jobfile.files import Packed, pack


def test_nodes(server: Server) -> None:
    answer = server.client.post("/v1/nodes", json={"name": "b", "gpus": 2, "gpu_type": "A100", "gpu_memory": "40GiB"})
    assert answer.status_code == 201
    assert answer.json()["gpus"][1]["memory_mib"] == 40960
    assert server.client.post("/v1/nodes", json={"name": "b"}).status_code == 409
    assert server.client.post("/v1/nodes/b/cordon", json={"why": "fan"}).json()["condition"] == "cordoned"
    assert server.client.post("/v1/nodes/b/uncordon").json()["condition"] == "ready"
    assert server.client.post("/v1/nodes/b/drain").json()["condition"] == "draining"
    assert server.client.delete("/v1/nodes/b").status_code == 200
    assert server.client.post("/v1/nodes/b/cordon").status_code == 404
    assert "a name has letters" in server.client.post("/v1/nodes", json={"name": "../x"}).json()["detail"]
    assert "SSH" in server.client.post("/v1/nodes", json={"name": "ada@gpu1"}).json()["detail"]
    assert [n["name"] for n in server.client.get("/v1/nodes").json()["nodes"]] == ["here"]


def test_policy(server: Server) -> None:
    assert server.client.get("/v1/policy").json()["name"] == "fifo"
    assert server.client.put("/v1/policy", json={"name": "elastic-fifo"}).json()["name"] == "elastic-fifo"
    answer = server.client.put("/v1/policy", json={"name": "fif"})
    assert answer.status_code == 404
    assert "did you mean fifo?" in answer.json()["detail"]


def test_health_is_open_and_the_rest_is_described(server: Server) -> None:
    assert server.client.get("/v1/health", headers={"Authorization": ""}).json()["ready"] is True
    assert server.client.get("/v1/schema/job").json()["properties"]["gpus"]
    paths = server.client.get("/v1/openapi.json").json()["paths"]
    assert {"get", "post"} <= set(paths["/v1/jobs"])
    assert "/v1/runs/{run}/report" in paths
    assert "/v1/jobs/{job}/logs" in paths


def snapshot(tmp_path: Path, files: dict[str, str]) -> tuple[Packed, bytes]:
    for name, content in files.items():
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / name).write_text(content)
    buffer = io.BytesIO()
    return pack(tmp_path / "work", buffer, max_mib=10), buffer.getvalue()


def test_files_are_sent_once_and_checked(server: Server, tmp_path: Path, config: Config) -> None:
    packed, data = snapshot(tmp_path, {"train.py": "print(1)"})
    url = f"/v1/files/{packed.hash}"
    assert server.client.get(url).status_code == 404
    assert server.client.put(url, content=data).status_code == 201
    assert server.client.get(url).status_code == 200
    assert (config.files_dir / packed.hash / "train.py").read_text() == "print(1)"
    assert [path.name for path in config.files_dir.glob(".*")] == [".contents"]  # nothing half received
    server.submit(f"script: train.py\nfiles: {packed.hash}")


def test_a_missing_script_is_said_at_submit(server: Server, tmp_path: Path) -> None:
    packed, data = snapshot(tmp_path, {"train.py": "print(1)"})
    server.client.put(f"/v1/files/{packed.hash}", content=data)
    answer = server.client.post("/v1/jobs", json={"script": "trian.py", "files": packed.hash})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "script"
    assert "trian.py" in answer.json()["detail"]


def test_files_that_never_came_are_said_at_submit(server: Server) -> None:
    answer = server.client.post("/v1/jobs", json={"command": "x", "files": "0" * 64})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "files"


def test_wrong_or_evil_files_are_refused(server: Server, tmp_path: Path, config: Config) -> None:
    assert server.client.put(f"/v1/files/{'0' * 64}", content=b"x").status_code == 422
    assert server.client.put("/v1/files/..%2f..%2fx", content=b"x").status_code in (404, 422)
    evil = hashlib.sha256(b"not a tar" * 100).hexdigest()
    assert server.client.put(f"/v1/files/{evil}", content=b"not a tar" * 100).status_code == 400
    big = server.client.put(f"/v1/files/{'0' * 64}", content=b"x" * (3 << 20))
    assert big.status_code == 413
    assert "snapshot_max_mib" in big.json()["detail"]
    assert list(config.files_dir.iterdir()) == []


def test_a_full_disk_is_said(server: Server, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("swell.api.cluster._sync", full)
    answer = server.client.put(f"/v1/files/{'0' * 64}", content=b"x")
    assert answer.status_code == 507, answer.text
    assert "free some" in answer.json()["detail"]
    assert list(config.files_dir.iterdir()) == []


def tar_of(*entries: tuple[str, int, dict[str, str]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, size, headers in entries:
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = size, headers
            archive.addfile(info, io.BytesIO(bytes(size)))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (tar_of(("x", 0, {"GNU.sparse.map": "3221225472,0", "GNU.sparse.size": "3221225472"})), 413, "once unpacked"),
        (tar_of(*((str(i), 400_000, {}) for i in range(3))), 413, "once unpacked"),
        (tar_of(("a", 1, {}), ("a", 1, {})), 400, "twice"),
        (tar_of(("a", 1, {}), ("a/b", 1, {})), 400, "both a file and a directory"),
        (tar_of(("n" * 300, 1, {})), 400, "too long"),
        (tar_of(("x", 1, {"path": "n\ud800".encode("utf-8", "surrogatepass").decode("latin-1")})), 201, ""),
        (tar_of(("x", 1, {"size": "-512"})), 400, "claims to have -512 bytes"),
    ],
)
def test_uploads_stay_within_the_limits_once_unpacked(
    server: Server, config: Config, content: bytes, status: int, says: str
) -> None:
    answer = server.client.put(f"/v1/files/{hashlib.sha256(content).hexdigest()}", content=content)
    assert answer.status_code == status, answer.text
    assert says in answer.json().get("detail", "")
    assert status == 201 or list(config.files_dir.iterdir()) == []


def test_events_that_are_no_longer_kept_are_answered_as_such(server: Server) -> None:
    server.engine.first_seq = 3
    answer = server.client.get("/v1/events?after=0&follow=false")
    assert answer.status_code == 410
    assert "events 1 to 2 are no longer kept" in answer.json()["detail"]
    assert "after=2" in answer.json()["detail"]
    assert server.client.get("/v1/events", headers={"Last-Event-ID": "1"}).status_code == 410
    for still in ("after=2&", "last=9&", ""):
        assert server.client.get(f"/v1/events?{still}follow=false").status_code == 200


def test_a_report_with_a_number_that_no_database_takes_is_refused(server: Server) -> None:
    (job,) = server.submit()
    for raw in (
        b'{"epochs": [{"epoch": 1, "unsaved": 4999411220585770118368139935744}]}',
        b'{"rank": -9223372036854775809}',
    ):
        answer = server.client.post(f"/v1/runs/{job}.1/report", content=raw)
        assert (answer.status_code, "64 bits" in answer.json()["detail"]) == (422, True)
    named = b'{"series": {"loss-12345678901234567890": [[1.5, 0.25]]}}'  # a name may be of digits
    assert server.client.post(f"/v1/runs/{job}.1/report", content=named).status_code in (200, 404, 410)


def test_a_whole_number_may_be_written_with_a_point_and_true_is_none(server: Server) -> None:
    def asked(raw: bytes) -> int:
        return server.client.post("/v1/slots", content=raw, headers={"Content-Type": "application/json"}).status_code

    assert asked(b'{"gpus": 4.0}') == 200
    for wrong in (b'{"gpus": 4.5}', b'{"gpus": true}', b'{"gpus": "4"}', b'{"gpus": 1e300}'):
        assert asked(wrong) == 422
