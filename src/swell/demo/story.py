"""Which jobs arrive when, so that everything elastic can be seen within a minute or so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One job of the demo. It arrives `at_s` seconds after the start."""

    at_s: float
    name: str
    gpus: str
    epochs: int
    width: int
    seed: int
    slot_s: float  # seconds an epoch on one slot
    priority: str = "normal"


SLOTS = 4
STORY = (
    Act(at_s=0.0, name="large", gpus="1-4", epochs=30, width=128, seed=1, slot_s=3.0),
    Act(at_s=4.0, name="small", gpus="1-2", epochs=8, width=32, seed=2, slot_s=1.5),
    Act(at_s=8.0, name="medium", gpus="1-4", epochs=16, width=64, seed=3, slot_s=2.0),
    Act(at_s=12.0, name="fixed-2", gpus="2", epochs=8, width=64, seed=4, slot_s=2.0),
    Act(at_s=20.0, name="urgent", gpus="3-4", epochs=12, width=64, seed=5, slot_s=2.0, priority="high"),
    Act(at_s=26.0, name="tiny", gpus="1", epochs=6, width=16, seed=6, slot_s=1.0),
    Act(at_s=30.0, name="late", gpus="1-3", epochs=10, width=48, seed=7, slot_s=1.5),
)
"""`urgent` needs three of four slots: somebody has to make room, and goes on from its checkpoint afterwards."""
