"""Writes docs/reference from the code: the command line, the REST API, the job file, the configuration.

python scripts/reference.py           write the pages
python scripts/reference.py --check   exit 1 if a page is not what the code says
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

import click

from swell.api.app import create_app
from swell.api.openapi import STATUSES
from swell.api.port import Engine
from swell.cli.main import VERBS, swell
from swell.config import Config
from swell.core.idle import IdleRules
from swell.core.job import PRIORITIES
from swell.core.limits import Limits
from swell.core.notices import Hook
from swell.core.oidc import OidcSettings
from swell.core.snapshot import Options, Quota
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.jobfile.expand import NAME_RULE
from swell.jobfile.pods import PodOptionsModel, PodVolumeModel
from swell.jobfile.schema import Gpus, JobModel, MountModel, RolesModel, json_schema
from swell.policy.registry import POLICIES, options_of

HERE = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- made by scripts/reference.py from the code; change the code, then run it again -->\n\n"

_PODS = (("kubernetes", PodOptionsModel), ("kubernetes.volumes", PodVolumeModel))


# -- command line -----------------------------------------------------------------------------------------------------


def cli_page() -> str:
    lines = [
        "# Command line",
        "",
        "Every verb has `--help`. `--json` prints JSON whose fields are stable. A job is named by its id, its "
        "name (the latest of that name) or `last`.",
        "",
        "Exit codes: 0 done; 1 the job failed, or the daemon did; 2 the command or a job file is wrong; 3 the daemon "
        "cannot be reached; 130 left with Ctrl-C, the job goes on.",
        "",
    ]
    context = click.Context(swell, info_name="swell")
    for verb, (module, _) in VERBS.items():
        if importlib.util.find_spec(module) is not None:
            command = swell.get_command(context, verb)
            assert command is not None
            lines += _verb(command, f"swell {verb}", context)
    return "\n".join(lines)


def _verb(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {name}", "", f"    {name} {usage}", "", inspect.cleandoc(command.help or ""), "")
    options = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
    rows = [(flags, text) for record in options if record for flags, text in [record]]
    if rows:
        yield from ("| option | |", "|---|---|", *(f"| `{flags}` | {_cell(text)} |" for flags, text in rows), "")
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from _verb(found, f"{name} {sub}", context)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# -- REST -------------------------------------------------------------------------------------------------------------


def rest_page() -> str:
    app = create_app(cast(Engine, None), "", Config(home=Path("/nowhere")))
    document = app.openapi()
    lines = [
        "# REST API",
        "",
        "JSON under `/v1`. The whole of it, for machines, is at `/v1/openapi.json`; the job file's JSON Schema at "
        "`/v1/schema/job`. Every request but `/v1/health` carries `Authorization: Bearer <token>`; the token is in the "
        "file `token` in the daemon's home. A body may have 1 MiB.",
        "",
        "Errors are `application/problem+json`: `title`, `status`, `detail` and, for a body with mistakes, `problems`, "
        "each with `path`, `what` and `fix`.",
        "",
        "| status | |",
        "|---|---|",
        *(f"| {status} | {text} |" for status, text in STATUSES.items()),
        "",
        "A 2xx answer means that what was asked is on disk. `Idempotency-Key` on a submission makes sending it again "
        "harmless.",
        "",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += _operation(method.upper(), path, operation)
    lines += STREAMS
    return "\n".join(lines)


STREAMS = [
    "## Streams",
    "",
    "`GET /v1/events` and `GET /v1/jobs/{job}/logs?follow=true` are server-sent events. Both resume behind the id in "
    "`Last-Event-ID`: the number of an event, or `attempt:offset` in a log. Messages of a log are `state` (what has "
    "become of the job), `log` (`run`, `rank`, `text`) and, last, `end` (`state`, `exit_code`, `exit_reason`, "
    "`message`). A stream without `end` has not ended: connect again.",
    "",
]


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {method} {path}", "")
    text = operation.get("description") or operation.get("summary", "")
    if text:
        yield from (" ".join(text.split()), "")
    rows = [p for p in operation.get("parameters", ()) if p["in"] != "path"]
    if rows:
        yield from ("| parameter | |", "|---|---|")
        yield from (f"| `{p['name']}` | {_cell(_parameter(p))} |" for p in rows)
        yield ""


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema", {})
    options = ", ".join(f"`{o}`" for o in schema.get("enum", ()))
    default = f"default `{schema['default']}`" if schema.get("default") not in (None, "") else ""
    text = parameter.get("description", "")
    return " ".join(part for part in (text, options, default) if part) or str(schema.get("type", ""))


# -- job file ---------------------------------------------------------------------------------------------------------


def job_file_page() -> str:
    levels = ", ".join(f"`{name}` is {value}" for name, value in PRIORITIES.items())
    lines = [
        "# Job file",
        "",
        "YAML or JSON; several YAML documents, or a list, are several jobs. Only `command` (or `script`) is needed. "
        "Its JSON Schema is served at `/v1/schema/job`.",
        "",
        *EXAMPLE,
        "",
        f"Durations: `90s`, `2h`, `1h30m`, or seconds. Sizes: `512MiB`, `6GiB`, or MiB. Priorities: {levels}. "
        f"Names: {NAME_RULE}.",
        "",
    ]
    descriptions = json_schema()["$defs"]
    lines += _fields("Fields", JobModel, "")
    for title, model in (("gpus", Gpus), ("mounts", MountModel), ("roles", RolesModel), *_PODS):
        lines += _fields(title, model, descriptions[model.__name__].get("description", ""))
    return "\n".join(lines)


EXAMPLE = """```yaml
name: resnet-${lr}
command: python train.py --lr ${lr}     # a shell line, with all that the shell can do
gpus: 1-4                               # between one and four, as they come free
epochs: 90
uses_library: true                      # may be stopped at an epoch's end, and goes on later
priority: high
retries: 2
env: {OMP_NUM_THREADS: 4}
secrets: [WANDB_API_KEY]                # from your shell, shown as ***
sweep: {lr: [0.1, 0.01]}                # two jobs
```""".splitlines()


def _fields(title: str, model: Any, text: str) -> Iterator[str]:
    yield from (f"## {title}", "")
    if text:
        yield from (text, "")
    yield from ("| field | default | |", "|---|---|---|")
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {_default(field)} | {_cell(field.description or '')} |"
    yield ""


def _default(field: Any) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value in (None, "", (), {}) or isinstance(value, Gpus):
        return "`1`" if isinstance(value, Gpus) else ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# -- configuration ----------------------------------------------------------------------------------------------------


def configuration_page() -> str:
    lines = [
        "# Configuration",
        "",
        "No configuration is needed. Settings of `config.yaml` in Swell's home directory (`~/.swell`, or `$SWELL_HOME`) hold "
        "from the next start of the daemon; options of the command override them. For example:",
        "",
        "    gpus: 4",
        "    policy: elastic-fifo",
        "    options:",
        "      starvation_s: 7200",
        "      quotas: {vision: {gpus: 8}, speech: {gpus: 4, borrow: false}}",
        "",
        *_settings("Settings", Config),
        *_settings("options", Options),
        *_settings("options.quotas, by team", Quota),
        *_settings("options.limits, and options.limits_of by user", Limits),
        *_settings("idle_gpus", IdleRules),
        *_settings("oidc", OidcSettings),
        *_settings("hooks, by name", Hook),
        *_settings("kubernetes", KubernetesSettings),
    ]
    for name in sorted(POLICIES):
        declared = options_of(name)
        if declared:
            lines += [f"## Policy {name}", "", f"`swell policy {name} name=value`, or `options.policy`.", ""]
            lines += ["| option | default | |", "|---|---|---|"]
            lines += [f"| `{key}` | `{option.default}` | {_cell(option.doc)} |" for key, option in declared.items()]
            lines.append("")
    return "\n".join(lines)


def _settings(title: str, kind: type) -> Iterator[str]:
    """Fields with the comments beside them."""
    yield from (f"## {title}", "", inspect.getdoc(kind) or "", "", "| setting | default | |", "|---|---|---|")
    said = dict(re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), flags=re.MULTILINE))
    for field in fields(kind):
        default = "needed" if field.default_factory is MISSING else ""
        shown = default if field.default is MISSING else f"`{json.dumps(field.default)}`"
        yield f"| `{field.name}` | {shown} | {_cell(said.get(field.name, ''))} |"
    yield ""


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "rest.md": rest_page,
    "job-file.md": job_file_page,
    "configuration.md": configuration_page,
}


def main() -> int:
    HERE.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, make in PAGES.items():
        text = MADE + make().rstrip() + "\n"
        path = HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"not what the code says: {', '.join(stale)}; run python scripts/reference.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
