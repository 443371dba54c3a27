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
        jobs = [served.submit(name=f"j{i}", command="sleep 20", gpus=1, user="ann")[0] for i in range(2)]
        eventually(lambda: [served.get(f"/v1/jobs/{job}")["state"] for job in jobs] == ["running", "queued"], 10)
        served.stop()
        served.start()
        assert served.get("/v1/policy")["name"] == "smallest-first"  # it is in the log
