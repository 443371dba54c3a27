"""Words of other schedulers lead to ours."""

import pytest

from swell.cli.elsewhere import ours


@pytest.mark.parametrize(
    ("typed", "here"),
    [
        ("create -f job.yaml", "submit job.yaml"),
        ("apply --filename job.yaml --dry-run", "submit job.yaml --dry-run"),
        ("get jobs", "ls"),
        ("get", "ls"),
        ("get jobs --all", "ls --all"),
        ("get jobs train", "show train"),
        ("get train", "show train"),
        ("get nodes", "nodes"),
        ("status", "ls"),
        ("status --all", "ls --all"),
        ("status 7", "show 7"),
        ("delete 7 --yes", "rm 7 --yes"),
        ("simulate --help", "sim --help"),
        ("run -- get jobs", "run -- get jobs"),
        ("get pods", "ls"),
        ("qsub job.yaml", "submit job.yaml"),
        ("qdel 7", "cancel 7"),
        ("bjobs", "ls"),
        ("srun --gpus 1 -- true", "run --gpus 1 -- true"),
        ("watch", "top"),
        ("cluster", "nodes"),
        ("version", "--version"),
        ("scontrol show job 7", "show 7"),
        ("scontrol show nodes", "nodes"),
        ("scontrol show", "ls"),
        ("scontrol hold 7", "pause 7"),
        ("scontrol update job 7 gpus=2", "update 7 gpus=2"),
        ("node list", "node ls"),
        ("node rm gpu1 --yes", "node remove gpu1 --yes"),
        ("user create ana", "user add ana"),
        ("token create", "token new"),
        ("nodes add gpu1", "node add gpu1"),
        ("nodes rm gpu1", "node remove gpu1"),
        ("nodes", "nodes"),
        ("nodes --json", "nodes --json"),
        ("users", "user ls"),
        ("users create ana", "user add ana"),
        ("tokens", "token ls"),
        ("tokens --json", "token ls --json"),
        ("resize 7 2", "update 7 gpus=2"),
        ("scale 7 gpus=1-4 --json", "update 7 gpus=1-4 --json"),
        ("preempt 7", "requeue 7"),
        ("policy set fifo", "policy fifo"),
        ("policy list", "policy"),
        ("policy fifo", "policy fifo"),
        ("-h", "-h"),
    ],
)
def test_words_of_other_schedulers_lead_to_ours(typed: str, here: str) -> None:
    assert ours(typed.split()) == here.split()
