"""What each route needs of its caller: one table, and the one place that judges by it. The guard asks it before a route
is reached. A route that is not in the table is open to nobody but the daemon's owner."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from swell.core.accounts import Caller, Role, may_act, may_read
from swell.core.state import JobRecord


class Need(Enum):
    SEE = "viewer"  # every user
    SUBMIT = "submitter"
    READ_JOB = "its owner, their team, and operators"
    ACT_ON_JOB = "its owner and operators"
    OPERATE = "operator"
    ADMINISTER = "admin"
    OWN = "the daemon's owner"  # and, for reports, the run itself


_ROLES: Mapping[Need, Role] = {
    Need.SEE: Role.VIEWER,
    Need.SUBMIT: Role.SUBMITTER,
    Need.OPERATE: Role.OPERATOR,
    Need.ADMINISTER: Role.ADMIN,
}

NEEDS: Mapping[tuple[str, str], Need] = {
    ("GET", "/v1/jobs"): Need.SEE,  # lines of jobs that the caller may not read leave out what the job printed
    ("POST", "/v1/jobs"): Need.SUBMIT,
    ("POST", "/v1/jobs/validate"): Need.SEE,
    ("POST", "/v1/jobs/cancel"): Need.SUBMIT,  # of the jobs it names, those that the caller may act on
    ("GET", "/v1/jobs/{job}"): Need.READ_JOB,
    ("DELETE", "/v1/jobs/{job}"): Need.ACT_ON_JOB,
    ("GET", "/v1/jobs/{job}/files"): Need.READ_JOB,
    ("GET", "/v1/jobs/{job}/tree"): Need.READ_JOB,
    ("GET", "/v1/jobs/{job}/content"): Need.READ_JOB,
    ("POST", "/v1/jobs/{job}/cancel"): Need.ACT_ON_JOB,
    ("POST", "/v1/jobs/{job}/pause"): Need.ACT_ON_JOB,
    ("POST", "/v1/jobs/{job}/resume"): Need.ACT_ON_JOB,
    ("POST", "/v1/jobs/{job}/priority"): Need.ACT_ON_JOB,
    ("POST", "/v1/jobs/{job}/update"): Need.ACT_ON_JOB,
    ("POST", "/v1/jobs/{job}/requeue"): Need.ACT_ON_JOB,
    ("GET", "/v1/jobs/{job}/explain"): Need.READ_JOB,
    ("GET", "/v1/jobs/{job}/speed"): Need.READ_JOB,
    ("GET", "/v1/jobs/{job}/series"): Need.READ_JOB,
    ("GET", "/v1/jobs/{job}/runs"): Need.READ_JOB,
    ("GET", "/v1/jobs/{job}/logs"): Need.READ_JOB,
    ("GET", "/v1/runs/{run}"): Need.READ_JOB,
    ("POST", "/v1/runs/{run}/report"): Need.OWN,
    ("GET", "/v1/runs/{run}/stop"): Need.OWN,
    ("GET", "/v1/runs/{run}/files"): Need.OWN,
    ("POST", "/v1/runs/{run}/lease"): Need.OWN,
    ("GET", "/v1/schema/job"): Need.SEE,
    ("GET", "/v1/nodes"): Need.SEE,
    ("POST", "/v1/nodes"): Need.OPERATE,
    ("POST", "/v1/machines"): Need.OPERATE,
    ("POST", "/v1/slots"): Need.OPERATE,
    ("POST", "/v1/nodes/{node}/{action}"): Need.OPERATE,
    ("GET", "/v1/nodes/{node}"): Need.SEE,
    ("POST", "/v1/nodes/{node}/lost"): Need.OPERATE,
    ("DELETE", "/v1/nodes/{node}"): Need.OPERATE,
    ("GET", "/v1/leftovers"): Need.OPERATE,
    ("GET", "/v1/hooks"): Need.OPERATE,
    ("POST", "/v1/hooks/{name}/test"): Need.OPERATE,
    ("POST", "/v1/hooks/{name}/replay"): Need.OPERATE,
    ("GET", "/v1/policy"): Need.SEE,
    ("PUT", "/v1/policy"): Need.OPERATE,
    ("GET", "/v1/events"): Need.SEE,  # of jobs that the caller may not read: only that something happened
    ("GET", "/v1/live"): Need.SEE,
    ("GET", "/v1/timeline"): Need.SEE,
    ("POST", "/v1/what-if"): Need.SEE,
    ("POST", "/v1/simulate"): Need.SEE,
    ("GET", "/v1/files/{content_hash}"): Need.SUBMIT,
    ("PUT", "/v1/files/{content_hash}"): Need.SUBMIT,
    ("POST", "/v1/ui/codes"): Need.SEE,
    ("GET", "/v1/openapi.json"): Need.SEE,
    ("GET", "/metrics"): Need.OPERATE,
    ("GET", "/v1/whoami"): Need.SEE,
    ("GET", "/v1/quota"): Need.SEE,  # one's own; those of others for operators
    ("GET", "/v1/quotas"): Need.OPERATE,
    ("GET", "/v1/audit"): Need.ADMINISTER,
    ("GET", "/v1/users"): Need.SEE,
    ("GET", "/v1/usage"): Need.SEE,  # sums; what they are of stands in the lines of jobs, which everybody sees
    ("PUT", "/v1/users/{name}"): Need.ADMINISTER,
    ("DELETE", "/v1/users/{name}"): Need.ADMINISTER,
    ("GET", "/v1/tokens"): Need.SEE,  # one's own; those of others for admins
    ("POST", "/v1/tokens"): Need.SEE,
    ("DELETE", "/v1/tokens/{token}"): Need.SEE,
}
"""By method and path. `tests/unit/api/test_access.py` fails for a route that is missing here."""

_PARAMETER = re.compile(r"\\\{(\w+)\\\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The route of a request: what it needs, and the job that its path names, if one."""

    need: Need
    ref: str = ""  # an id, a name, `last`, or the job of a run
    span: tuple[int, int] = (0, 0)  # where the path says it


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(template)))


_EXACT = {key: need for key, need in NEEDS.items() if "{" not in key[1]}
_PATTERNS = [(method, _pattern(path), need) for (method, path), need in NEEDS.items() if "{" in path]


def found(method: str, path: str) -> Found:
    """What a request needs. HEAD asks for what GET would give."""
    method = "GET" if method == "HEAD" else method
    if (method, path) in _EXACT:
        return Found(need=_EXACT[method, path])
    for known, pattern, need in _PATTERNS:
        match = pattern.fullmatch(path) if known == method else None
        if match is not None:
            return _with_job(need, match)
    return Found(need=Need.OWN)


def _with_job(need: Need, match: re.Match[str]) -> Found:
    groups = match.groupdict()
    if "run" in groups:
        return Found(need=need, ref=groups["run"].partition(".")[0])
    if "job" in groups:
        return Found(need=need, ref=groups["job"], span=match.span("job"))
    return Found(need=need)


def refusal(caller: Caller, need: Need, record: JobRecord | None = None) -> str:
    """Why the caller may not; empty if they may. `record`: the job it is about."""
    if caller.is_owner:
        return ""
    if need is Need.OWN:
        return "only the daemon's owner may do this"
    if record is not None and need in (Need.READ_JOB, Need.ACT_ON_JOB):
        return _about_job(caller, need, record)
    role = _ROLES.get(need, Role.SUBMITTER if need is Need.ACT_ON_JOB else Role.VIEWER)
    if caller.role.includes(role):
        return ""
    return f"you are {caller.user}, a {caller.role}; this needs the role {role}. An admin can give it: " + (
        f"`swell user add {caller.user} --role {role}`"
    )


def _about_job(caller: Caller, need: Need, record: JobRecord) -> str:
    owner = record.spec.user
    if need is Need.READ_JOB:
        allowed, verb = may_read(caller, owner, record.spec.team), "read"
    else:
        allowed, verb = may_act(caller, owner), "change"
    if allowed:
        return ""
    who = f"you are {caller.user}, a {caller.role}"
    return f"job {record.id} belongs to {owner or 'nobody known'}; {who}, and only {need.value} may {verb} it"
