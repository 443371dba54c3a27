"""Whom the claims of an OpenID provider let in, and with which role."""

import pytest

from swell.core.accounts import Role, User
from swell.core.oidc import NotLetIn, OidcSettings, Welcome, welcome

PLAIN = OidcSettings(issuer="https://login.lab", client_id="swell")
MAPPED = OidcSettings(issuer="https://login.lab", client_id="swell", roles={"gpu": Role.SUBMITTER, "ops": Role.ADMIN})
ANA = {"preferred_username": "ana", "groups": ["gpu", "x"]}


def test_the_highest_role_that_a_claim_gives_counts() -> None:
    assert welcome(MAPPED, ANA, {}) == Welcome(user="ana", role=Role.SUBMITTER)
    assert welcome(MAPPED, {**ANA, "groups": ["gpu", "ops"]}, {}).role is Role.ADMIN
    assert welcome(MAPPED, {**ANA, "groups": "ops"}, {}).role is Role.ADMIN


@pytest.mark.parametrize("groups", [[], ["x"], "x", [1, None], ["GPU"]])
def test_nobody_comes_in_by_a_claim_that_gives_no_role(groups: object) -> None:
    with pytest.raises(NotLetIn, match="gpu, ops"):
        welcome(MAPPED, {**ANA, "groups": groups}, {"ana": User(name="ana", role=Role.ADMIN)})


def test_without_roles_in_the_settings_an_admin_adds_users() -> None:
    with pytest.raises(NotLetIn, match="swell user add ana"):
        welcome(PLAIN, ANA, {})
    assert welcome(PLAIN, ANA, {"ana": User(name="ana", role=Role.VIEWER)}) == Welcome(user="ana", role=None)


@pytest.mark.parametrize("name", [None, "", 7, "../ana", "ana bo", "a" * 101, "-ana"])
def test_a_claim_that_is_no_user_name_lets_nobody_in(name: object) -> None:
    with pytest.raises(NotLetIn, match="user_claim"):
        welcome(PLAIN, {"preferred_username": name}, {})


def test_an_e_mail_address_counts_only_if_the_provider_verified_it() -> None:
    settings = OidcSettings(issuer="https://l", client_id="s", user_claim="email", roles={"gpu": Role.VIEWER})
    claims = {"email": "ana@lab.org", "groups": "gpu"}
    for unverified in ({}, {"email_verified": False}, {"email_verified": "true"}):
        with pytest.raises(NotLetIn, match="not verified"):
            welcome(settings, {**claims, **unverified}, {})
    assert welcome(settings, {**claims, "email_verified": True}, {}).user == "ana"
