"""What the command line adds to a job before it sends it."""

from pathlib import Path
from typing import IO, Any

import pytest

from swell.cli.named_files import NothingToRun, named_but_left_out
from swell.cli.sending import described, prepare
from swell.client.find import Address
from swell.client.http import Client
from swell.jobfile.files import Packed
from swell.jobfile.unpacking import SnapshotError


class FakeClient(Client):
    def __init__(self, local: bool = True) -> None:
        super().__init__(Address(url="http://127.0.0.1:1", token="t", local=local))
        self.sent: dict[str, bytes] = {}

    def has_files(self, content_hash: str) -> bool:
        return content_hash in self.sent

    def send_files(self, content_hash: str, archive: IO[bytes], size: int) -> None:
        data = archive.read()
        assert len(data) == size
        self.sent[content_hash] = data

    def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        assert path == "/v1/jobs/validate?times=false"
        return {"problems": []}


@pytest.fixture(autouse=True)
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SWELL_HOME", str(tmp_path / "home"))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("1")
    (tmp_path / "sub").mkdir()
    return tmp_path


def test_the_snapshot_is_sent_once_and_named_in_every_job() -> None:
    client = FakeClient()
    documents: list[dict[str, Any]] = [{"command": "true"}, {"command": "true", "workdir": "sub"}]
    packed = prepare(client, documents, snapshot=True, home=None)
    assert packed is not None
    assert [d["files"] for d in documents] == [packed.hash] * 2
    prepare(client, [{"command": "true"}], snapshot=True, home=None)
    assert list(client.sent) == [packed.hash]


def test_a_job_in_a_directory_of_its_own_needs_no_snapshot() -> None:
    client = FakeClient()
    assert prepare(client, [{"command": "true", "workdir": "/srv"}], snapshot=True, home=None) is None
    assert client.sent == {}


def test_in_place_is_this_directory(shell: Path) -> None:
    document = {"script": "train.py"}
    assert prepare(FakeClient(), [document], snapshot=False, home=None) is None
    assert document["workdir"] == f"{shell}"


def test_in_place_a_missing_script_is_said_at_once() -> None:
    with pytest.raises(NothingToRun, match=r"trian\.py"):
        prepare(FakeClient(), [{"script": "trian.py"}], snapshot=False, home=None)


def test_links_that_lead_out_are_told(shell: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shell / "data").symlink_to("/etc")
    prepare(FakeClient(), [{"command": "true"}], snapshot=True, home=None)
    assert "data" in capsys.readouterr().err


def test_the_settings_limit_holds(shell: Path) -> None:
    (shell / "home").mkdir()
    (shell / "home" / "config.yaml").write_text("snapshot_max_mib: 1\n")
    (shell / "big").write_bytes(b"0" * (2 << 20))
    with pytest.raises(SnapshotError, match="snapshot_max_mib"):
        prepare(FakeClient(), [{"command": "true"}], snapshot=True, home=None)


@pytest.mark.parametrize(
    "command", ["python train.py data/x.csv", ["python", "train.py", "--data=data"], "cat 'data/x.csv' | head"]
)
def test_a_path_that_the_command_names_and_the_copy_lacks_is_said_with_the_fix(
    shell: Path, capsys: pytest.CaptureFixture[str], command: str | list[str]
) -> None:
    (shell / ".swellignore").write_text("data/\n")
    (shell / "data").mkdir()
    (shell / "data" / "x.csv").write_text("1")
    prepare(FakeClient(), [{"command": command}], snapshot=True, home=None)
    said = capsys.readouterr().err
    assert "the command names data" in said
    assert "(.swellignore leaves it out)" in said
    assert "--include data" in said
    assert "--no-snapshot" in said
    prepare(FakeClient(), [{"command": command, "include": ["data"]}], snapshot=True, home=None)
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_paths_that_are_there_or_nowhere(shell: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(FakeClient(), [{"command": "python train.py out/ /etc -x ."}], snapshot=True, home=None)
    assert capsys.readouterr().err == ""


def test_submitting_from_a_home_directory_is_warned_of(
    shell: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(shell))
    (shell / ".bashrc").write_text("x")
    packed = prepare(FakeClient(), [{"command": "true"}], snapshot=True, home=None)
    assert "this is your home directory" in capsys.readouterr().err
    assert packed is not None
    assert packed.names == {"train.py"}
    assert described(packed) == f"snapshot {packed.short}: 1 file, 1 B; left out: .bashrc"


def test_a_word_of_a_command_may_be_longer_than_any_file_name(tmp_path: Path) -> None:
    packed = Packed(hash="", size=0, names=frozenset())
    assert named_but_left_out(tmp_path, packed, {"command": ["bash", "-c", "x" * 5000]}) == []
