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
        ("-h", "-h"),
    ],
)
def test_words_of_other_schedulers_lead_to_ours(typed: str, here: str) -> None:
    assert ours(typed.split()) == here.split()
