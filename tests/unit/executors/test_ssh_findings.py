"""What facts about a machine mean."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core.resources import Node, Ssh, fingerprint
from swell.executors.ssh import findings
from swell.ports import Verdict

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


def disk(**changed: Any) -> dict[str, Any]:
    fact = {"fact": "disk", "path": "~/.swell", "kind": "ext4", "free_mib": 50_000, "trouble": "", "elsewhere": []}
    return {**fact, **changed}


def place(path: str, **changed: Any) -> dict[str, Any]:
    return {"path": path, "kind": "ext4", "free_mib": 1000, "trouble": "", **changed}


def test_the_fingerprint_is_the_one_that_ssh_shows() -> None:
    assert fingerprint(KEY) == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p", "smb3"]
)
def test_network_file_systems_are_refused_and_the_largest_local_disk_is_named(kind: str) -> None:
    elsewhere = [
        place("/scratch", free_mib=900_000, kind="nfs4"),
        place("/local", free_mib=800_000, trouble="Permission denied"),
        place("/data", free_mib=500_000),
        place("/var/tmp", free_mib=1000),
    ]
    check, _ = findings.of(disk(kind=kind, elsewhere=elsewhere), 0.0)
    assert check.verdict is Verdict.FAILED
    assert kind in check.words
    assert "--root /data/swell" in check.fix


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuse.overlayfs"])
def test_local_file_systems_are_fine(kind: str) -> None:
    check, space = findings.of(disk(kind=kind), 0.0)
    assert (check.verdict, space.verdict) == (Verdict.OK, Verdict.OK)


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    check, _ = findings.of(disk(trouble="Read-only file system"), 0.0)
    assert (check.verdict, "Read-only" in check.words) == (Verdict.FAILED, True)


def test_clocks_may_differ_a_little_and_never_fail() -> None:
    verdicts = [findings.of({"fact": "clock", "now_s": 100.0 + off}, 100.0)[0].verdict for off in (0, 4, -4, 90, -90)]
    assert verdicts == [Verdict.OK] * 3 + [Verdict.NOTE] * 2


def test_gpus_are_read_with_what_the_driver_does_not_report() -> None:
    rows = "0, GPU-a, NVIDIA A100-SXM4-40GB, 40960, 3\n1, GPU-b, Tesla V100, [N/A], [N/A]\n[GPU is lost], x\n"
    fact = {"fact": "gpus", "code": 0, "rows": rows, "apps": "GPU-b, 4242\n"}
    first, second = findings.gpus_in(fact)
    assert (first.type, first.memory_mib, first.others) == ("A100", 40960, False)
    assert (second.type, second.memory_mib, second.others) == ("V100", 0, True)


def test_memory_in_use_without_a_process_that_is_shown_is_somebody_elses() -> None:
    fact = {"fact": "gpus", "code": 0, "rows": "0, GPU-a, NVIDIA L4, 23034, 9000\n", "apps": ""}
    assert findings.gpus_in(fact)[0].others


@pytest.mark.parametrize(
    ("used_mib", "verdict", "words"), [(3, Verdict.OK, ""), (9000, Verdict.NOTE, "1 of 2 GPUs busy")]
)
def test_gpus_that_others_use_are_a_note_and_free_ones_are_fine(used_mib: int, verdict: Verdict, words: str) -> None:
    rows = f"0, GPU-a, NVIDIA L4, 23034, 3\n1, GPU-b, NVIDIA L4, 23034, {used_mib}\n"
    (check,) = findings.of({"fact": "gpus", "code": 0, "rows": rows, "apps": ""}, 0.0)
    assert check.verdict is verdict
    assert words in check.words
    assert ("busy" in check.words) is bool(words)


def test_what_a_person_declared_is_not_overwritten_by_what_was_measured() -> None:
    facts: list[dict[str, Any]] = [
        {"fact": "size", "cpus": 8, "memory_mib": 1000},
        {"fact": "address", "address": "10.0.0.1", "interface": "eth0"},
        {"fact": "gpus", "code": 127, "rows": "", "apps": ""},
    ]
    declared = Node(name="gpu1", ssh=Ssh(host="gpu1"), declared=("gpus",), gpus=())
    found = findings.as_found(declared, facts)
    assert (found.cpus, found.address, found.declared) == (8, "10.0.0.1", ("gpus",))
    assert found.interface == "eth0"


def test_without_the_ssh_library_nobody_is_sent_to_look_at_the_network() -> None:
    error = Exception("machines over SSH need the extra")
    error.__cause__ = ImportError("asyncssh")
    fix = findings.login_fix(Ssh(host="gpu9"), error)
    assert "pip of the environment that runs the daemon" in fix
    assert "ssh gpu9" not in fix
