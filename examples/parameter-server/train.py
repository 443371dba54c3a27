"""A parameter server over plain sockets: `launcher: ps` starts servers (on CPU) beside one worker a GPU.

The same file runs in both roles (SWELL_ROLE tells which). The server holds the weights and, step by step, adds up the
gradients of all workers; workers fetch weights, compute on their share of the batch, and send gradients. Between epochs
the run may be stopped and started again with another number of workers.
"""

import argparse
import json
import os
import time
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

import swell

STEPS, BATCH, FEATURES = 8, 60, 10


def server_address() -> tuple[str, int]:
    """Servers are listed in TF_CONFIG, for any framework to use."""
    host, _, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"][0].rpartition(":")
    return host, int(port)


def serve(workers: int) -> None:
    """Until every worker has gone. Weights come from the first message, so that the server needs no checkpoint."""
    with Listener(server_address(), backlog=workers) as listener:
        peers = sorted((accept(listener) for _ in range(workers)), key=lambda pair: pair[0])
    connections = [connection for _, connection in peers]
    weights = np.asarray(connections[0].recv())
    try:
        while True:
            for connection in connections:
                connection.send(weights)
            gradients = [connection.recv() for connection in connections]
            for gradient in gradients:
                weights = weights - 0.05 * gradient
    except (EOFError, ConnectionError):
        print("all workers have left", flush=True)


def accept(listener: Listener) -> tuple[int, Connection]:
    connection = listener.accept()
    return connection.recv(), connection


def connect(rank: int) -> Connection:
    for _ in range(600):
        try:
            connection = Client(server_address())
            connection.send(rank)
            return connection
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError("the parameter server did not come up")


def train(pause_s: float) -> None:
    data = np.random.default_rng(3).normal(size=(STEPS, BATCH, FEATURES))
    truth = np.arange(FEATURES, dtype=float)
    with swell.training() as run:
        weights = run.load(default=np.zeros(FEATURES))
        server = connect(run.rank)
        if run.rank == 0:
            server.send(weights)
        weights = server.recv()
        for epoch in run.epochs():
            for batch in run.steps(data):
                mine = np.array_split(batch, run.world_size)[run.rank]
                server.send(mine.T @ (mine @ weights - mine @ truth) / BATCH)
                weights = server.recv()
                time.sleep(pause_s)
            loss = float(np.mean((weights - truth) ** 2))
            run.log(loss=loss)
            run.save(weights)
            if run.rank == 0:
                print(f"epoch {epoch} loss {loss:.9f} workers {run.world_size}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause-s", type=float, default=0.0)
    options = parser.parse_args()
    if os.environ.get("SWELL_ROLE") == "server":
        serve(int(os.environ["SWELL_WORLD_SIZE"]))
    else:
        train(options.pause_s)
