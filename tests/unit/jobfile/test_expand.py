import pytest

from swell.core.job import JobSpec, Launcher, Mount, Preemptible, Roles
from swell.jobfile import read
from swell.jobfile.expand import Given, dependency_names, expand
from swell.jobfile.problems import JobFileError
from swell.jobfile.read import read_documents
from swell.jobfile.schema import json_schema
from swell.jobfile.shorthand import array


def one(text: str, given: Given | None = None) -> JobSpec:
    (document,) = read_documents(text)
    (spec,) = expand(document, given)
    return spec


def test_the_smallest_file() -> None:
    assert one("command: python train.py") == JobSpec(name="train", command=("/bin/sh", "-c", "python train.py"))


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        ("4", (4,)),
        ("0", (0,)),
        ("1-4", (1, 2, 3, 4)),
        ("{min: 2, max: 3}", (2, 3)),
        ("{max: 3}", (1, 2, 3)),
        ("{min: 3}", (3,)),
        ("{min: 1, max: 9, sizes: pow2}", (1, 2, 4, 8)),
        ("{min: 1, max: 9, sizes: multiple of 4}", (4, 8)),
        ("{sizes: [2, 6]}", (2, 6)),
    ],
)
def test_ways_to_say_how_many_gpus(gpus: str, sizes: tuple[int, ...]) -> None:
    assert one(f"command: x\ngpus: {gpus}").gpus.sizes() == sizes


def test_every_field_arrives() -> None:
    spec = one(
        """
        name: full
        command: [python, train.py, --lr, 0.1]
        gpus: {min: 1, max: 1, types: [A100], prefer: A100, exclude: [K80], memory: 6GiB, share: true, utilisation: 0.5}
        cpus: 4
        memory: 16GiB
        labels: {zone: b}
        priority: high
        weight: 2
        team: vision
        env: {LR: 0.1, DEBUG: true, TOKEN: abc}
        secrets: [TOKEN]
        image: pytorch
        mounts: [/data:/data:ro]
        ports: {8080: 80}
        launcher: ps
        roles: {servers: 2, command: python ps.py}
        epochs: 10
        batch_size: 32
        dataset_size: 1000
        estimated_hours: 1.5
        family: resnet
        adaptive_batch: true
        checkpoint_dir: /ckpt
        uses_library: true
        progress: ['epoch (?P<epoch>[0-9]+)']
        preemptible: restart
        restart: never
        retries: 3
        backoff: 10s
        time_limit: 2h
        grace: 1m
        deadline: 8h
        depends_on: [3, data]
        """,
        Given(now_s=1000.0, user="ada", files="f" * 64, resolve=lambda name: {"data": (7, 8)}[name]),
    )
    assert spec.command == ("python", "train.py", "--lr", "0.1")
    assert (spec.gpus.memory_mib, spec.gpus.share, spec.gpus.utilisation_milli) == (6144, True, 500)
    assert (spec.gpus.types, spec.gpus.prefer, spec.gpus.exclude) == (("A100",), ("A100",), ("K80",))
    assert (spec.cpus, spec.memory_mib, spec.node_labels) == (4, 16384, {"zone": "b"})
    assert (spec.priority, spec.weight, spec.team, spec.user) == (10, 2.0, "vision", "ada")
    assert spec.env == {"LR": "0.1", "DEBUG": "true", "TOKEN": "abc"}
    assert spec.secrets == ("TOKEN",)
    assert spec.mounts == (Mount(source="/data", target="/data", read_only=True),)
    assert (spec.image, spec.ports, spec.launcher) == ("pytorch", {"8080": "80"}, Launcher.PS)
    assert spec.roles == Roles(servers=2, server_command=("/bin/sh", "-c", "python ps.py"))
    assert (spec.epochs, spec.batch_size, spec.dataset_size, spec.estimated_s) == (10, 32, 1000, 5400.0)
    assert (spec.family, spec.adaptive_batch, spec.checkpoint_dir, spec.uses_library) == ("resnet", True, "/ckpt", True)
    assert spec.progress_patterns == ("epoch (?P<epoch>[0-9]+)",)
    assert (spec.preemptible, spec.restart) == (Preemptible.RESTART, "never")
    assert (spec.retries, spec.backoff_s, spec.time_limit_s, spec.grace_s) == (3, 10.0, 7200.0, 60.0)
    assert (spec.deadline_s, spec.depends_on, spec.files) == (29800.0, (3, 7, 8), "f" * 64)


def test_in_place_takes_no_snapshot() -> None:
    spec = one("command: x\nworkdir: /srv/code", Given(files="f" * 64))
    assert (spec.workdir, spec.files) == ("/srv/code", "")


def test_a_shell_line_is_left_to_the_shell() -> None:
    line = 'for i in 1 2; do echo "$i ${HOME} $(date)"; done | tee log && exit 3'
    assert one(f"command: |\n  {line}\n").command == ("/bin/sh", "-c", line + "\n")


@pytest.mark.parametrize(
    ("script", "argv"),
    [
        ("train.py", ("python", "train.py", "--x")),
        ("go.sh", ("/bin/sh", "go.sh", "--x")),
        ("bin/go", ("./bin/go", "--x")),
    ],
)
def test_scripts(script: str, argv: tuple[str, ...]) -> None:
    assert one(f"script: {script}\nargs: [--x]").command == argv


@pytest.mark.parametrize(
    ("command", "name"),
    [("python -u src/train_net.py --lr 1", "train_net"), ("sleep 5", "sleep"), ("'12'", "job"), ("./$x", "x")],
)
def test_a_name_is_made_from_the_command(command: str, name: str) -> None:
    assert one(f"command: {command}").name == name


def test_arrays() -> None:
    specs = expand({"name": "a", "command": "run ${index} ${HOME}", "array": 3, "env": {"I": "${index}"}})
    assert [s.name for s in specs] == ["a-0", "a-1", "a-2"]
    assert specs[2].command[-1] == "run 2 ${HOME}"
    assert (specs[2].env, specs[2].array_index) == ({"I": "2"}, 2)


@pytest.mark.parametrize(
    ("array", "indices"), [("5-7", [5, 6, 7]), ("5-5", [5]), ([3, 1, 3], [3, 1]), ("3", [0, 1, 2])]
)
def test_ways_to_say_which_elements(array: str | list[int], indices: list[int]) -> None:
    assert [s.array_index for s in expand({"command": "x", "array": array})] == indices


def test_sweeps_are_all_combinations() -> None:
    specs = expand(
        {"name": "n-${lr}-${depth}", "command": "t --lr ${lr}", "sweep": {"lr": [0.1, 0.01], "depth": [2, 4]}}
    )
    assert [s.name for s in specs] == ["n-0.1-2", "n-0.1-4", "n-0.01-2", "n-0.01-4"]
    assert specs[3].command[-1] == "t --lr 0.01"
    assert (specs[3].array_index, specs[3].array_parameters) == (3, {"lr": "0.01", "depth": "4"})


def test_several_documents_and_lists_are_several_jobs() -> None:
    assert len(read_documents("command: a\n---\ncommand: b\n")) == 2
    assert len(read_documents('[{"command": "a"}, {"command": "b"}]')) == 2


def test_dependencies_by_name() -> None:
    assert dependency_names({"depends_on": ["a", 3, "4"]}) == ("a",)
    assert dependency_names({"depends_on": "a"}) == ("a",)
    assert dependency_names({}) == ()


def test_the_published_schema_says_what_may_be_written() -> None:
    schema = json_schema()
    gpus = schema["properties"]["gpus"]
    assert {"integer", "string"} <= {option.get("type") for option in gpus["anyOf"]}
    assert schema["additionalProperties"] is False
    assert all("description" in field for field in schema["properties"].values())


def test_a_pattern_that_counts_steps_needs_a_job_that_does() -> None:
    pattern = "progress: ['step (?P<step>[0-9]+)']"
    assert one(f"command: x\nsteps: 100\n{pattern}").unit == "step"
    with pytest.raises(JobFileError, match="counts steps"):
        one(f"command: x\nepochs: 10\n{pattern}")


@pytest.mark.parametrize(
    "document",
    [
        {"command": "python x.py --lr ${lr}"},
        {"command": "python x.py --lr ${lrr}", "sweep": {"lr": [1]}},
        {"command": "python x.py ${indx}", "array": 2},
    ],
)
def test_a_parameter_that_nothing_sets_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(JobFileError, match="would be empty"):
        expand(document)


def test_a_parameter_that_makes_a_name_nobody_can_type_is_refused() -> None:
    assert [spec.name for spec in expand({"command": "x", "name": "a-${lr}", "sweep": {"lr": ["1.5"]}})] == ["a-1.5"]
    with pytest.raises(JobFileError, match="is not a name"):
        expand({"command": "x", "name": "a-${lr}", "sweep": {"lr": ["1/2"]}})


def test_a_document_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_VALUES", 10)
    read.check_values({"command": ["x"] * 7})  # with the mapping, its key and the list
    with pytest.raises(JobFileError, match="more than 10 values"):
        read.check_values({"command": ["x"] * 8})


@pytest.mark.parametrize(
    "document",
    [
        {"command": "echo ${HOME} ${CUDA_VISIBLE_DEVICES}"},
        {"command": "lr=3; echo ${lr}"},
        {"command": "for f in a b; do echo ${f}; done"},
        {"command": "python x.py 'a=${b}'"},
        {"command": "echo ${lr}", "env": {"lr": 1}},
        {"command": "echo ${lr} ${index}", "sweep": {"lr": [1, 2]}},
        {"command": ["python", "x.py", "a=${b}"]},
    ],
)
def test_what_the_shell_the_line_or_the_job_sets_is_left_alone(document: dict[str, object]) -> None:
    assert expand(document)


@pytest.mark.parametrize("length", [79, 80, 81, 1000])
def test_a_name_that_is_taken_from_a_command_is_cut(length: int) -> None:
    assert one(f"command: {'x' * length}").name == "x" * min(80, length)


@pytest.mark.parametrize("digits", [10, 10_000])
def test_a_number_of_very_many_digits_is_no_array(digits: int) -> None:
    assert list(array("12".zfill(9))) == list(range(12))
    with pytest.raises(ValueError, match="is not an array"):
        array("12".zfill(digits))
