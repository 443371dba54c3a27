"""What a worker finds beneath its own environment."""

from swell.shim.environment import base_environment, completed_environment

DAEMON = {
    "PATH": "/daemon/bin",
    "VIRTUAL_ENV": "/daemon",
    "CONDA_PREFIX": "/c",
    "HOME": "/h",
    "TZ": "UTC",
    "KEY": "s",
}


def test_a_job_without_a_shell_has_the_programs_of_the_machine_and_none_of_the_daemons_secrets() -> None:
    found = completed_environment(base_environment(DAEMON), {"env": {"A": "1"}})
    assert found == {**{name: DAEMON[name] for name in DAEMON if name != "KEY"}, "A": "1"}


def test_nothing_of_the_daemons_programs_leaks_into_a_job_that_brings_its_shells() -> None:
    request = {"env": {"PATH": "/mine"}, "shell_env": True}
    assert completed_environment(base_environment(DAEMON), request) == {"PATH": "/mine", "HOME": "/h", "TZ": "UTC"}


def test_what_comes_first_comes_before_either_path() -> None:
    base = base_environment(DAEMON)
    assert completed_environment(base, {"env": {}, "path_first": ["/s"]})["PATH"] == "/s:/daemon/bin"
    assert completed_environment(base, {"env": {"PATH": "/m"}, "path_first": ["/s"]})["PATH"] == "/s:/m"


def test_never_passes_on_what_looks_like_a_secret_of_the_daemons_user() -> None:
    told = {"HF_HOME": "/hf", "NCCL_DEBUG": "INFO"}
    hidden = {
        "HF_TOKEN": "s",
        "NVIDIA_API_KEY": "s",
        "CONDA_TOKEN": "s",
        "XDG_SECRET": "s",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    assert base_environment({**told, **hidden}) == told
