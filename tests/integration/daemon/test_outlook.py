"""The daemon tells what will happen: intervals in the list, advice in explain, what-if."""

from __future__ import annotations

from pathlib import Path

from harness import daemon, eventually


def test_what_will_happen_is_told_before_it_does(tmp_path: Path) -> None:
    with daemon(tmp_path / "home", gpus=2) as served:
        [long] = served.submit(name="long", command="sleep 100", gpus=2, estimated_hours=2)
        eventually(lambda: served.get(f"/v1/jobs/{long}")["state"] == "running", 10)
        [waits] = served.submit(name="waits", command="sleep 1", gpus=1, estimated_hours=1)
        eventually(lambda: served.get(f"/v1/jobs/{waits}")["starts_s"], 15, what="a forecast")
        view = served.get(f"/v1/jobs/{waits}")
        low, high = view["starts_s"]
        said_s = view["submitted_s"] + 2 * 3600
        assert view["submitted_s"] + 600 < low < said_s < high, "not soon; what its user said of `long` lies within"
        assert view["eta_s"][0] >= low, "nothing ends before it starts"

        said = served.get(f"/v1/jobs/{waits}/explain")
        assert [a["name"] for a in said["ahead"]] == ["long"]
        assert said["starts"].startswith("starts in ")
        assert said["advice"], "a job that waits is told what would let it start"

        found = served.post("/v1/what-if", {"add_nodes": "1x2xslot"})
        effect = next(job for job in found["jobs"] if job["job"] == waits)
        assert effect["after"]["starts_in_s"] < 60 < effect["before"]["starts_in_s"]
        assert found["after"]["mean_s"] < found["before"]["mean_s"]
        status, problem = served.request("POST", "/v1/what-if", {"policy": "nonsense"})
        assert status == 404
        assert "elastic-fifo" in problem["detail"]
