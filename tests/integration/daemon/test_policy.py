"""The policy is changed while the daemon runs, with its options checked, also to one of one's own."""

from __future__ import annotations

from pathlib import Path

from harness import ROOT, daemon, eventually


def test_a_policy_of_ones_own_from_a_file_named_in_the_configuration(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    example = ROOT / "examples" / "policies" / "smallest_first.py"
    (home / "config.yaml").write_text(f"policy_files: [{example}]\n")
    with daemon(home, gpus=2) as served:
        assert "smallest-first" in served.get("/v1/policy")["policies"]
        status, problem = served.request("PUT", "/v1/policy", {"name": "smallest-first", "options": {"per_teem": 1}})
        assert status == 400
        assert "per_team" in str(problem)
        status, view = served.request("PUT", "/v1/policy", {"name": "smallest-first", "options": {"per_team": 1}})
        assert (status, view["name"]) == (200, "smallest-first")
        [first] = served.submit(name="first", command="sleep 60", gpus=1, user="ann")
        eventually(lambda: served.get(f"/v1/jobs/{first}")["state"] == "running", 30)  # and cannot be stopped
        [second] = served.submit(name="second", command="sleep 60", gpus=1, user="ann")
        passes = served.get("/v1/health")["passes"]
        eventually(lambda: served.get("/v1/health")["passes"] > passes, 30)
        assert served.get(f"/v1/jobs/{second}")["state"] == "queued"
        served.stop()
        served.start()
        assert served.get("/v1/policy")["name"] == "smallest-first"  # it is in the log


ASLEEP = """
import time

class Asleep:
    name = "asleep"
    elastic = False

    def decide(self, snapshot, memory, rng):
        if snapshot.jobs:
            time.sleep(3600)
        from swell.core.decision import Decision
        return Decision(grants={})


class Broken(Asleep):
    name = "broken"

    def decide(self, snapshot, memory, rng):
        if snapshot.jobs:
            raise KeyError("no such thing")
        return super().decide(snapshot, memory, rng)
"""


def test_a_policy_that_sleeps_or_crashes_blocks_neither_the_answers_nor_the_way_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "asleep.py").write_text(ASLEEP)
    (home / "config.yaml").write_text(f"policy_files: [{home / 'asleep.py'}]\n")
    with daemon(home, gpus=2) as served:
        for name in ("asleep", "broken"):
            served.request("PUT", "/v1/policy", {"name": name})
            [job] = served.submit(name="hello", command="sleep 60", gpus=1)
            if name == "broken":
                eventually(lambda: served.get("/v1/health")["deciding"], 10, what="health says so")
                assert "policy broken failed: KeyError" in served.get("/v1/health")["deciding"]
                assert "swell policy fifo" in served.get(f"/v1/jobs/{job}/explain")["trouble"]
            assert served.get(f"/v1/jobs/{job}")["state"] == "queued"
            [limited] = served.submit(name="short", command="sleep 60", gpus=1)
            served.post(f"/v1/jobs/{limited}/cancel")
            assert served.get(f"/v1/jobs/{limited}")["state"] == "cancelled"
            status, _ = served.request("PUT", "/v1/policy", {"name": "fifo"})
            assert status == 200
            eventually(lambda job=job: served.get(f"/v1/jobs/{job}")["state"] == "running", 10)  # type: ignore[misc]
            assert not served.get("/v1/health")["deciding"]
        served.request("PUT", "/v1/policy", {"name": "asleep"})
        served.submit(name="latest", command="true", gpus=1)
        assert served.stop() == 0, "a policy that never answers does not keep the daemon from stopping"
