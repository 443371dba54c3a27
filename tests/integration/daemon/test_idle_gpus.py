"""A job that holds GPUs and does not use them is named by a real daemon, with a stand-in for the driver's library."""

from __future__ import annotations

from pathlib import Path

from harness import daemon, eventually
from stubs.nvml import FakeGpu, NvmlStub


def test_people_see_which_job_holds_gpus_idle(tmp_path: Path) -> None:
    stub = NvmlStub(tmp_path)
    stub.write([FakeGpu(utilisation=0, used_mib=300), FakeGpu(utilisation=90), FakeGpu()])
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("idle_gpus: {warn_after_s: 1}\n")
    with daemon(home, args=("--gpus", "auto"), env=stub.env) as served:
        idle, opted_out = ({"command": ["sleep", "600"], "gpus": n, "may_idle": n == 1} for n in (2, 1))
        job = served.post("/v1/jobs", idle)["jobs"][0]["id"]
        other = served.post("/v1/jobs", opted_out)["jobs"][0]["id"]

        def named() -> bool:
            return bool(served.get(f"/v1/jobs/{job}")["idle"])

        eventually(named, 60, what="the list names the job")
        line = served.get(f"/v1/jobs/{job}")
        assert line["idle"]["gpus"] == 1
        assert line["why"].startswith("1 of its 2 GPUs have been idle for ")
        assert served.get(f"/v1/jobs/{job}/explain")["sentences"][0].startswith("1 of its 2 GPUs have been idle")
        assert served.get(f"/v1/jobs/{other}")["idle"] is None
        eventually(lambda: served.get("/v1/nodes")["nodes"][0]["gpus"][1]["utilisation_percent"] == 90, 60)
        assert served.get("/v1/nodes")["nodes"][0]["gpus"][0]["memory_used_mib"] == 300
        stub.write([FakeGpu(utilisation=60), FakeGpu(utilisation=90), FakeGpu()])
        eventually(lambda: not named(), 60, what="it is busy again")
