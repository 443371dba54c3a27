"""Routes about people: who am I, users, tokens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path as PathParameter
from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from swell.api.deps import Body, caller, caller_of, engine_of, identities_of, json_response, router_of
from swell.api.problems import ApiError
from swell.core.accounts import Caller, Role, Token, User
from swell.core.errors import NotFound
from swell.core.state import State
from swell.jobfile.expand import NAME_PATTERN, NAME_RULE

router = router_of("accounts")
DAY_S = 86400.0
MAX_DAYS = 3660
UserName = Annotated[str, PathParameter(pattern=f"^{NAME_PATTERN}$", description=NAME_RULE)]


class UserBody(Body):
    """What is left out stays as it is; a new user is a submitter without a team."""

    role: Annotated[Role | None, Field(strict=False)] = None
    team: Annotated[str | None, Field(max_length=100)] = None


class TokenBody(Body):
    user: Annotated[str, Field(max_length=100, description="Empty: oneself.")] = ""
    role: Annotated[Role | None, Field(strict=False, description="At most this role. Null: the user's.")] = None
    days: Annotated[
        int,
        Field(ge=0, le=MAX_DAYS, description="Days until it expires; 0: never. By a token: not after that one."),
    ] = 90
    note: Annotated[str, Field(max_length=200)] = ""


@router.get("/v1/whoami")
async def whoami(request: Request) -> Response:
    """Who the daemon takes the caller for, how it knows, and what they may do."""
    who = caller_of(request)
    return json_response({"user": who.user, "role": who.role, "team": who.team, "by": who.way})


@router.get("/v1/users")
async def list_users(request: Request) -> Response:
    state = engine_of(request).state
    return json_response({"users": [_user_view(state, user) for _, user in sorted(state.users.items())]})


@router.put("/v1/users/{name}")
async def set_user(request: Request, name: UserName, body: UserBody) -> Response:
    """Add a user, or change role or team."""
    engine = engine_of(request)
    await engine.accounts.set_user(name, body.role, body.team, by=caller(request))
    return json_response(_user_view(engine.state, engine.state.users[name]))


@router.delete("/v1/users/{name}")
async def remove_user(request: Request, name: str) -> Response:
    """Their tokens stop working at once; their ended jobs stay. 409 while they have jobs that have not ended."""
    await engine_of(request).accounts.remove_user(name, by=caller(request))
    return json_response({"name": name})


@router.get("/v1/tokens")
async def list_tokens(request: Request) -> Response:
    """One's own; for admins all. `last_used_s` is counted since the daemon started."""
    who, state = caller_of(request), engine_of(request).state
    shown = [token for token in state.tokens.values() if _owns(who, token)]
    return json_response({"tokens": [_token_view(request, token) for token in shown]})


@router.post("/v1/tokens", status_code=201)
async def issue_token(request: Request, body: TokenBody) -> Response:
    """A new token, shown this once: the daemon keeps only a digest. One that a token makes for its own user ends with
    it at the latest: what leaked for a day is no way to stay."""
    who, engine = caller_of(request), engine_of(request)
    user, state = body.user or who.user, engine.state
    if user != who.user and not who.role.includes(Role.ADMIN):
        raise ApiError(403, "Not allowed", f"you are {who.user}; only admins make tokens for others")
    if who.session:
        raise ApiError(403, "Not allowed", "a page of the dashboard makes no tokens; run `swell token new`")
    if user not in state.users:
        fix = f"`swell user add {user}` adds them" if user else "name a user; the daemon's own token is in its home"
        raise NotFound(f"there is no user {user!r}; {fix}")
    role = body.role or (who.role if user == who.user and not who.is_owner else None)
    if role is not None and not who.role.includes(role):
        raise ApiError(403, "Not allowed", f"you are {who.user}, a {who.role} here; that gives no token of a {role}")
    token, text = await engine.accounts.issue_token(
        user, role=role, lasts_s=body.days * DAY_S, until_s=_end_of(who, user, state), note=body.note, by=who.user
    )
    return json_response({**_token_view(request, engine.state.tokens[token]), "token": text}, status=201)


def _end_of(who: Caller, user: str, state: State) -> float:
    """When the caller's own right to this user's role is over; 0: never, or it is an admin's for somebody else."""
    maker = state.tokens.get(who.token)
    return maker.expires_s if maker is not None and user == who.user else 0.0


@router.delete("/v1/tokens/{token}")
async def revoke_token(request: Request, token: str) -> Response:
    """It stops working at once. A token revokes those of its user that give no more than it does itself."""
    who, engine = caller_of(request), engine_of(request)
    known = engine.state.tokens.get(token)
    if known is None or not _owns(who, known):
        raise NotFound(f"there is no token {token!r} of yours; `swell token ls` lists them")
    by = engine.state.tokens.get(who.token)
    if by is not None and not by.role.includes(known.role):
        detail = f"your token is that of a {by.role}; it revokes none of a {known.role}"
        raise ApiError(403, "Not allowed", detail)
    await engine.accounts.revoke_token(token, by=who.user)
    return json_response({"id": token})


def _owns(who: Caller, token: Token) -> bool:
    return who.role.includes(Role.ADMIN) or token.user == who.user


def _user_view(state: State, user: User) -> dict[str, Any]:
    active = sum(1 for job in state.active if state.jobs[job].spec.user == user.name)
    return {"name": user.name, "role": user.role, "team": user.team, "since_s": user.since_s, "active_jobs": active}


def _token_view(request: Request, token: Token) -> dict[str, Any]:
    use = identities_of(request).uses.get(token.id)
    return {
        "id": token.id,
        "user": token.user,
        "role": token.role,
        "note": token.note,
        "made_s": token.made_s,
        "expires_s": token.expires_s or None,
        "last_used_s": use.at_s if use else None,
        "last_used_from": use.peer if use else "",
    }
