"""What the tests with PyTorch share: one process that has imported everything, and trainings that nobody disturbed.

Importing torch, Lightning and transformers takes 6 CPU seconds, and torch imports two more seconds' worth at the first
optimizer. `stable` does both once; each training is forked from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from integration.sdk.ddp_reference import ROOT, Reference, undisturbed
from integration.sdk.stable import Stable
from swell.sdk import ship

PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
MODULES = (
    "torch",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
    "lightning.pytorch",
    "transformers.trainer",
    "transformers.models.gpt2.modeling_gpt2",
    "accelerate",
)


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ship.ship(tmp_path_factory.mktemp("library") / "sdk")


@pytest.fixture(scope="session")
def stable(sdk: Path) -> Iterator[Stable]:
    with Stable(PYTHON, MODULES, [sdk]) as started:
        yield started


@pytest.fixture(scope="session")
def undisturbed_ddp(stable: Stable, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Reference]:
    """By the number of epochs; each is run once."""
    return cache(lambda epochs: undisturbed(stable, tmp_path_factory.mktemp(f"undisturbed-{epochs}-"), epochs))
