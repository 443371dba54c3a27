"""A training whose ranks go in lockstep, as in a collective: nobody ends a step before all have come to it.

A rank that is left alone notices at once (its peer’s connection ends) and fails with 3: a disagreement about where to
stop never passes for a stop. Writes how far it came to OUT/<rank>.
"""

import os
import sys
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

import swell

run = swell.training(epochs=1_000_000)
address = os.environ["MEETING"]
if run.rank == 0:
    with Listener(address, backlog=run.world_size) as listener:
        peers = [listener.accept() for _ in range(run.world_size - 1)]
else:
    peers = []
    until_s = time.monotonic() + 60  # a loaded machine may let a process wait for seconds
    while not peers and time.monotonic() < until_s:
        try:
            peers = [Client(address)]
        except OSError:
            time.sleep(0.005)


def together() -> None:
    try:
        if run.rank == 0:
            for peer in peers:
                peer.recv()
            for peer in peers:
                peer.send(1)
        else:
            peers[0].send(1)
            peers[0].recv()
    except (EOFError, OSError):
        print("left alone", flush=True)
        sys.exit(3)


at = (-1, 0)
step_s = float(os.environ["STEP_S"])
try:
    with run:
        for epoch in run.epochs():
            for step in run.steps(range(int(os.environ["STEPS"]))):
                at = (epoch, step)
                time.sleep(step_s)
                together()
                if os.environ["STEP_STOPS"] == "1" and run.should_stop():
                    break
finally:
    Path(os.environ["OUT"], str(run.rank)).write_text(repr(at))
