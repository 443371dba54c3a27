"""Who may do what: roles include each other in order, tokens narrow, jobs belong to their users."""

import pytest

from swell.core import account_events
from swell.core import events as ev
from swell.core.accounts import Caller, Role, Token, User, Way, holder, may_act, may_read
from swell.core.errors import Conflict, NotFound
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.state import State
from swell.plan import account_commands as commands

ANA = User(name="ana", role=Role.OPERATOR, team="vision")


def caller(user: str = "ana", role: Role = Role.SUBMITTER, team: str = "", way: Way = Way.TOKEN) -> Caller:
    return Caller(user=user, role=role, team=team, way=way)


def token(role: Role = Role.ADMIN, expires_s: float = 0.0) -> Token:
    return Token(id="1", user="ana", digest="d", role=role, expires_s=expires_s)


def with_users(*users: str) -> State:
    state = State()
    for name in users:
        apply(state, account_events.UserSet(name=name, role=Role.SUBMITTER, at_s=1.0))
    return state


def test_each_role_includes_those_before_it() -> None:
    order = list(Role)
    assert [[a.includes(b) for b in order] for a in order] == [[i >= j for j in range(4)] for i in range(4)]


def test_a_token_never_gives_more_than_its_user_has() -> None:
    expected = Caller(user="ana", role=Role.OPERATOR, team="vision", way=Way.TOKEN, token="1")
    assert holder(token(Role.ADMIN), ANA, 5.0) == expected
    narrowed = holder(token(Role.VIEWER), ANA, 5.0)
    assert narrowed is not None
    assert narrowed.role is Role.VIEWER


def test_a_token_ends_with_its_time_and_with_its_user() -> None:
    assert holder(token(expires_s=5.0), ANA, 4.9) is not None
    assert holder(token(expires_s=5.0), ANA, 5.0) is None
    assert holder(token(), None, 0.0) is None
    assert holder(token(), User(name="bo", role=Role.ADMIN), 0.0) is None


@pytest.mark.parametrize(
    ("who", "reads", "acts"),
    [
        (caller("ana"), True, True),
        (caller("ana", Role.VIEWER), True, False),
        (caller("bo"), False, False),
        (caller("bo", team="vision"), True, False),
        (caller("bo", Role.OPERATOR), True, True),
        (caller("", Role.ADMIN, way=Way.OWNER), True, True),
    ],
)
def test_a_job_is_read_by_its_owner_their_team_and_operators_and_changed_by_fewer(
    who: Caller, reads: bool, acts: bool
) -> None:
    assert (may_read(who, "ana", "vision"), may_act(who, "ana")) == (reads, acts)


def test_two_people_without_a_team_are_not_a_team() -> None:
    assert not may_read(caller("bo", team=""), "ana", "")


def test_tokens_go_with_their_user() -> None:
    state = with_users("ana", "bo")
    for name in ("ana", "bo"):
        apply(state, account_events.TokenIssued(token=name[0], user=name, digest="d", role=Role.VIEWER, at_s=2.0))
    apply(state, account_events.UserRemoved(name="ana", at_s=3.0))
    assert (list(state.users), list(state.tokens)) == (["bo"], ["b"])
    apply(state, account_events.TokenRevoked(token="b", at_s=4.0))
    assert state.tokens == {}


def test_setting_a_user_changes_only_what_is_given() -> None:
    state = with_users("ana")
    (event,) = commands.set_user(state, "ana", None, "vision", by="root", now_s=9.0)
    apply(state, event)
    assert state.users["ana"] == User(name="ana", role=Role.SUBMITTER, team="vision", since_s=1.0)
    assert commands.set_user(state, "ana", Role.SUBMITTER, None, by="root", now_s=9.0) == []


def test_a_user_with_jobs_that_have_not_ended_is_not_removed() -> None:
    state = with_users("ana")
    apply(state, ev.JobSubmitted(job=1, spec=JobSpec(name="a", command=("x",), user="ana"), at_s=1.0))
    with pytest.raises(Conflict, match="still has jobs"):
        commands.remove_user(state, "ana", by="root", now_s=2.0)
    apply(state, ev.JobCancelled(job=1, at_s=2.0))
    assert commands.remove_user(state, "ana", by="root", now_s=3.0)


def test_no_token_is_issued_beyond_its_user_nor_for_the_past_nor_for_nobody() -> None:
    state = with_users("ana")
    given = {"token": "1", "digest": "d", "note": "", "by": "root", "now_s": 10.0}
    with pytest.raises(Conflict, match="cannot give them"):
        commands.issue_token(state, "ana", role=Role.ADMIN, expires_s=0.0, **given)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="expired already"):
        commands.issue_token(state, "ana", role=None, expires_s=10.0, **given)  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="swell user add"):
        commands.issue_token(state, "bo", role=None, expires_s=0.0, **given)  # type: ignore[arg-type]
    for expires_s in (0.0, 1e9):  # never, and later
        assert commands.issue_token(state, "ana", role=None, expires_s=expires_s, **given)  # type: ignore[arg-type]
