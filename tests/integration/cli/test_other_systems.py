"""What the documents of the five systems let their users type, typed against a real daemon: it works, or names our way.

`docs/how-to/coming-from.md` shows the same rows; a test holds the page to them."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import ROOT, Daemon
from integration.cli.conftest import Shell

PAGE = ROOT / "docs" / "how-to" / "coming-from.md"
NAS_JOB = "name: cifar\ncommand: echo trained\n"
NAS_KUBERNETES_JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: cifar}\nspec: {template: {}}\n"
MPI_JOB = "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: mnist}\nspec: {slotsPerWorker: 1}\n"
SCHEDULEARN_JOB = {"jobname": "a", "jobtype": "x", "command": "echo hi", "requiredgpus": 2}


@dataclass(frozen=True, slots=True)
class Row:
    """Their command, the words after `swell` (empty: the same program is installed), what comes back."""

    theirs: str
    ours: str
    answer: str
    code: int = 0


ROWS = [
    Row("python daemon.py", "daemon", "runs already"),
    Row("python submit job.yaml", "submit job.yaml", "job "),
    Row("python submit job_repo/experiment.yaml", "submit job_repo/experiment.yaml", "Kubernetes object (Job)", 2),
    Row("python client.py submit job.yaml", "submit job.yaml", "job "),
    Row("python client.py status", "status", "cifar"),
    Row("python client.py top", "top", "cifar"),
    Row("python client.py simulate", "simulate --help", "swell sim [OPTIONS]"),
    Row("python client.py delete cifar", "delete cifar --yes", "removed"),
    Row("./bin/cmd create -f mpijob.yaml", "create -f mpijob.yaml", "a Kubernetes object (MPIJob), not a job file", 2),
    Row("./bin/cmd create -f job.yaml", "create -f job.yaml", "job "),
    Row("./bin/cmd get jobs", "get jobs", "WAITED"),
    Row("kubectl logs cifar", "logs cifar", "trained"),
    Row("./bin/cmd delete cifar", "delete cifar --yes", "removed"),
    Row("FLASK_APP=app.py FLASK_ENV=development flask run", "up", "runs already"),
    Row("POST test.json", "submit test.json", "requiredgpus: there is no such field (write gpus: 2)", 2),
    Row("GET ?state=completed", "ls --state=completed", ""),
]
SCRIPTS = [
    Row("scheduler-state --all_users --nlast 5 --extended", "", "exit_code: 0"),
    Row("scheduler-get-logs last", "", "trained"),
    Row("scheduler-cancel-job last", "", "has ended already", 2),
    Row("execute_batch batch_script.sh --no-gpu-required", "", "finished: "),
    Row("execute_batch batch_script.sh --memory-required=10 --gpu-memory-required=0 --no-reserve-gpu", "", "skipping"),
    Row("execute_batch batch_script.sh --num-cpus=1 --gpu-utilization=0.5", "", "skipping"),
    Row("execute_batch batch_script.sh --reserve", "", "skipping"),
    Row("execute_batch batch_script.sh --memory-required=2000", "", "skipping"),
    Row("execute_batch batch_script.sh --machines machine.yaml machine2.yaml", "", "machine.yaml", 2),
]
REST = [
    ("POST /api/v1/post", "POST /v1/jobs"),
    ("GET /api/v1/get", "GET /v1/jobs?state=running"),
    ("DELETE /api/v1/delete", "DELETE /v1/jobs/ID"),
    ("POST /training", "POST /v1/jobs"),
    ("PUT /algorithm", "PUT /v1/policy"),
]


@pytest.fixture(scope="module")
def work(served: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("typed")
    (folder / "job.yaml").write_text(NAS_JOB)
    (folder / "mpijob.yaml").write_text(MPI_JOB)
    (folder / "job_repo").mkdir()
    (folder / "job_repo" / "experiment.yaml").write_text(NAS_KUBERNETES_JOB)
    (folder / "test.json").write_text(json.dumps(SCHEDULEARN_JOB))
    (folder / "batch_script.sh").write_text('echo "one job" && echo "a combined job"\n')
    sh = Shell(served.home, folder)
    sh("run", "--name", "cifar", "--", "echo trained", timeout=120)
    return sh


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.theirs)
def test_a_verb_of_theirs_works_or_names_ours(work: Shell, row: Row) -> None:
    if row.ours.startswith("delete"):
        work("wait", "cifar", timeout=120)
    done = work(*row.ours.split(), code=row.code, timeout=120)
    assert row.answer in done.out + done.err


@pytest.mark.parametrize("row", SCRIPTS, ids=lambda row: row.theirs)
def test_a_program_of_theirs_is_installed_and_takes_its_options(work: Shell, row: Row) -> None:
    program, *args = row.theirs.split()
    if program.startswith("scheduler"):
        work("run", "--name", "guide", "--", "echo trained", timeout=120)
    command = [str(Path(sys.executable).with_name(program)), *args]
    done = subprocess.run(
        command, cwd=work.work, env=work.environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, row.answer in done.stdout + done.stderr) == (row.code, True), done


@pytest.mark.parametrize(("theirs", "ours"), REST)
def test_an_address_of_theirs_names_ours(served: Daemon, theirs: str, ours: str) -> None:
    method, path = theirs.split()
    status, answer = served.request(method, path)
    assert status == 404
    assert ours in answer["detail"]


CURL = 'curl -X POST -H "Content-Type: application/json" -d @./test.json http://localhost:5000/api/v1/post'


def test_curl_as_it_stands_learns_of_tokens_first(served: Daemon) -> None:
    """As Schedulearn's page has it: without a token."""
    assert f"`{CURL}`" in PAGE.read_text()
    host, port = served.address
    request = urllib.request.Request(
        f"http://{host}:{port}/api/v1/post", json.dumps(SCHEDULEARN_JOB).encode(), method="POST"
    )
    request.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 401
    assert "Authorization: Bearer" in json.loads(refused.value.read())["detail"]


def test_the_page_has_every_row() -> None:
    page = PAGE.read_text()
    missing = [row.theirs for row in (*ROWS, *SCRIPTS) if f"`{row.theirs}`" not in page]
    missing += [theirs for theirs, _ in REST if f"`{theirs}`" not in page]
    assert not missing
