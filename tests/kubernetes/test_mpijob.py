"""An elastic MPIJob on a real cluster: it grows from one worker to three over two nodes in place, makes room, and ends;
each epoch once, with the losses of an undisturbed training. The operator and horovodrun are played by the tests;
objects, pods and the training are real."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness import eventually
from integration.sdk.test_numpy_resized import SCRIPT
from kubernetes.cluster import NAMESPACE, Cluster
from kubernetes.lab import PATIENT_S, Lab, lab
from kubernetes.mpi_operator import DNS, operating
from swell.core.resources import Part
from unit.executors.pods.test_mpijobs import made, order

pytestmark = [pytest.mark.kubernetes, pytest.mark.alone, pytest.mark.timeout(600)]
EPOCHS, STEPS = 1500, 2
HOROVODRUN = '''#!/usr/bin/python3
"""Plays horovodrun: asks its host discovery script between steps, and shares each step out over the hosts it names."""
import os, socket, subprocess, sys, time
from multiprocessing.connection import Client
import numpy as np
import swell
from train import PIECES, SAMPLES, make_data, new_weights

script = sys.argv[sys.argv.index("--host-discovery-script") + 1]
peers = {}

def discovered():
    names = subprocess.run([script], capture_output=True, text=True, check=True).stdout.split()
    for name in [name for name in peers if name not in names]:
        peers.pop(name).close()
    for name in names:
        if name not in peers:
            try:
                socket.create_connection((name, 7000), 2.0).close()  # a name may still be that of a pod that is gone
                peers[name] = Client((name, 7000))
            except OSError as error:
                print(f"{name} does not answer yet: {error}", flush=True)
    return [peers[name] for name in names if name in peers]

def shared_out(weights, batch):
    while True:
        hosts = discovered()
        try:
            for rank, peer in enumerate(hosts):
                peer.send((weights, batch, range(rank * PIECES // len(hosts), (rank + 1) * PIECES // len(hosts))))
            results = [item for peer in hosts for item in peer.recv()]
        except (OSError, EOFError):
            peers.clear()
            continue
        if results:
            return results, len(hosts)
        time.sleep(0.1)

with swell.training(epochs=EPOCHS) as run:
    weights = run.load(default=new_weights())
    for epoch in run.epochs():
        losses = []
        for batch in run.steps(np.array_split(np.arange(SAMPLES), STEPS)):
            results, workers = shared_out(weights, batch)
            for name in weights:
                total = np.zeros_like(weights[name])
                for _, piece in results:
                    total += piece[name]
                weights[name] -= 0.05 / len(batch) * total
            losses.append(float(sum(loss for loss, _ in results) / len(batch)))
            time.sleep(0.0 if os.path.exists("/swell/data/hurry") else 0.15)
        loss = sum(losses) / len(losses)
        run.log(loss=loss)
        run.save(weights)
        print(f"epoch {epoch} loss {loss!r} workers {workers}", flush=True)
'''
HOST = '''
"""Plays the SSH server of a worker: computes what it is sent."""
import threading
from multiprocessing.connection import Listener
from train import PIECES, gradient, make_data

inputs, targets = make_data()

def serve(peer):
    try:
        while True:
            weights, batch, pieces = peer.recv()
            size = len(batch) // PIECES
            parts = [batch[piece * size : (piece + 1) * size] for piece in pieces]
            peer.send([gradient(weights, inputs[part], targets[part]) for part in parts])
    except (OSError, EOFError):
        pass

with Listener(("0.0.0.0", 7000), backlog=16) as listener:
    while True:
        threading.Thread(target=serve, args=(listener.accept(),), daemon=True).start()
'''


def submitted(found: Lab) -> int:
    shutil.copy(SCRIPT, found.work / "train.py")
    program = found.work / "horovodrun"
    program.write_text(HOROVODRUN.replace("EPOCHS", str(EPOCHS)).replace("STEPS", str(STEPS)), encoding="ascii")
    program.chmod(0o755)
    (found.work / "host.py").write_text(HOST, encoding="ascii")
    return found.submit(
        name="elastic",
        command=["python3", "train.py"],
        gpus="1-3",
        launcher="horovod",
        epochs=EPOCHS,
        uses_library=True,
        env={"PATH": ".:/usr/local/bin:/usr/bin:/bin"},
        kubernetes={"worker_command": "python3 host.py", "overrides": DNS},
    )


def workers_in_log(found: Lab, job: int) -> int:
    """That the last epoch was shared out over."""
    lines = found.lines(job)
    return lines[-1][2] if lines else 0


def until_shared(found: Lab, job: int, count: int) -> None:
    eventually(
        lambda: workers_in_log(found, job) == count,
        PATIENT_S,
        what=f"an epoch by {count} workers: {found.lines(job)[-2:]}, {found.job(job)}",
        every_s=0.3,
    )


def uid_of(found: Lab, job: int, worker: int) -> str:
    select = f"{found.label_of(job)},training.kubeflow.org/replica-index={worker}"
    return found.kubectl("get", "pods", "-l", select, "-o", "jsonpath={.items[*].metadata.uid}")


def test_an_mpijob_grows_over_two_nodes_in_place_makes_room_and_loses_nothing(tmp_path: Path, cluster: Cluster) -> None:
    cluster.as_daemon()  # makes the namespace
    with operating(cluster), lab(tmp_path, cluster) as found:
        first, second, third = found.hold(3), found.hold(3), found.hold(1)
        for held in (first, second, third):
            found.until(held, "running")
        job = submitted(found)
        found.until_gpus(job, 1)
        (launcher,) = found.nodes(job)
        beside, other = sorted((first, second), key=lambda held: found.nodes(held) != {launcher})
        until_shared(found, job, 1)
        uid = uid_of(found, job, 0)
        found.daemon.post(f"/v1/jobs/{third}/cancel")
        until_shared(found, job, 2)
        assert len(found.nodes(job)) == 2, "one GPU was free on each node"
        found.daemon.post(f"/v1/jobs/{beside}/cancel")  # room on its launcher's node: it need not be stopped
        until_shared(found, job, 3)
        assert found.job(job)["attempts"] == 1, "it grew in place"
        assert uid_of(found, job, 0) == uid, "its first worker was kept"
        urgent = found.hold(3, priority="urgent")
        found.until(urgent, "running")
        eventually(
            lambda: 0 < found.gpus(job) == workers_in_log(found, job) < 3,
            PATIENT_S,
            what=f"it goes on with fewer: {found.job(job)}",
            every_s=0.3,
        )
        assert found.job(job)["attempts"] == 1, "it shrank in place"
        assert uid_of(found, job, 0) == uid
        found.hurry(job)
        found.until(job, "completed")
        lines = found.check(job, EPOCHS, STEPS)
        assert lines[0][2] == 1
        assert {workers for _, _, workers in lines} >= {1, 2, 3}
        for held in (other, urgent):
            found.daemon.post(f"/v1/jobs/{held}/cancel")
        found.until_nothing_is_left()
        assert not found.kubectl("get", "mpijobs", "-o", "name")


def test_what_is_sent_is_what_the_published_fields_keep(tmp_path: Path, cluster: Cluster) -> None:
    """The API server drops what a definition does not name: nothing of ours is."""
    cluster.as_daemon()
    sent = made(order(Part(node="a", gpus=(0, 1)), Part(node="b", gpus=(3,)))).mpijob
    assert sent is not None
    sent["metadata"]["namespace"] = NAMESPACE
    with operating(cluster):
        told = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(sent))
        kept = json.loads(told)
        assert (
            kept["spec"].items()
            >= {**sent["spec"], "runPolicy": {**sent["spec"]["runPolicy"], "suspend": False}}.items()
        )
        for role in ("Launcher", "Worker"):
            template = sent["spec"]["mpiReplicaSpecs"][role]["template"]
            spec = {**template["spec"], "restartPolicy": "Never"}
            meta = {**template["metadata"], "name": f"template-{role.lower()}", "namespace": NAMESPACE}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            cluster.kubectl("create", "--dry-run=server", "--validate=true", "-f", "-", stdin=json.dumps(pod))
