"""The course of training: epochs that are more or less work than the first."""

from __future__ import annotations

import pytest

from swell.core.events import ExitReason, RunPlanned, RunStarted
from swell.core.ids import RunId
from swell.core.resources import Allocation, Part
from swell.speed.epoch_work import FLAT, EpochWork, cell_of, middles, usual_course
from unit.speed.history import History

ONE_GPU = Allocation(parts=(Part(node="n", gpus=(0,)),), gpu_type="gpu")


class TestCourse:
    def test_before_anything_is_known_all_epochs_are_the_same(self) -> None:
        course = EpochWork()
        assert course.at(0.0) == course.at(1.0) == 1.0
        assert course.between(0.25, 1.0) == pytest.approx(0.75)

    def test_every_part_of_training_is_in_one_cell(self) -> None:
        assert [cell_of(part) for part in (-1.0, 0.0, 1.0, 2.0)] == [0, 0, 11, 11]
        cells = [cell_of(part / 1000) for part in range(1001)]
        assert cells == sorted(cells)
        assert set(cells) == set(range(12))

    @pytest.mark.parametrize("epochs", [1, 2, 7, 80, 5000])
    def test_what_was_reported_whole_is_found_again(self, epochs: int) -> None:
        """A first quarter of twice the work."""
        course = EpochWork()
        for epoch in range(epochs):
            course.add(middles(epoch / epochs, (epoch + 1) / epochs), 2.0 if epoch < epochs / 4 else 1.0)
        total = sum(2.0 if epoch < epochs / 4 else 1.0 for epoch in range(epochs)) / epochs
        assert course.between(0.0, 1.0) == pytest.approx(total, rel=0.1)

    def test_it_goes_on_as_it_was_where_nobody_has_been(self) -> None:
        course = EpochWork()
        course.add(middles(0.0, 0.01), 1.0)
        course.add(middles(0.01, 0.1), 0.5)
        assert course.at(0.9) == pytest.approx(0.5)

    def test_a_clock_gone_wrong_is_not_believed(self) -> None:
        course = EpochWork()
        for wrong in (0.0, 1e9, float("inf"), float("nan")):
            course.add(middles(0.0, 1.0), wrong)
        assert course.between(0.0, 1.0) == pytest.approx(1.0)


class TestUsualCourse:
    def test_of_nobody_is_flat(self) -> None:
        assert usual_course([]) == FLAT

    def test_another_family_goes_on_as_most_do(self) -> None:
        known = [EpochWork() for _ in range(9)]
        for course in known:
            for part in range(20):
                course.add(middles(part / 20, (part + 1) / 20), 1.0 if part < 5 else 0.5)
        young = EpochWork()
        young.add(middles(0.0, 0.1), 1.0)
        assert young.at(0.9) == pytest.approx(1.0)
        young.follow(usual_course(known))
        assert young.at(0.05) == pytest.approx(1.0)
        assert young.at(0.9) == pytest.approx(0.5, rel=0.1)

    def test_one_other_family_is_believed_half(self) -> None:
        other = EpochWork()
        other.add(middles(0.0, 0.1), 1.0)
        other.add(middles(0.1, 1.0), 0.25)
        young = EpochWork(usual_course([other]))
        assert young.at(0.9) == pytest.approx(0.5)


def trained(history: History, job: int, times_s: list[float], level: float = 1.0) -> None:
    """A job of 20 epochs that has reported these, each as long as that many samples at 100 a second."""
    history.submit(job, epochs=20, family="speech")
    for time_s in times_s:
        history.run(job, 1, [time_s * level], samples_per_s=100.0)


COURSE_S = [100.0, 50.0, 20.0, *[10.0] * 17]


class TestRemaining:
    def test_the_second_job_of_a_family_is_not_told_by_its_long_first_epoch_alone(self, history: History) -> None:
        trained(history, 1, COURSE_S)
        history.end(1, ExitReason.FINISHED)
        trained(history, 2, COURSE_S[:1])
        assert history.remaining_s(2) == pytest.approx(sum(COURSE_S[1:]), rel=0.15)

    def test_a_job_three_times_as_large_takes_three_times_as_long_from_its_first_report_on(
        self, history: History
    ) -> None:
        trained(history, 1, COURSE_S)
        history.end(1, ExitReason.FINISHED)
        trained(history, 2, COURSE_S[:2], level=3.0)
        assert history.remaining_s(2) == pytest.approx(3 * sum(COURSE_S[2:]), rel=0.15)

    def test_members_that_have_not_finished_tell_the_others_already(self, history: History) -> None:
        trained(history, 1, COURSE_S[:12])
        trained(history, 2, COURSE_S[:1])
        assert history.remaining_s(2) == pytest.approx(sum(COURSE_S[1:]), rel=0.15)
        history.submit(3, epochs=20, family="speech")
        assert history.remaining_s(3) == pytest.approx(sum(COURSE_S), rel=0.15)

    def test_progress_counts_from_the_start_of_the_run_until_its_first_epoch_ends(self, history: History) -> None:
        history.submit(1, epochs=20)
        assert history.book.remaining(history.state.jobs[1]).as_of_s == 0.0
        planned = RunPlanned(run=RunId(1, 1), allocation=ONE_GPU, at_s=40.0)
        history.tell(planned)
        assert history.book.remaining(history.state.jobs[1]).as_of_s == 0.0
        history.tell(RunStarted(run=RunId(1, 1), at_s=50.0))
        assert history.book.remaining(history.state.jobs[1]).as_of_s == 50.0

    def test_the_same_whether_anybody_asked_in_between_or_not(self) -> None:
        """A daemon that starts again reads all reports before it is asked anything."""
        asked, not_asked = History(), History()
        for history in (asked, not_asked):
            for job in (1, 2, 3):
                history.submit(job, epochs=20, family=f"family {job % 2}")
                for time_s in COURSE_S[: 6 * job]:
                    history.run(job, 1, [time_s], samples_per_s=100.0)
                    if history is asked:
                        asked.remaining_s(job)
        assert [asked.remaining_s(job) for job in (1, 2, 3)] == pytest.approx(
            [not_asked.remaining_s(job) for job in (1, 2, 3)]
        )


@pytest.fixture
def history() -> History:
    return History()
