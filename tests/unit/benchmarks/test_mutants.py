"""What chooses the tests of a mutant, and what counts as killed: docs/figures/mutants.md rests on both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import coverage
import pytest

from benchmarks.mutants import killing
from benchmarks.mutants.child import path_in_tree
from benchmarks.mutants.collect import FUTURE, instrument
from benchmarks.mutants.killing import NO_END, failing, killer, passing
from benchmarks.mutants.lines import Collected, executing, quickest_first, statement_lines
from benchmarks.mutants.making import ROOT, Mutant, compiles, mutants_of, sample
from benchmarks.mutants.near import named, near_tests
from benchmarks.mutants.plugin import lines_of_children

CODE = '''
LIMIT = 3

async def f(a: int = 4) -> int:
    """At most 5."""
    await g(a)
    return min(a, 1) if a > 0 and not b else max(
        a,
        2,
    )
'''
A, B, C = "tests/a.py::one", "tests/a.py::two", "tests/c.py::three"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text(CODE)
    return tmp_path / "f.py"


def test_only_the_body_of_functions_is_mutated_async_ones_too(file: Path) -> None:
    found = list(mutants_of(file))
    assert {mutant.line for mutant in found} == {6, 7, 9}
    changed = [mutant.after.strip() for mutant in found if mutant.line in (6, 9)]
    assert changed == ["(2 + 1),", "pass"]
    assert "return min(a, 1) if a > 0 or not b else max(" in [mutant.after.strip() for mutant in found]
    assert all(compiles(mutant.text()) for mutant in found)


def test_a_package_has_the_same_sample_at_every_run() -> None:
    assert sample("plan", 5, 12) == sample("plan", 5, 12) != sample("plan", 5, 13)


def _collected(contexts: dict[str, list[int]]) -> Collected:
    data = coverage.CoverageData(no_disk=True)
    for name, lines in contexts.items():
        data.set_context(name)
        data.add_lines({"f.py": lines})
    return Collected(seconds={A: 3.0, B: 1.0, C: 2.0}, lines=data)


def test_a_line_has_the_tests_that_execute_it(file: Path) -> None:
    maps = [_collected({A: [6], B: [6, 7], "": [6]})]
    assert executing(maps, file, 6, file.parent) == [(B, 1.0), (A, 3.0)]


def test_what_a_fixture_of_a_module_executes_belongs_to_all_its_tests(file: Path) -> None:
    maps = [_collected({"tests/a.py": [6]})]
    assert executing(maps, file, 6, file.parent) == [(B, 1.0), (A, 3.0)]


def test_what_only_imports_execute_belongs_to_every_test(file: Path) -> None:
    assert len(executing([_collected({"": [6]})], file, 6, file.parent)) == 3


def test_a_line_that_is_never_executed_alone_has_the_tests_of_its_statement(file: Path) -> None:
    maps = [_collected({A: [7], B: [6]})]
    assert executing(maps, file, 9, file.parent) == [(A, 3.0)]
    assert executing([_collected({B: [6]})], file, 9, file.parent) == []


def test_a_compound_statement_is_its_head() -> None:
    text = "if (\n  a\n  and b\n):\n  f(\n    1\n  )\n"
    assert (statement_lines(text, 3), statement_lines(text, 6)) == (range(1, 5), range(5, 8))


def test_the_quickest_file_is_first_and_files_stay_together() -> None:
    assert [test for test, _ in quickest_first({A: 0.1, B: 9.0, C: 2.0})] == [C, A, B]


def test_lines_keep_their_numbers_where_processes_note_them(tmp_path: Path) -> None:
    source = tmp_path / "src" / "swell"
    source.mkdir(parents=True)
    text = f'"""A module."""\n\n{FUTURE}\nX = 1\n'
    (source / "m.py").write_text(text)
    instrument(tmp_path)
    changed = (source / "m.py").read_text()
    assert len(changed.splitlines()) == len(text.splitlines())
    assert compiles(changed)
    assert changed != text


def test_a_process_notes_files_of_the_package_under_their_name_in_the_tree() -> None:
    found = [path_in_tree(path, "/t/src/swell/") for path in ("/t/src/swell/policy/swell/x.py", "/usr/lib/os.py")]
    assert found == ["src/swell/policy/swell/x.py", ""]
    assert path_in_tree("/home/far/abc/swell/shim/agent.py", "/t/src/swell/") == "src/swell/shim/agent.py"


def test_a_note_that_a_kill_cut_off_is_ignored() -> None:
    assert lines_of_children("3\tf.py\t1\n3\tf.py\t2\n4\tg.py\t7\n4\tg") == {3: {"f.py": {1, 2}}, 4: {"g.py": {7}}}


Answers = Callable[[list[str]], str]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """A mutant of a real file, judged by what tests answer with it and without it."""
    path = ROOT / "src" / "swell" / "plan" / "limits.py"
    mutant = Mutant(path=path, line=1, before="", after="MUTANT")
    there = tmp_path / path.relative_to(ROOT)
    there.parent.mkdir(parents=True)

    def judge(with_it: Answers, without: Answers, passed: Collection[str] = ()) -> str:
        def failing(tree: Path, tests: list[str], limit_s: float) -> str:
            return (with_it if there.read_text().startswith("MUTANT") else without)(tests)

        monkeypatch.setattr(killing, "failing", failing)
        return killer(mutant, tmp_path, [A, B, C], 1.0, passed)

    yield judge
    assert there.read_text() == path.read_text()


def test_a_test_kills_only_if_it_passes_without_the_mutant(judged: Callable[..., str]) -> None:
    assert judged(lambda tests: tests[0], lambda tests: A if A in tests else "") == B
    assert judged(lambda tests: tests[0], lambda tests: tests[0]) == ""
    assert judged(lambda tests: "", lambda tests: "") == ""


def test_a_test_that_passed_without_any_mutant_is_not_run_again(judged: Callable[..., str]) -> None:
    def never(tests: list[str]) -> str:
        raise AssertionError(tests)

    for passed in ([A], ["tests/a.py"]):
        assert judged(lambda tests: tests[0], never, passed) == A
    assert judged(lambda tests: f"{C}[1]", never, [C]) == f"{C}[1]"
    assert judged(lambda tests: tests[0], lambda tests: A if A in tests else "", [f"{A}_more"]) == B


def test_which_tests_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(tree: Path, tests: list[str], limit_s: float) -> str:
        return next((f"{test}[2]" for test in tests if test == B), "")

    monkeypatch.setattr(killing, "failing", failing)
    assert passing(Path(), [A, B, C], 1.0) == {A, C}
    monkeypatch.setattr(killing, "failing", lambda *_: NO_END)
    assert passing(Path(), [A, B, C], 1.0) == set()


def test_tests_that_a_person_named_are_those_of_the_narrowest_line(tmp_path: Path) -> None:
    text = f"src/x.py {A}\n\nsrc/x.py:7-9 {B} {C}  # both\nsrc/x.py:8 {C}\n# src/y.py {A}\n"
    found = {line: near_tests(named(text), tmp_path / "src" / "x.py", line, tmp_path) for line in (1, 7, 8)}
    assert found == {1: [(A, 0.0)], 7: [(B, 0.0), (C, 0.0)], 8: [(C, 0.0)]}
    assert near_tests(named(text), tmp_path / "src" / "y.py", 1, tmp_path) == []


def test_a_hang_kills_only_if_the_tests_end_without_the_mutant(judged: Callable[..., str]) -> None:
    assert judged(lambda tests: NO_END, lambda tests: "") == NO_END
    assert judged(lambda tests: NO_END, lambda tests: NO_END) == ""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(killing, "end_orphans", lambda: None)  # here they are those of other tests
    (tmp_path / "src").mkdir()
    passes, fails = "def test_a() -> None:\n    pass\n", "def test_b() -> None:\n    raise ValueError\n"
    (tmp_path / "test_x.py").write_text(f"{passes}\n\n{fails}")
    (tmp_path / "test_hangs.py").write_text("def test_c() -> None:\n    while True:\n        pass\n")
    return tmp_path


def test_tests_run_in_a_fork_and_the_first_that_fails_is_named(tree: Path) -> None:
    assert failing(tree, ["test_x.py::test_a"], 60.0) == ""
    assert failing(tree, ["test_x.py"], 60.0) == "test_x.py::test_b"


def test_tests_that_do_not_end_are_ended(tree: Path) -> None:
    assert failing(tree, ["test_hangs.py"], 3.0) == NO_END


def test_a_run_of_pytest_that_breaks_is_no_killed_mutant(tree: Path) -> None:
    with pytest.raises(RuntimeError, match="names no test"):
        failing(tree, ["test_not_there.py"], 60.0)
