"""Log-in to the dashboard by an OpenID provider: authorization code with PKCE, state and nonce, by Authlib and joserfc.

It ends in the same one-time code as `swell ui`: the page exchanges it for a session, and no token of the provider is
kept. What a browser began it must finish itself: a cookie that holds the state, and nothing else, ties the two ends."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from swell.api.audit import NOTE
from swell.api.auth import same
from swell.api.deps import engine_of
from swell.api.problems import ApiError
from swell.api.sessions import Holder, Sessions
from swell.config import Config
from swell.core.accounts import Way
from swell.core.oidc import OidcSettings, Welcome, welcome

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

log = logging.getLogger(__name__)

BEGIN_PATH = "/v1/ui/oidc"
CALLBACK_PATH = "/v1/ui/oidc/callback"
COOKIE = "swell-oidc"
BEGUN_S = 600.0
MAX_BEGUN = 1000
ANSWER_S = 10.0
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
"""Signed with a key of the provider; never `none`, never a shared secret."""


def _failed(detail: str) -> ApiError:
    """The provider did not answer as it should; `detail` says what to look at."""
    return ApiError(502, "The provider failed", detail)


class Begun:
    """Log-ins that browsers have begun: by state, the verifier, the nonce and until when. In memory, bounded."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kept: dict[str, tuple[str, str, float]] = {}

    def new(self) -> tuple[str, str, str]:
        """State, verifier, nonce."""
        now = self._now_s()
        alive = [(key, kept) for key, kept in self._kept.items() if kept[2] > now]
        self._kept = dict(alive[-MAX_BEGUN + 1 :])
        state, verifier, nonce = (secrets.token_urlsafe(48) for _ in range(3))
        self._kept[state] = verifier, nonce, now + BEGUN_S
        return state, verifier, nonce

    def take(self, state: str) -> tuple[str, str] | None:
        """Once."""
        verifier, nonce, until_s = self._kept.pop(state, ("", "", 0.0))
        return (verifier, nonce) if until_s > self._now_s() else None


class Provider:
    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._found: dict[str, Any] | None = None

    async def authorization_url(self, redirect: str, state: str, verifier: str, nonce: str) -> str:
        async with self._client(redirect) as client:
            found = await self._metadata(client)
            url, _ = client.create_authorization_url(
                found["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
            )
        return str(url)

    async def claims(self, redirect: str, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        """Of the id token, whose signature, issuer, audience, times and nonce are right. Raises ApiError."""
        try:
            async with self._client(redirect) as client:
                found = await self._metadata(client)
                token = await client.fetch_token(found["token_endpoint"], code=code, code_verifier=verifier)
                keys = (await client.request("GET", found["jwks_uri"], withhold_token=True)).raise_for_status().json()
            return self._verified(str(token.get("id_token", "")), keys, nonce)
        except ApiError:
            raise
        except Exception as error:  # of three libraries, about an answer of the provider
            log.warning("a log-in at %s failed", self._settings.issuer, exc_info=error)
            raise _failed(f"the log-in at {self._settings.issuer} failed ({error}); begin again") from error

    def _verified(self, id_token: str, keys: Any, nonce: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.jwk import KeySet

        settings = self._settings
        token = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=ALGORITHMS)
        registry = jwt.JWTClaimsRegistry(
            leeway=60,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        registry.validate(token.claims)
        return dict(token.claims)

    async def _metadata(self, client: AsyncOAuth2Client) -> dict[str, Any]:
        if self._found is None:
            url = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            try:
                found = (await client.request("GET", url, withhold_token=True)).raise_for_status().json()
            except Exception as error:  # of whichever HTTP library Authlib uses
                raise _failed(f"{url} does not answer ({error}); check `oidc.issuer`") from error
            if found.get("issuer") != self._settings.issuer:
                raise _failed(f"{url} is of the issuer {found.get('issuer')!r}; set `oidc.issuer` to exactly that")
            self._found = found
        return self._found

    def _client(self, redirect: str) -> AsyncOAuth2Client:
        try:
            from authlib.integrations.httpx_client import AsyncOAuth2Client
        except ImportError as error:
            raise _failed("log-in by OpenID needs the extra: pip install 'swell[oidc]'") from error
        settings = self._settings
        secret = Path(settings.client_secret_file).read_text().strip() if settings.client_secret_file else None
        return AsyncOAuth2Client(
            settings.client_id,
            secret,
            scope=settings.scope,
            redirect_uri=redirect,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            timeout=ANSWER_S,
        )


class OidcLogin:
    """Routes of a browser that logs in. `sessions` makes the code that ends it."""

    def __init__(self, config: Callable[[], Config], sessions: Sessions) -> None:
        self._config = config
        self._sessions = sessions
        self._begun = Begun(time.monotonic)
        self._provider: tuple[OidcSettings, Provider] | None = None

    def routes(self) -> list[Route]:
        return [
            Route(BEGIN_PATH, self.begin, methods=["GET"]),
            Route(CALLBACK_PATH, self.finish, methods=["GET"]),
        ]

    async def begin(self, request: Request) -> Response:
        state, verifier, nonce = self._begun.new()
        url = await self._known()[1].authorization_url(_redirect(request), state, verifier, nonce)
        answer = RedirectResponse(url, status_code=303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, state, int(BEGUN_S), path=BEGIN_PATH, secure=secure, httponly=True, samesite="lax")
        return answer

    async def finish(self, request: Request) -> Response:
        asked, (settings, provider) = request.query_params, self._known()
        state = asked.get("state", "")
        begun = self._begun.take(state)
        if begun is None or not same(request.cookies.get(COOKIE, ""), state):
            raise ApiError(403, "Not let in", "this log-in was not begun in this browser, or too long ago; begin again")
        if "error" in asked:
            raise ApiError(
                403, "Not let in", f"the provider refused: {asked.get('error_description') or asked['error']}"
            )
        claims = await provider.claims(_redirect(request), asked.get("code", ""), *begun)
        found = welcome(settings, claims, engine_of(request).state.users)
        await _settle(request, found)
        request.scope[NOTE] = f"log-in of {found.user}"
        code = self._sessions.new_code(Holder(Way.OIDC, found.user))
        answer = RedirectResponse(f"/#code={code}", status_code=303)
        answer.delete_cookie(COOKIE, path=BEGIN_PATH)
        return answer

    def _known(self) -> tuple[OidcSettings, Provider]:
        settings = self._config().oidc
        if settings is None:
            raise ApiError(404, "Not found", "this daemon has no OpenID provider; `oidc` in config.yaml names one")
        if self._provider is None or self._provider[0] != settings:
            self._provider = settings, Provider(settings)
        return self._provider


def _redirect(request: Request) -> str:
    """Under the name that the browser used, which the guard has checked."""
    return f"{request.url.scheme}://{request.headers['host']}{CALLBACK_PATH}"


async def _settle(request: Request, found: Welcome) -> None:
    """The provider decides on the role, at each log-in; an admin decides on the team."""
    known = engine_of(request).state.users.get(found.user)
    if found.role is not None and (known is None or known.role is not found.role):
        await engine_of(request).accounts.set_user(found.user, found.role, None, by=str(Way.OIDC))
