"""The job file: one schema, published as JSON Schema, read from YAML or JSON, turned into `core.job.JobSpec`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from swell.core.job import PRIORITIES, GpuRequest, IfUnreachable, Launcher, Preemptible, RestartPolicy
from swell.jobfile import shorthand
from swell.jobfile.pods import PodOptionsModel
from swell.jobfile.units import parse_duration_s, parse_size_mib, written

Whole = Annotated[int, Field(strict=True, ge=0, le=2**53)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(max_length=4096)]
Duration = Annotated[float, BeforeValidator(parse_duration_s, json_schema_input_type=float | str)]
Size = Annotated[int, BeforeValidator(parse_size_mib, json_schema_input_type=float | str)]
Words = Annotated[tuple[str, ...], BeforeValidator(shorthand.words, json_schema_input_type=list[str] | str)]
Scalar = str | int | float | bool


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class Gpus(_Strict):
    """How many GPUs, and which. Swell chooses between min and max, and changes its mind as others come and go."""

    min: Annotated[int, Field(strict=True, ge=0, le=shorthand.MAX_GPUS, description="Never fewer than these.")] = 1
    max: Annotated[int, Field(strict=True, ge=0, le=shorthand.MAX_GPUS, description="Never more than these.")] = 1
    start: Annotated[Whole, Field(description="What a policy that is not elastic gives. 0: the minimum.")] = 0
    sizes: Annotated[
        str | list[int] | None,
        BeforeValidator(shorthand.sizes, json_schema_input_type=str | list[int]),
        Field(description="Allowed sizes between min and max: `pow2`, `multiple of 4`, or a list."),
    ] = None
    types: Annotated[Words, Field(description="Only these GPU types.")] = ()
    prefer: Annotated[Words, Field(description="These GPU types first, if there is a choice.")] = ()
    exclude: Annotated[Words, Field(description="Never these GPU types.")] = ()
    memory: Annotated[Size, Field(description="Memory needed on each GPU, such as 6GiB.")] = 0
    share: Annotated[Flag, Field(description="May run on a part of one GPU, beside other jobs.")] = False
    utilisation: Annotated[
        float,
        Field(strict=True, ge=0, le=1, description="Part of a GPU's compute it uses when it shares one: 0.5 is half."),
    ] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        said = dict(data)
        listed = said.get("sizes")
        if isinstance(listed, list) and listed and all(isinstance(n, int) for n in listed):
            said.setdefault("min", min(listed))
            said.setdefault("max", max(listed))
        if "max" not in said and isinstance(said.get("min"), int):
            said["max"] = max(1, said["min"]) if said["min"] else 0
        return said

    @model_validator(mode="after")
    def _check(self) -> Gpus:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; min must not be more than max")
        if self.start and not self.min <= self.start <= self.max:
            raise ValueError(f"start is {self.start}; it must lie between min ({self.min}) and max ({self.max})")
        if self.min == 0 and self.max > 0:
            raise ValueError("min is 0; a job that needs no GPU writes gpus: 0, any other has min 1 or more")
        if self.share and self.max != 1:
            raise ValueError(f"share goes with one GPU, not {self.max}; leave out share, or write max: 1")
        if self.sizes is not None and not self.allowed():
            raise ValueError(
                f"no size allowed by {written(self.sizes)} lies between {self.min} and {self.max}; widen the range"
            )
        self._check_types()
        return self

    def _check_types(self) -> None:
        both = [gpu for gpu in self.types if gpu in self.exclude]
        if both:
            raise ValueError(f"{', '.join(both)} is in types and in exclude; take it out of one of them")

    def allowed(self) -> tuple[int, ...]:
        return () if self.sizes is None else shorthand.sizes_between(self.sizes, self.min, self.max)

    def request(self) -> GpuRequest:
        allowed = self.allowed()
        return GpuRequest(
            min=allowed[0] if allowed else self.min,
            max=allowed[-1] if allowed else self.max,
            start=self.start,
            allowed=allowed,
            types=self.types,
            prefer=self.prefer,
            exclude=self.exclude,
            memory_mib=self.memory,
            share=self.share,
            utilisation_milli=round(1000 * self.utilisation),
        )


class MountModel(_Strict):
    """A directory of the machine, seen by the job at another place (jobs with an image)."""

    source: Annotated[str, Field(min_length=1)]
    target: Annotated[str, Field(min_length=1)]
    read_only: Flag = False


class RolesModel(_Strict):
    """Parameter-server jobs (launcher: ps)."""

    servers: Annotated[int, Field(strict=True, ge=1, le=1000, description="Servers beside the workers.")] = 1
    command: Annotated[
        tuple[str, ...],
        BeforeValidator(shorthand.command, json_schema_input_type=str | list[str]),
        Field(description="What a server runs. Left out: the job's command, told apart by SWELL_ROLE."),
    ] = ()


def _default_gpus() -> Gpus:
    return Gpus()


class Program(_Strict):
    """What is run."""

    name: Annotated[Text, Field(description="Letters, digits, `.`, `_` and `-`. Left out: made from the command.")] = ""
    command: Annotated[
        tuple[str, ...],
        BeforeValidator(shorthand.command, json_schema_input_type=str | list[str]),
        Field(description="A shell line (full syntax, run by /bin/sh), or a list: the program and its arguments."),
    ] = ()
    script: Annotated[Text, Field(description="Instead of command: a .py, .sh or executable file of the job.")] = ""
    args: Annotated[Words, Field(description="Arguments of `script`.")] = ()

    @model_validator(mode="after")
    def _one_of_command_and_script(self) -> Self:
        if bool(self.command) == bool(self.script):
            said = "both command and script are" if self.command else "neither command nor script is"
            field = "script" if self.command else ""
            raise shorthand.Misfit(field, f"{said} there; write one of them, for example command: python train.py")
        if self.args and not self.script:
            raise shorthand.Misfit("args", "go with script; write them into the command")
        return self


class Demand(_Strict):
    """What each run needs of machines."""

    gpus: Annotated[
        Gpus,
        BeforeValidator(shorthand.gpus, json_schema_input_type=int | str | Gpus),
        Field(default_factory=_default_gpus, description="`4` (fixed), `1-4` (elastic), `0` (none), or a mapping."),
    ]
    cpus: Annotated[int, Field(strict=True, ge=0, le=4096, description="CPU cores of each worker process.")] = 1
    memory: Annotated[Size, Field(description="Memory of each worker process, such as 16GiB. 0: not accounted.")] = 0
    labels: Annotated[
        dict[str, str],
        BeforeValidator(shorthand.labels, json_schema_input_type=dict[str, Scalar]),
        Field(default_factory=dict, description="Only nodes with these labels."),
    ]
    nodes: Annotated[Words, Field(description="Only nodes with these names, such as `[gpu1, gpu2]`.")] = ()


class Standing(_Strict):
    """Whose job it is, and how it stands among others."""

    priority: Annotated[
        int,
        BeforeValidator(shorthand.priority, json_schema_input_type=Literal[tuple(PRIORITIES)] | int),
        Field(
            ge=-1000, le=1000, description="`low`, `normal`, `high`, `urgent`, or a whole number (higher goes first)."
        ),
    ] = 0
    weight: Annotated[
        float, Field(strict=True, gt=0, le=1e6, description="Share of the cluster relative to others (fair policies).")
    ] = 1.0
    user: Annotated[Text, Field(description="Left out: who submits it.")] = ""
    team: Annotated[Text, Field(description="Whose quota it counts against.")] = ""


class Environment(_Strict):
    """What its processes find in their environment."""

    env: Annotated[
        dict[str, str],
        BeforeValidator(shorthand.env, json_schema_input_type=dict[str, Scalar]),
        Field(default_factory=dict, description="Environment variables."),
    ]
    env_from_shell: Annotated[
        Words, Field(description="Names of variables to take from the shell you submit from, unless they are in env.")
    ] = ()
    shell_env: Annotated[
        dict[str, str],
        BeforeValidator(shorthand.env, json_schema_input_type=dict[str, Scalar]),
        Field(
            default_factory=dict,
            description="PATH, VIRTUAL_ENV, CONDA_* … of the shell you submit from, which `swell` fills in. Holds on "
            "that machine only; left out, a job has the PATH of the daemon.",
        ),
    ]
    python: Annotated[
        Text,
        Field(description="What `python` is in the command: /opt/env/bin/python, or python3.12 as found on the PATH."),
    ] = ""
    secrets: Annotated[
        Words, Field(description="Names of variables that are shown as ***; taken from your shell if not in env.")
    ] = ()

    @model_validator(mode="after")
    def _python_is_a_certain_one(self) -> Self:
        if self.python in ("python", "python3"):
            raise shorthand.Misfit(
                "python", f"{self.python} is whatever comes first on the PATH; write a version (python3.12) or a path"
            )
        return self


class Container(_Strict):
    """The image it runs in, and what it sees of the machine."""

    image: Annotated[
        Text, Field(description="Container image to run in, by podman or docker on the node, or as pods of a cluster.")
    ] = ""
    mounts: Annotated[
        tuple[MountModel, ...],
        BeforeValidator(shorthand.mounts, json_schema_input_type=list[str | MountModel]),
        Field(description="`source:target[:ro]`, for jobs with an image, from where `container_mounts` allows."),
    ] = ()
    ports: Annotated[
        dict[str, str],
        BeforeValidator(shorthand.ports, json_schema_input_type=dict[str, str | int] | list[str | int]),
        Field(default_factory=dict, description="Port of the machine: port that the job listens on."),
    ]
    kubernetes: Annotated[
        PodOptionsModel | None, Field(description="About its pods, on nodes of a Kubernetes cluster.")
    ] = None


class Files(_Strict):
    """The working files that it runs with."""

    workdir: Annotated[
        Text,
        Field(description="`/an/absolute/one` as it is when the job runs, or a part of the snapshot taken at submit."),
    ] = ""
    include: Annotated[
        Words, Field(description="What goes into the snapshot although .gitignore or .swellignore leaves it out.")
    ] = ()
    files: Annotated[str, Field(pattern="^([0-9a-f]{64})?$", description="Hash of an uploaded snapshot.")] = ""


class Processes(_Strict):
    """How its processes are started."""

    launcher: Annotated[Launcher, Field(description="How processes are started on the GPUs a run was given.")] = (
        Launcher.SINGLE
    )
    roles: Annotated[RolesModel | None, Field(description="Servers beside the workers (launcher: ps).")] = None

    @model_validator(mode="after")
    def _roles_go_with_servers(self) -> Self:
        if self.roles is not None and self.launcher is not Launcher.PS:
            raise shorthand.Misfit("roles", "go with launcher: ps; write launcher: ps, or leave out roles")
        return self


class Length(_Strict):
    """How much there is to train, and what is known of its speed."""

    epochs: Annotated[Whole, Field(description="How many epochs it trains; progress and ETA come from it.")] = 0
    steps: Annotated[Whole, Field(description="Instead of epochs: how many steps it trains.")] = 0
    tokens: Annotated[Whole, Field(description="Instead of epochs: how many tokens it trains on.")] = 0
    samples: Annotated[Whole, Field(description="Instead of epochs: how many samples it trains on.")] = 0
    batch_size: Annotated[Whole, Field(description="Samples in a step, over all GPUs.")] = 0
    dataset_size: Annotated[Whole, Field(description="Samples in an epoch.")] = 0
    estimated_hours: Annotated[
        float,
        Field(
            strict=True, ge=0, le=87600, description="Your estimate at its first size; it is corrected by measuring."
        ),
    ] = 0.0
    family: Annotated[Text, Field(description="Jobs of one family share what was learned of their speed.")] = ""
    adaptive_batch: Annotated[Flag, Field(description="The training adapts its batch size to the GPUs it has.")] = False

    @model_validator(mode="after")
    def _counts_in_one_unit(self) -> Self:
        counted = [name for name in ("epochs", "steps", "tokens", "samples") if getattr(self, name)]
        if len(counted) > 1:
            text = f"{' and '.join(counted)} do not go together; write the one that the training counts in"
            raise shorthand.Misfit(counted[-1], text)
        return self


class Interruption(_Strict):
    """Whether and how it can be stopped, and go on later."""

    checkpoint_dir: Annotated[
        Text, Field(description="Where the command keeps its checkpoints: it can then be stopped and go on later.")
    ] = ""
    copy_checkpoints: Annotated[
        Flag,
        Field(
            description="Copy each finished checkpoint to the daemon's machine, so that the job can continue on "
            "another one. `false`: it stays on the machine that has its files."
        ),
    ] = True
    if_unreachable: Annotated[
        IfUnreachable,
        Field(
            description="When its machine is lost. `auto`: continue elsewhere if there is a copy of its checkpoint, or "
            "nothing was saved; else wait for the machine. `wait`: always. `move`: with what there is."
        ),
    ] = IfUnreachable.AUTO
    may_idle: Annotated[
        Flag, Field(description="It may hold GPUs without using them: no notice of it, and nothing is taken from it.")
    ] = False
    uses_library: Annotated[
        Flag, Field(description="The command calls swell's library: it can be stopped and go on later.")
    ] = False
    progress: Annotated[
        Words,
        Field(description="Regular expressions over the log, with groups named epoch, epochs, step, steps, loss, …"),
    ] = ()
    preemptible: Annotated[
        Preemptible, Field(description="`auto`: if it can resume. `restart`: even from nothing. `never`.")
    ] = Preemptible.AUTO


class Limits(_Strict):
    """What follows from failures and from time."""

    restart: Annotated[
        RestartPolicy, Field(description="After its machine was lost, or a failure with retries left.")
    ] = RestartPolicy.ON_FAILURE
    retries: Annotated[
        int,
        Field(
            strict=True,
            ge=0,
            le=1000,
            description="Attempts after a failure. Those of a job with checkpoints that was killed do not count.",
        ),
    ] = 0
    backoff: Annotated[Duration, Field(description="Wait after a failure; doubles each time.")] = 5.0
    time_limit: Annotated[Duration, Field(description="Of running time, over all attempts. 0: none.")] = 0.0
    grace: Annotated[Duration, Field(description="From being asked to stop until it is made to.")] = 30.0
    deadline: Annotated[
        datetime | float,
        BeforeValidator(shorthand.deadline, json_schema_input_type=str | float),
        Field(description="When it should be done: 2026-12-24T18:00, or from now: 8h."),
    ] = 0.0


class Dependencies(_Strict):
    """Which jobs must end first."""

    depends_on: Annotated[
        tuple[int | str, ...],
        BeforeValidator(shorthand.depends_on, json_schema_input_type=int | str | list[int | str]),
        Field(description="Ids or names of jobs that must complete first."),
    ] = ()
    after_any: Annotated[
        tuple[int | str, ...],
        BeforeValidator(shorthand.depends_on, json_schema_input_type=int | str | list[int | str]),
        Field(description="Ids or names of jobs that must end first, however they end."),
    ] = ()
    after_failure: Annotated[
        tuple[int | str, ...],
        BeforeValidator(shorthand.depends_on, json_schema_input_type=int | str | list[int | str]),
        Field(description="Ids or names of jobs that must end without completing first, as for a job that cleans up."),
    ] = ()


class Outputs(_Strict):
    """What is copied back."""

    outputs: Annotated[
        Words,
        Field(
            description="Files that are copied back when the job has ended, however it ended: `results/`, `*.pt`. "
            "Nothing is written over: files that differ go into a directory NAME-ID beside."
        ),
    ] = ()
    outputs_to: Annotated[
        Text, Field(description="Where outputs are copied to. Left out: the directory you submit from.")
    ] = ""


class Many(_Strict):
    """Many jobs from one file."""

    array: Annotated[
        tuple[int, ...],
        BeforeValidator(shorthand.array, json_schema_input_type=int | str | list[int]),
        Field(description="This number of jobs, `${index}` in name, command and env is 0, 1, …; or `5-9`, or a list."),
    ] = ()
    sweep: Annotated[
        dict[str, tuple[str, ...]],
        BeforeValidator(shorthand.sweep, json_schema_input_type=dict[str, list[Scalar]]),
        Field(
            default_factory=dict,
            description="A job for each combination: `lr: [0.1, 0.01]` and `${lr}` in name, command and env.",
        ),
    ]

    @model_validator(mode="after")
    def _array_or_sweep(self) -> Self:
        if self.array and self.sweep:
            text = "array and sweep do not go together; write the index as a parameter of the sweep: [0, 1, 2]"
            raise shorthand.Misfit("sweep", text)
        return self


class JobModel(
    Many,
    Outputs,
    Dependencies,
    Limits,
    Interruption,
    Length,
    Processes,
    Files,
    Container,
    Environment,
    Standing,
    Demand,
    Program,
):
    """A training job. Only `command` (or `script`) is needed."""

    # The bases stand in reverse: the first field of the schema comes from the last of them.


def json_schema() -> dict[str, Any]:
    """What is published: the forms people may write."""
    schema = JobModel.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Swell job"}
