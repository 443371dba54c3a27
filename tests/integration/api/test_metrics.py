"""/metrics: every metric is documented and exercised, alerts and dashboard ask for what there is, series are few."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from integration.api.conftest import FakeEngine, Server
from swell.api.app import create_app
from swell.api.metrics import MAX_JOBS, MAX_NODES, Metrics
from swell.config import Config
from swell.core import events as ev
from swell.core.idle import GpuUse
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.observations import GpusMeasured
from swell.core.resources import Allocation, Contact, Gpu, Node, NodeCondition, Part
from swell.daemon.timing import PassTimes

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
DOCUMENTED = dict(
    re.findall(r"^\| `(swell_\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE)
)
OF_SERVER = {"up"}
Labels = tuple[tuple[str, str], ...]


class Cluster:
    """An engine that is watched, two machines, and what happens on them."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.metrics = Metrics(lambda: self.engine)
        self.engine.watch(self.metrics.happened, self.metrics.passed)
        for name in ("a", "b"):
            gpus = tuple(Gpu(index=i, type="A100") for i in range(4))
            self.engine.record(ev.NodeObserved(node=Node(name=name, gpus=gpus), at_s=0.0))
        self.engine.record(ev.PolicySet(name="fifo", placer="consolidated", at_s=0.0))

    def submit(self, job: int, at_s: float = 100.0, **spec: Any) -> None:
        said: dict[str, Any] = {
            "name": f"j{job}",
            "command": ("x",),
            "gpus": GpuRequest(min=1, max=4),
            "uses_library": True,
            **spec,
        }
        self.engine.record(ev.JobSubmitted(job=job, spec=JobSpec(**said), at_s=at_s))

    def give(self, job: int, attempt: int, at_s: float, **gpus: tuple[int, ...]) -> RunId:
        parts = tuple(Part(node=node, gpus=indices) for node, indices in gpus.items())
        run = RunId(job, attempt)
        self.engine.record(
            ev.RunPlanned(run=run, allocation=Allocation(parts=parts, gpu_type="A100"), at_s=at_s),
            ev.RunStarted(run=run, at_s=at_s + 1),
        )
        return run

    def stop(self, run: RunId, why: ev.StopWhy, at_s: float) -> None:
        self.engine.record(
            ev.RunStopRequested(run=run, why=why, at_s=at_s),
            ev.RunEnded(run=run, reason=ev.ExitReason.STOPPED, at_s=at_s + 1),
        )

    def values(self) -> dict[tuple[str, Labels], float]:
        """Series by name and labels."""
        found: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(generate_latest(self.metrics.registry).decode()):
            for sample in family.samples:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def value(self, series: str, /, **labels: str) -> float:
        return self.values()[series, tuple(sorted(labels.items()))]


@pytest.fixture
def cluster() -> Cluster:
    """A job that waits, grows, is preempted, moves and completes; and others that are cancelled, removed, waiting."""
    made = Cluster()
    made.submit(1, epochs=4)
    first = made.give(1, 1, 160.0, a=(0,))
    made.engine.record(ev.TrainingBegan(run=first, at_s=162.0))
    made.engine.record(ev.EpochEnded(run=first, at_s=170.0, epoch=1, epoch_s=8.0, gpus=1, gpu_memory_mib=512))
    made.stop(first, ev.StopWhy.RESIZING, 170.0)
    second = made.give(1, 2, 172.0, a=(0, 1))
    made.engine.record(ev.TrainingBegan(run=second, at_s=177.0))
    made.stop(second, ev.StopWhy.PREEMPTED, 180.0)
    third = made.give(1, 3, 200.0, b=(0, 1))
    made.engine.record(ev.RunEnded(run=third, reason=ev.ExitReason.FINISHED, at_s=300.0, exit_code=0))
    made.submit(2)
    made.engine.record(ev.JobCancelled(job=2, at_s=301.0), ev.JobRemoved(job=2, at_s=302.0))
    made.submit(3, epochs=10)
    run = made.give(3, 1, 310.0, a=(0, 1), b=(0,))
    made.engine.record(ev.EpochEnded(run=run, at_s=320.0, epoch=5, count=5, gpu_memory_mib=2048))
    made.submit(4, gpus=GpuRequest(types=("A100",)))
    made.submit(5, gpus=GpuRequest(min=0, max=0))
    made.engine.record(ev.NodeConditionChanged(node="b", condition=NodeCondition.CORDONED, at_s=320.0))
    made.engine.record(
        ev.NodeObserved(node=Node(name="c"), at_s=320.0),
        ev.NodeContactChanged(node="c", contact=Contact.AWAY, at_s=330.0),
    )
    for ago_s in range(2000, -1, -50):
        use = {0: GpuUse(percent=0, memory_mib=1024), 1: GpuUse(percent=50, memory_mib=1024)}
        made.engine.idle_gpus.measured(GpusMeasured(node="a", use=use, at_s=made.engine.now_s() - ago_s))
    asyncio.run(made.engine.idle_gpus.look())
    made.metrics.passed(PassTimes(policy="fifo", whole_s=0.02, policy_s=0.01, placement_s=0.002))
    made.metrics.requests.labels("submit", "ok").observe(0.01)
    return made


def test_nothing_is_kept_of_a_job_that_has_ended(cluster: Cluster) -> None:
    assert set(cluster.metrics._held) == {3}


def test_what_happened_is_counted(cluster: Cluster) -> None:
    value = cluster.value
    assert value("swell_jobs_submitted_total") == 5
    assert value("swell_jobs_ended_total", state="completed") == 1
    assert value("swell_jobs_ended_total", state="cancelled") == 1
    assert value("swell_jobs_removed_total") == 1
    assert value("swell_runs_planned_total", gpu_type="A100") == 4
    assert value("swell_runs_ended_total", reason="stopped") == 2
    assert value("swell_stop_requests_total", why="resizing") == 1
    assert value("swell_preemptions_total", gpu_type="A100") == 1
    assert value("swell_resizes_total", direction="grow", gpu_type="A100") == 1
    assert value("swell_migrations_total", gpu_type="A100") == 1
    assert value("swell_workers_migrated_total", gpu_type="A100") == 2
    assert value("swell_epochs_total") == 6
    assert value("swell_lost_seconds_total", reason="stopped") == cluster.engine.state.lost_s > 0
    assert value("swell_lost_seconds_total", reason="finished") == 0
    assert value("swell_job_wait_seconds_sum") == 60.0 + 210.0
    assert value("swell_job_completion_seconds_sum") == 200.0
    assert value("swell_job_completion_seconds_count") == 1
    assert value("swell_resize_cost_seconds_count") == 1
    assert value("swell_resize_cost_seconds_sum") == pytest.approx(5.0 + 1.0)
    assert value("swell_policy_seconds_sum", policy="fifo") == pytest.approx(0.01)


def test_what_is_is_shown(cluster: Cluster) -> None:
    value = cluster.value
    assert value("swell_jobs", state="running", gpu_type="A100") == 1
    assert value("swell_jobs", state="queued", gpu_type="A100") == 1
    assert value("swell_jobs", state="queued", gpu_type="none") == 1
    assert value("swell_jobs_cross_node", gpu_type="A100") == 1
    assert value("swell_gpus", gpu_type="A100") == 8
    assert value("swell_gpus_in_use", gpu_type="A100") == 3
    assert value("swell_gpus_unusable", gpu_type="A100") == 3
    assert value("swell_nodes", condition="cordoned") == 1
    assert value("swell_nodes_contact", contact="here") == 2
    assert value("swell_nodes_contact", contact="away") == 1
    assert value("swell_node_gpus_in_use", node="a") == 2
    assert value("swell_node_ready", node="b") == 0
    assert value("swell_node_gpu_utilisation_ratio", node="a") == 0.25
    assert value("swell_node_gpu_memory_used_bytes", node="a") == 2048 * 2**20
    assert (value("swell_gpus_idle"), value("swell_jobs_idle")) == (1, 1)
    assert value("swell_job_gpus", job="3", name="j3", user="") == 3
    assert value("swell_job_progress_ratio", job="3", name="j3", user="") == 0.5
    assert value("swell_job_gpu_memory_bytes", job="3", name="j3", user="") == 2048 * 2**20


def test_every_metric_is_documented_and_exercised(cluster: Cluster) -> None:
    families = {}
    for family in text_string_to_metric_families(generate_latest(cluster.metrics.registry).decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        families[name] = family
    assert {name: family.type for name, family in families.items()} == DOCUMENTED
    assert [name for name, family in families.items() if not family.samples] == []


def asked_for() -> Iterator[tuple[str, str]]:
    """(where, expression) of every alert and panel."""
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}
            yield rule["alert"], rule["expr"]
    board = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_alerts_and_dashboard_ask_for_series_that_there_are(cluster: Cluster) -> None:
    series: dict[str, set[str]] = {}
    for name, labels in cluster.values():
        series.setdefault(name, set()).update(key for key, _ in labels)
    asked = list(asked_for())
    assert len(asked) > 20
    for where, expression in asked:
        names = re.findall(r"\b(swell_\w+|up)\b", expression)
        assert names, where
        for name in set(names) - OF_SERVER:
            assert name in series, f"{where} asks for {name}"
            for labels in re.findall(rf"{name}\{{([^}}]*)\}}", expression):
                assert set(re.findall(r"(\w+)\s*[=!]", labels)) <= series[name], where
        for labels in re.findall(r"by \(([^)]*)\)", expression):
            known = set().union(*(series[name] for name in names if name in series))
            assert {label.strip() for label in labels.split(",")} <= known, where
        assert expression.count("(") == expression.count(")"), where


@pytest.fixture
def promtool(tmp_path: Path) -> Callable[..., str]:
    """Runs it on documents; fails with what it says."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool here: make system-packages (Debian's package prometheus)")

    def run(*words: str, **documents: object) -> str:
        for name, document in documents.items():
            (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(document))
        files = [str(tmp_path / f"{name}.yml") for name in documents]
        done = subprocess.run([program, *words, *files[:1]], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def line_of(series: tuple[str, Labels], *values: float) -> dict[str, str]:
    """A series as promtool is given it: a sample a minute."""
    name, labels = series
    text = ",".join(f'{key}="{value}"' for key, value in labels)
    return {"series": f"{name}{{{text}}}", "values": " ".join(f"{value:.17g}" for value in values)}


def test_every_panel_shows_something(cluster: Cluster, promtool: Callable[..., str]) -> None:
    """By Prometheus' own engine, over a quarter of an hour in which all that was counted happens once more a minute."""
    counted = ("_total", "_bucket", "_sum", "_count")
    series = [
        line_of(one, *(value * (n if one[0].endswith(counted) else 1) for n in range(1, 17)))
        for one, value in cluster.values().items()
    ]
    board = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    checks = [
        {
            "expr": f"count({asked_for.replace('$__rate_interval', '5m')}) > bool 0",
            "eval_time": "15m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for asked_for in asked
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": checks}
    promtool("test", "rules", panels={"tests": [test]})


ALERTS: dict[str, tuple[dict[str, list[float]], dict[str, list[float]]]] = {
    "SwellDown": ({'up{job="swell"}': [0]}, {'up{job="swell"}': [1]}),
    "SwellDegraded": ({"swell_degraded": [1]}, {"swell_degraded": [0]}),
    "SwellMachineLost": (
        {'swell_nodes_contact{contact="here"}': [3], 'swell_nodes_contact{contact="away"}': [1]},
        {'swell_nodes_contact{contact="here"}': [4], 'swell_nodes_contact{contact="away"}': [0]},
    ),
    "SwellWorkLost": (
        {'swell_lost_seconds_total{reason="killed"}': [0, 100]},
        {'swell_lost_seconds_total{reason="killed"}': [0, 10]},
    ),
    "SwellGpusUnusable": (
        {'swell_gpus_unusable{gpu_type="A100"}': [2]},
        {'swell_gpus_unusable{gpu_type="A100"}': [0]},
    ),
    "SwellIdleWhileJobsWait": (
        {"swell_gpus": [8], "swell_gpus_in_use": [4], "swell_gpus_unusable": [1], 'swell_jobs{state="queued"}': [1]},
        {"swell_gpus": [8], "swell_gpus_in_use": [7], "swell_gpus_unusable": [1], 'swell_jobs{state="queued"}': [1]},
    ),
    "SwellGpusHeldIdle": (
        {"swell_gpus_idle": [2], 'swell_jobs{state="queued"}': [1]},
        {"swell_gpus_idle": [2], 'swell_jobs{state="queued"}': [0]},
    ),
    "SwellLongWaits": (
        {
            'swell_job_wait_seconds_bucket{le="3600"}': [0, 1],
            'swell_job_wait_seconds_bucket{le="43200"}': [0, 2],
            'swell_job_wait_seconds_bucket{le="+Inf"}': [0, 2],
        },
        {
            'swell_job_wait_seconds_bucket{le="3600"}': [0, 2],
            'swell_job_wait_seconds_bucket{le="43200"}': [0, 2],
            'swell_job_wait_seconds_bucket{le="+Inf"}': [0, 2],
        },
    ),
    "SwellManyFailures": (
        {'swell_jobs_ended_total{state="failed"}': [0, 1]},
        {'swell_jobs_ended_total{state="completed"}': [0, 1]},
    ),
    "SwellSlowDecisions": (
        {
            'swell_pass_seconds_bucket{le="5"}': [0, 1],
            'swell_pass_seconds_bucket{le="10"}': [0, 2],
            'swell_pass_seconds_bucket{le="+Inf"}': [0, 2],
        },
        {
            'swell_pass_seconds_bucket{le="5"}': [0, 2],
            'swell_pass_seconds_bucket{le="10"}': [0, 2],
            'swell_pass_seconds_bucket{le="+Inf"}': [0, 2],
        },
    ),
    "SwellThrashing": (
        {"swell_resize_cost_seconds_sum": [0, 30], 'swell_jobs{state="running"}': [2]},
        {"swell_resize_cost_seconds_sum": [0, 3], 'swell_jobs{state="running"}': [2]},
    ),
}
"""What each alert must fire at, and what it must not. [value], or [at first, more each minute], for two hours."""


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "is quiet"])
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_when_it_should_and_only_then(alert: str, fires: bool, promtool: Callable[..., str]) -> None:
    given = ALERTS[alert][0 if fires else 1]
    series = [{"series": name, "values": f"{value[0]}+{(*value, 0)[1]}x150"} for name, value in given.items()]
    # A comparison with the alert's own series: what labels and words it fires with is not this test's concern.
    check = {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
        "eval_time": "150m",
        "exp_samples": [{"labels": "{}", "value": int(fires)}],
    }
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [check]}
    promtool("test", "rules", alert={"rule_files": [str(MONITORING / "alerts.yml")], "tests": [test]})


def test_every_alert_is_tried() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    assert {rule["alert"] for group in rules["groups"] for rule in group["rules"]} == set(ALERTS)


def test_the_scrape_configuration_names_the_path_and_a_token() -> None:
    found = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    (scrape,) = found["scrape_configs"]
    assert scrape["metrics_path"] == "/metrics"
    assert scrape["authorization"]["type"] == "Bearer"
    assert (MONITORING / found["rule_files"][0]).exists()


def test_never_more_series_for_more_jobs_and_machines() -> None:
    made = Cluster()
    for job in range(1, 10_001):
        made.submit(job, name=f"name-{job}", user=f"user-{job}")
    for number in range(MAX_NODES + 100):
        gpus = tuple(Gpu(index=i, type="A100") for i in range(2))
        made.engine.record(ev.NodeObserved(node=Node(name=f"n{number:04}", gpus=gpus), at_s=0.0))
    for job in range(1, 401):
        made.give(job, 1, 100.0, **{f"n{job:04}": (0,)})
    series = made.values()
    of_jobs = {dict(labels)["job"] for _, labels in series if "job" in dict(labels)}
    assert len(of_jobs) == MAX_JOBS
    assert len({dict(labels)["node"] for _, labels in series if "node" in dict(labels)}) == MAX_NODES
    assert len(series) < 2500
    assert made.value("swell_jobs", state="queued", gpu_type="any") == 9600


# -- its token --------------------------------------------------------------------------------------------------------


def scrape(server: Server, path: str, token: str) -> int:
    return httpx.get(f"{server.url}{path}", headers={"Authorization": f"Bearer {token}"}).status_code


def test_the_scrape_token_opens_the_metrics_and_nothing_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.client.get("/v1/health")  # the first request puts the guard in place
    guard: Any = server.app.middleware_stack
    while not hasattr(guard, "_metrics_token"):
        guard = guard.app
    monkeypatch.setattr(guard, "_metrics_token", "m" * 40)
    assert scrape(server, "/metrics", "m" * 40) == 200
    assert scrape(server, "/metrics", "wrong") == 401
    assert scrape(server, "/v1/jobs", "m" * 40) == 401
    assert httpx.get(f"{server.url}/metrics").status_code == 401
    assert server.client.get("/metrics").headers["content-type"].startswith("text/plain")


def test_requests_are_timed_by_what_they_do() -> None:
    app = create_app(FakeEngine(), "t" * 40, Config())
    transport = httpx.ASGITransport(app=app)

    async def ask() -> str:
        headers = {"Authorization": f"Bearer {'t' * 40}", "Content-Type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            await client.post("/v1/jobs", json={"command": "x"})
            await client.post("/v1/jobs", json={"command": "x", "gpus": -1})
            await client.post("/v1/jobs/1/cancel")
            await client.delete("/v1/jobs/1")
            return (await client.get("/metrics")).text

    text = asyncio.run(ask())
    for action, outcome in (("submit", "ok"), ("submit", "refused"), ("cancel", "ok"), ("remove", "ok")):
        assert f'swell_request_seconds_count{{action="{action}",outcome="{outcome}"}} 1.0' in text
