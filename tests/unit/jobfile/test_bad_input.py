"""Bad input: each with an error that names the field and how to fix it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from swell.core.job import JobSpec
from swell.jobfile.expand import expand
from swell.jobfile.problems import JobFileError, Problem
from swell.jobfile.read import MAX_BYTES, read_documents


def read(text: str | bytes) -> list[JobSpec]:
    return [spec for document in read_documents(text) for spec in expand(document)]


def problems(text: str | bytes) -> Sequence[Problem]:
    with pytest.raises(JobFileError) as caught:
        read(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("command: x\ngpus: [1", "", "line 2"),
        ("command: echo a: b", "", "quotes"),
        ("command: x\ngpus:\n\tmin: 2", "", "spaces, not tabs"),
        ("command: x\ncommand: y", "command", "twice"),
        ("just words", "", "a job is a mapping"),
        ("", "", "no job in it"),
        ("name: a", "", "neither command nor script"),
        ("command: x\nscript: y.py", "script", "both command and script"),
        ("comand: x", "comand", "did you mean command?"),
        ("command: x\ngpus: {mim: 2}", "gpus.mim", "did you mean min?"),
        ("command: x\ngpu_memory: 6GiB", "gpu_memory", "gpus: {memory"),
        ("command: x\ngpus: {min: 4, max: 2}", "gpus", "min must not be more than max"),
        ("command: x\ngpus: 4-2", "gpus", "min must not be more than max"),
        ("command: x\ngpus: many", "gpus", "gpus: 1-4"),
        ("command: x\ngpus: 'a; b'", "gpus", "gpus: 1-4"),
        ("command: x\narray: 5-2", "array", "write 2-5"),
        ("command: x\ngpus: -1", "gpus", "gpus: 1-4"),
        ("command: x\ngpus: null", "gpus", "gpus: 1-4"),
        ("command: x\ngpus: {min: 1, max: 4, start: 5}", "gpus", "between min (1) and max (4)"),
        ("command: x\ngpus: {min: 5, max: 7, sizes: pow2}", "gpus", "widen the range"),
        ("command: x\ngpus: {max: 2, share: true}", "gpus", "one GPU"),
        ("command: x\ngpus: {types: [A], exclude: [A]}", "gpus", "in types and in exclude"),
        ("command: x\nname: ../../etc", "name", "a name has letters"),
        ("command: x\nname: $(reboot)", "name", "a name has letters"),
        ("command: x\nname: 'a b'", "name", "a name has letters"),
        ("command: x\nname: last", "name", "command line"),
        ("command: x\nname: '12'", "name", "command line"),
        ("command: x\nname: 12", "name", "quotes"),
        ("command: x\nname: run-${lr}", "name", "no parameter 'lr'"),
        ("command: ''", "command", "is empty"),
        ("command: []", "command", "is empty"),
        ("command: {a: b}", "command", "not a command"),
        ("command: x\nlauncher: torchun", "launcher", "did you mean torchrun?"),
        ("command: x\npriority: hihg", "priority", "low, normal, high"),
        ("command: x\ntime_limit: soon", "time_limit", "1h30m"),
        ("command: x\nmemory: lots", "memory", "6GiB"),
        ("command: x\nretries: 1.5", "retries", "whole number"),
        ("command: x\nepochs: yes", "epochs", "whole number"),
        ("command: x\ndeadline: tomorrow", "deadline", "8h"),
        ("command: x\nenv: {1A: x}", "env", "not a name of a variable"),
        ("command: x\nenv: {A: }", "env", "has no value"),
        ("command: x\nsecrets: [TOKEN]", "secrets", "TOKEN has no value"),
        ("command: x\narray: 10001", "array", "1 to 10000"),
        ("command: x\narray: 0", "array", "1 to 10000"),
        (f"command: x\nsweep: {{a: {list(range(101))}, b: {list(range(100))}}}", "sweep", "10100 jobs"),
        ("command: x\nsweep: {lr: 0.1}", "sweep", "lr: [0.1, 0.01]"),
        ("command: x\narray: 2\nsweep: {a: [1]}", "sweep", "do not go together"),
        ("command: x\nepochs: 3\nsteps: 900", "steps", "epochs and steps do not go together"),
        ("command: x\ngpus: '9999999999'", "gpus", "is not a number of GPUs"),
        ("command: x\n  name: y", "", "put text that contains ': ' into quotes"),
        ("command: x\ndepends_on: [prepare]", "depends_on", "no job named 'prepare'"),
        ("command: x\nprogress: ['(']", "progress[0]", "regular expression"),
        ("command: x\nprogress: ['a{99999999999}']", "progress[0]", "repetition number is too large"),
        ("command: x\nprogress: ['" + "(" * 400 + ")" * 400 + "']", "progress[0]", "may have 500"),
        ("command: x\nprogress: ['" + "(" * 490 + "']", "progress[0]", "regular expression"),
        (f"command: x\nprogress: {['a'] * 21}", "progress", "may have 20"),
        ("command: x\nmounts: [/data]", "mounts", "source:target"),
        ("command: x\nports: {99999: 80}", "ports", "1 to 65535"),
        ("command: x\nfiles: ../x", "files", "hash"),
        ("script: ../../train.py", "script", "leads out"),
        ("command: x\nweight: .nan", "weight", "finite"),
        (json.dumps({"command": "echo a\0b"}), "command", "NUL"),
        (json.dumps({"command": "x", "env": {"A": "\ud800"}}), "env.A", "half a character"),
        (json.dumps({"command": "x", "env": {"A": "é" * 66_000}}), "env", "128 KiB"),
        ("command: 'a\0b'", "", "line 1"),
        ("[" * 50_000, "", "levels"),
        ("- " * 20_000, "", "levels"),
        ("a: &a [x]\nb: [" + "*a, " * 40 + "]", "", "aliases"),
        (b"command: \xff\xfe", "", "UTF-8"),
        ("x" * (MAX_BYTES + 1), "", "1,048,576"),
        ("command: '" + "x" * 200_000 + "'", "command", "128 KiB"),
    ],
)
def test_each_mistake_is_named_with_its_fix(text: str | bytes, path: str, says: str) -> None:
    found = problems(text)
    assert found[0].path == path
    assert says in str(found[0])


def test_all_problems_at_once() -> None:
    found = problems("gpus: 4-2\nepochs: -1\nname: 5\nbogus: 1")
    assert {p.path for p in found} >= {"gpus", "epochs", "name", "bogus"}


def test_secret_values_never_appear_in_errors() -> None:
    found = problems("command: x\nsecrets: [TOKEN]\nenv: {TOKEN: [hunter2]}")
    assert "hunter2" not in " ".join(map(str, found))


@pytest.mark.parametrize(
    ("document", "fix"),
    [
        ({"command": "a", "gpu": 2}, "write gpus: 2"),
        ({"command": "a", "num_gpus": "1-4"}, "write gpus: 1-4"),
        ({"cmd": "python x.py"}, "write command: python x.py"),
        ({"command": "a", "timeout": "2h"}, "write time_limit: 2h"),
    ],
)
def test_fields_of_other_schedulers_are_named_ours_with_the_value(document: dict[str, object], fix: str) -> None:
    with pytest.raises(JobFileError) as caught:
        expand(document)
    assert fix in str(caught.value)


def test_many_problems_fill_no_screen() -> None:
    with pytest.raises(JobFileError) as caught:
        expand({"command": "a", **{f"field{n}": 1 for n in range(40)}})
    assert len(caught.value.problems) == 40
    assert len(str(caught.value).splitlines()) == 11
    assert str(caught.value).endswith("… and 30 more problems")


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        ({"jobname": "a"}, "jobname: there is no such field (write name: a)"),
        ({"requiredgpus": 2}, "requiredgpus: there is no such field (write gpus: 2)"),
        ({"jobtype": "pytorch"}, "leave it out; launcher: says"),
        ({"jobs": [{"command": "a"}]}, "several jobs are a list of them, or documents with a line ---"),
        ({"snapshots_dir": "/s"}, "write checkpoint_dir: /s"),
        ({"is_single_gpu": True}, "write gpus: 1"),
        ({"kind": "MPIJob", "apiVersion": "v2", "spec": {}}, "a Kubernetes object (MPIJob), not a job file"),
        ({"kind": "Job", "apiVersion": "v1", "metadata": {}}, "a Kubernetes object (Job), not a job file"),
    ],
)
def test_what_other_systems_write_is_answered_with_what_to_write_here(document: dict[str, Any], answer: str) -> None:
    with pytest.raises(JobFileError) as refused:
        expand({"command": "x", **document} if "kind" not in document else document)
    assert answer in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("document", [{"kind": "Job"}, {"apiVersion": "v1"}, {"apiVersion": "v1", "kind": ["Job"]}])
def test_only_what_says_what_it_is_and_of_which_version_is_a_kubernetes_object(document: dict[str, Any]) -> None:
    with pytest.raises(JobFileError) as caught:
        expand({"command": "x", **document})
    assert sorted(problem.path for problem in caught.value.problems) == sorted(document)


def test_a_file_of_unknown_fields_gets_the_list_of_fields_once() -> None:
    with pytest.raises(JobFileError) as refused:
        expand({"command": "x", **dict.fromkeys(("qqqq", "zzzz", "xxxx"), 1)})
    said = str(refused.value)
    assert said.count("there are: name,") == 1
    assert said.count("there is no such field") == 3
