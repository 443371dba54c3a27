"""POST /v1/jobs: the hottest route of people. Plain Starlette; the body is decoded once and checked once."""

from __future__ import annotations

import hashlib
import pwd
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from swell.api.audit import NOTE
from swell.api.deps import Context, caller_of, context_of, json_response, named_jobs, now_s
from swell.api.port import Engine
from swell.api.problems import ApiError
from swell.core.accounts import Caller
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.jobfile import files
from swell.jobfile.expand import Given, Resolve, check_total, dependency_names, expand, size_of
from swell.jobfile.problems import JobFileError, Problem, one, prefixed
from swell.jobfile.read import read_documents
from swell.jobfile.shorthand import MAX_ARRAY
from swell.plan.admit import deadline_note, elasticity_note

KEY_HEADER = "idempotency-key"
MAX_KEY = 200
Document = dict[str, Any]


async def submit(request: Request) -> Response:
    """One job, or many: a JSON object, a list of them, or YAML with any number of documents."""
    context = context_of(request)
    documents = _documents(await request.body(), request.headers.get("content-type", ""))
    submission = _Submission(context=context, who=caller_of(request), key=_key(request))
    accepted = await submission.submit(documents)
    ids = [job["id"] for job in accepted]
    request.scope[NOTE] = f"jobs {min(ids)} to {max(ids)}" if len(ids) > 1 else f"job {ids[0]}"
    answer = {"ids": ids, "jobs": accepted, "batch": submission.batch, "notes": list(submission.notes)}
    return json_response(answer, status=201)


def _key(request: Request) -> str:
    """Each user has keys of their own: nobody finds another's job by guessing one."""
    key = request.headers.get(KEY_HEADER, "")
    if len(key) > MAX_KEY or not key.isprintable():
        raise ApiError(400, "Refused", f"Idempotency-Key must be printable and at most {MAX_KEY} characters long")
    who = caller_of(request)
    return f"{who.user}/{key}" if key and not who.is_owner else key


def _documents(body: bytes, content_type: str) -> Sequence[Document]:
    if "yaml" in content_type or content_type.startswith("text/"):
        return read_documents(body)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        fix = 'send a JSON object such as {"command": "python train.py"}, or YAML with Content-Type: application/yaml'
        raise one("", f"not valid JSON: {error}", fix, syntax=True) from error
    documents = found if isinstance(found, list) else [found]
    if not documents or not all(isinstance(document, dict) for document in documents):
        fix = "send an object with the fields of a job, or a list of such objects"
        raise one("", "a job is a JSON object", fix, syntax=True)
    return documents


@dataclass(slots=True, kw_only=True)
class _Submission:
    """Documents in, ids out. Jobs that wait for others of the same request, by name, go in after them."""

    context: Context
    who: Caller
    key: str
    batch: str = ""
    by_name: dict[str, list[JobId]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)  # notices to the submitter, each once

    async def submit(self, documents: Sequence[Document]) -> list[dict[str, Any]]:
        specs = self._expand_all(documents)  # every problem is reported before anything is accepted
        total = sum(map(len, specs))
        if total > MAX_ARRAY:
            raise one("", f"these are {total} jobs; a request may have {MAX_ARRAY}", "send them in several")
        if total > 1:
            self.batch = _batch(self.key)
        if not any(dependency_names(document) for document in documents):
            return await self._send([spec for group in specs for spec in group], self.key)
        return await self._send_in_stages(documents)

    def _expand_all(self, documents: Sequence[Document]) -> list[list[JobSpec]]:
        def checked(document: Document, resolve: Resolve) -> list[JobSpec]:
            return self._checked(document, self._given(resolve))

        return expand_in_order(self.context.engine, documents, checked)

    def _given(self, resolve: Resolve) -> Given:
        return Given(now_s=now_s(self.context.engine), user=self.who.user, resolve=resolve)

    def _checked(self, document: Document, given: Given) -> list[JobSpec]:
        specs = [_owned(self.who, spec) for spec in expand(document, given)]
        if self.context.config.as_submitter:
            _check_account(self.who, specs[0])
        _check_files(self.context, document, specs[0])
        _check_outputs(self.context, specs[0])
        return specs

    async def _send(self, specs: Sequence[JobSpec], key: str) -> list[dict[str, Any]]:
        specs = _as_before(self.context.engine, key, specs)
        ids = await self.context.engine.submit(specs, key=key, batch=self.batch)
        present_s = now_s(self.context.engine)
        for spec in specs:
            for note in filter(None, (elasticity_note(spec), deadline_note(spec, present_s))):
                self.notes.setdefault(note)
        return [{"id": job, "name": spec.name} for job, spec in zip(ids, specs, strict=True)]

    async def _send_in_stages(self, documents: Sequence[Document]) -> list[dict[str, Any]]:
        accepted: list[dict[str, Any]] = []
        for index, document in enumerate(documents):
            specs = [_owned(self.who, spec) for spec in expand(document, self._given(self._resolve))]
            key = f"{self.key}#{index}" if self.key and index else self.key
            sent = await self._send(specs, key)
            self.by_name.setdefault(str(document.get("name")), []).extend(job["id"] for job in sent)
            accepted += sent
        return accepted

    def _resolve(self, name: str) -> Sequence[JobId]:
        """Of this request if there, else the latest of that name; an element of an array has its own name."""
        return self.by_name.get(name) or _latest(self.context.engine, name)


def expand_in_order(
    engine: Engine, documents: Sequence[Document], expanded: Callable[[Document, Resolve], list[JobSpec]]
) -> list[list[JobSpec]]:
    """The jobs of each document, or all that is wrong with them. Those that depend on others of the same request have
    the ids that these would get now."""
    by_name: dict[str, list[JobId]] = {}
    names = {str(document.get("name")) for document in documents}
    found: list[list[JobSpec]] = []
    problems: list[Problem] = []
    following = engine.state.last_job + 1
    size = 0

    def resolve(name: str) -> Sequence[JobId]:
        known = by_name.get(name) or _latest(engine, name)
        if not known and name in names:
            raise one("depends_on", f"{name!r} comes later in the same request", "put it first")
        return known

    for index, document in enumerate(documents):
        specs: list[JobSpec] = []
        try:
            specs = expanded(document, resolve)
        except JobFileError as error:
            problems += prefixed(error.problems, f"jobs[{index}]") if len(documents) > 1 else error.problems
        count = max(1, len(specs))  # what depends on a wrong one is not wrong for that
        by_name.setdefault(str(document.get("name")), []).extend(range(following, following + count))
        following += count
        size += size_of(document) * count
        check_total(size, following - engine.state.last_job - 1)
        found.append(specs)
    if problems:
        raise JobFileError(problems)
    return found


def _latest(engine: Engine, name: str) -> list[JobId]:
    return sorted(named_jobs(engine, name))[-1:]


def _as_before(engine: Engine, key: str, specs: Sequence[JobSpec]) -> Sequence[JobSpec]:
    """A deadline counted from submission counts from the first time that the same submission came."""
    first = engine.state.keys.get(key) if key else None
    if first is None:
        return specs
    known = [engine.state.jobs.get(first + index) for index in range(len(specs))]
    return [
        replace(spec, deadline_s=record.spec.deadline_s) if record and spec.deadline_s else spec
        for spec, record in zip(specs, known, strict=True)
    ]


def _batch(key: str) -> str:
    """The same for the same key, so that a repeated request is the same submission."""
    return hashlib.sha256(key.encode()).hexdigest()[:8] if key else secrets.token_hex(4)


def _check_files(context: Context, document: Mapping[str, Any], spec: JobSpec) -> None:
    if not spec.files:
        return
    root = files.unpacked_path(context.config.files_dir, spec.files)
    if not files.touch(context.config.files_dir, spec.files):
        fix = f"send it first: PUT /v1/files/{spec.files}"
        raise one("files", f"snapshot {spec.files[:7]} is not here", fix)
    script = document.get("script")
    if isinstance(script, str) and not _is_there(context, root, script):
        fix = "check its name, and that neither .gitignore nor .swellignore leaves it out"
        raise one("script", f"there is no file {script!r} in the working directory at submit", fix)


def _is_there(context: Context, root: Path, script: str) -> bool:
    """Whether another file of this machine is there is none of a submitter's business if the daemon is root: the run
    will say."""
    elsewhere = Path(script).is_absolute() and context.config.as_submitter
    return elsewhere or (root / script).is_file()


def _check_outputs(context: Context, spec: JobSpec) -> None:
    """A daemon that runs as root could read any file, also one that the submitter may not: it is refused."""
    if spec.outputs and context.config.as_submitter:
        fix = "leave it out; `swell fetch JOB` copies what a job wrote"
        raise one("outputs", "this daemon runs jobs as their submitters and copies nothing for them", fix)


def _owned(who: Caller, spec: JobSpec) -> JobSpec:
    """A job belongs to its submitter. The daemon's owner may name another user."""
    if who.is_owner:
        return spec
    if spec.user not in ("", who.user):
        raise one("user", f"you are {who.user} and cannot submit for {spec.user}", "leave `user` out")
    if spec.team not in ("", who.team):
        mine = f"your team is {who.team}" if who.team else "you are in no team"
        raise one("team", f"{mine}; you cannot submit for {spec.team}", "leave `team` out, or ask an admin")
    return replace(spec, user=who.user, team=who.team)


def _check_account(who: Caller, spec: JobSpec) -> None:
    """Jobs run as the machine's user of the same name: there must be one, and only the owner's may be root."""
    try:
        account = pwd.getpwnam(spec.user)
    except KeyError:
        what = f"jobs run as their submitter here, and the daemon's machine has no user {spec.user!r}"
        raise one("user", what, "ask its administrator for an account of that name") from None
    if account.pw_uid == 0 and not who.is_owner:
        raise one("user", "jobs run as their submitter here, and root's are its owner's", "submit as yourself")
    if spec.image:
        what = "jobs run as their submitter here, and containers for that are not built yet"
        raise one("image", what, "leave `image` out, or set run_as: self")
