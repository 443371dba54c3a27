"""Policies of one's own, and options of policies: loaded, checked, refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.decision import ReasonCode
from swell.core.errors import NotFound, SwellError
from swell.core.snapshot import Options
from swell.policy.custom import PolicyFileError, load_policy_file, load_policy_files
from swell.policy.options import number, numbers
from swell.policy.queues import OPTIONS as QUEUES
from swell.policy.registry import check_options, names, options_of, policy_named
from unit.policy.views import counts, decide, snapshot, view

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/policies/smallest_first.py"


def test_the_example_is_loaded_and_decides() -> None:
    assert load_policy_files([str(EXAMPLE)]) == ("smallest-first",)
    jobs = [view(1, 4, 4), view(2, 2, 2), view(3, 1, 1)]
    assert counts(decide("smallest-first", snapshot(jobs, 4)), jobs) == [0, 2, 1]
    limited = snapshot(jobs, 8, Options(policy={"per_team": 2}))
    assert counts(decide("smallest-first", limited), jobs) == [0, 2, 1]
    full = snapshot([*jobs, view(4, 4, 4), view(5, 4, 4)], 2)
    assert counts(decide("smallest-first", full), full.jobs) == [0, 0, 1, 0, 0]
    assert decide("smallest-first", full).why()[4]
    assert "smallest-first" in names()
    assert policy_named("smallest-first").elastic is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "has no policy"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("import not_there_at_all", "cannot be imported: ModuleNotFoundError"),
        ("class P:\n  elastic = True\n  def decide(self, s, m, r): ...", "needs a `name`"),
        ("class P:\n  name = 'p'\n  def decide(self, s, m, r): ...", "must say elastic"),
        ("class P:\n  name = 'p'\n  elastic = True\n  def decide(self, s, m, r): return 3", "must return a"),
        ("class P:\n  name = 'p'\n  elastic = True\n  def decide(self): ...", "fails on an empty cluster: TypeError"),
        ("class P:\n  name = 'p'\n  elastic = True\n  OPTIONS = {'a': 3}\n  def decide(self, s, m, r): ...", "OPTIONS"),
        (
            "from swell.core.decision import Decision\nclass P:\n  name = 'fifo'\n  elastic = True\n"
            "  def decide(self, s, m, r): return Decision(grants={})",
            "built-in policy named 'fifo'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(SwellError, match=says):
        load_policy_file(str(path))


def test_the_example_explains_itself_on_a_full_cluster() -> None:
    """Both kinds of reasons at once: of jobs that its team's limit holds back, and of jobs that did not fit."""
    load_policy_file(str(EXAMPLE))
    jobs = [view(number, 2, 2, team=team) for number, team in enumerate("aabb", start=1)]
    decision = decide("smallest-first", snapshot(jobs, 2, Options(policy={"per_team": 1})))
    codes = {job: [reason.code for reason in why] for job, why in decision.why().items()}
    assert list(decision.grants) == [1]
    assert codes == {2: [ReasonCode.BEHIND], 3: [ReasonCode.CAPACITY], 4: [ReasonCode.BEHIND]}


def test_the_limit_of_the_example_counts_runs_that_it_is_not_asked_about() -> None:
    """A run that cannot be stopped, and one of a higher class, have what they get before the policy is asked."""
    load_policy_file(str(EXAMPLE))
    one_per_team = Options(policy={"per_team": 1})
    for ahead in (view(1, held=1, pinned=True, team="a"), view(1, priority=5, team="a")):
        jobs = [ahead, view(2, team="a"), view(3, team="b")]
        decision = decide("smallest-first", snapshot(jobs, 4, one_per_team))
        assert counts(decision, jobs) == [1, 0, 1]
        assert [reason.code for reason in decision.why()[2]] == [ReasonCode.BEHIND]


def test_the_policy_of_the_page_about_writing_one_is_loaded_and_decides(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[2] / "docs/how-to/write-a-policy.md").read_text(encoding="utf-8")
    path = tmp_path / "latest_first.py"
    path.write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    load_policy_file(str(path))
    jobs = [view(number, 2, 2) for number in (1, 2, 3)]
    decision = decide("latest-first", snapshot(jobs, 4))
    assert counts(decision, jobs) == [0, 2, 2]
    assert decision.why()[1]


def test_a_policy_file_need_not_declare_what_has_a_default(tmp_path: Path) -> None:
    path = tmp_path / "short.py"
    path.write_text(
        "from swell.core.decision import Decision\nclass P:\n  name = 'short'\n  elastic = True\n"
        "  def decide(self, s, m, r): return Decision(grants={})\n"
    )
    load_policy_file(str(path))
    assert (policy_named("short").weighs_restarts, dict(policy_named("short").OPTIONS)) == (False, {})


def test_a_file_that_is_not_there_or_not_python(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="there is no file"):
        load_policy_file(str(tmp_path / "missing.py"))
    with pytest.raises(PolicyFileError, match="not a Python file"):
        load_policy_file(str(tmp_path / "notes.txt"))


def test_an_unknown_policy_is_not_found_and_the_message_lists_those_there_are() -> None:
    with pytest.raises(NotFound, match="afs-l"):
        policy_named("best")


@pytest.mark.parametrize(
    ("policy", "given", "says"),
    [
        ("fifo", {"knob": 1}, "has no options, so no 'knob'"),
        ("tiresias", {"nob": 1}, "has no option 'nob'; did you mean knob"),
        ("tiresias", {"knob": "much"}, "must be a number of at least 0"),
        ("tiresias", {"knob": -1}, "must be a number of at least 0"),
        ("tiresias", {"thresholds_gpu_s": "3600, 10"}, "rising numbers"),
        ("elastic-tiresias", {"compaction": 2.5}, "a whole number"),
    ],
)
def test_options_that_are_not_possible_are_refused(policy: str, given: dict[str, float | str], says: str) -> None:
    with pytest.raises(SwellError, match=says):
        check_options(policy, given)


def test_options_that_are_possible_are_used() -> None:
    check_options("elastic-tiresias", {"compaction": 3, "knob": 4, "thresholds_gpu_s": "1800, 7200"})
    assert {"compaction", "knob", "thresholds_gpu_s"} <= set(options_of("elastic-tiresias"))
    taken = snapshot([], 1, Options(policy={"knob": 4, "thresholds_gpu_s": "1800, 7200"}))
    assert number(taken, QUEUES, "knob") == 4.0
    assert numbers(taken, QUEUES, "thresholds_gpu_s") == (1800.0, 7200.0)


def test_never_fails_on_a_setting_that_slipped_through() -> None:
    taken = snapshot([], 1, Options(policy={"knob": "x", "thresholds_gpu_s": "x"}))
    assert number(taken, QUEUES, "knob") == 8.0
    assert numbers(taken, QUEUES, "thresholds_gpu_s") == (3600.0,)
