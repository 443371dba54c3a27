"""The speed book: priors, fits, families, GPU types, remaining time, memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core.events import EpochEnded, ExitReason, RunPlanned, RunStarted, SpeedsFitted, TrainingBegan
from swell.core.ids import RunId
from swell.core.job import GpuRequest
from swell.core.resources import Allocation, Part
from swell.speed import remaining
from swell.speed.book import Book
from swell.speed.convergence import fit_losses
from swell.speed.families import family_of
from swell.speed.measurements import Measurements
from unit.speed.history import NODES, History

ONE_GPU = Allocation(parts=(Part(node="n0", gpus=(0,)),), gpu_type="gpu")


def law(gpus: int, nodes: int = 1) -> float:
    return 100.0 * (0.9 / gpus + 0.04 + 0.03 * (gpus - 1).bit_length() + 0.2 * (nodes - 1) / nodes)


class TestPrior:
    def test_before_anything_is_measured_twice_the_gpus_are_not_twice_the_speed(self) -> None:
        told = History()
        told.submit(1)
        curve = told.curve(1)
        assert curve[0] == 0.0
        assert curve[1] == pytest.approx(1.0)
        assert 1.7 < curve[2] < 2.0
        assert 4.0 < curve[8] < 8.0
        assert curve[16] < 2 * curve[8]
        assert len(curve) == 17

    def test_the_same_object_as_long_as_nothing_was_learned_also_for_jobs_alike(self) -> None:
        told = History()
        told.submit(1)
        told.submit(2)
        assert told.book.speed(told.state.jobs[1], NODES) is told.book.speed(told.state.jobs[1], NODES)
        assert told.curve(1) is told.curve(2)
        assert told.book.remaining(told.state.jobs[1]) is told.book.remaining(told.state.jobs[1])

    def test_a_second_node_costs(self) -> None:
        told = History()
        told.submit(1)
        speed = told.book.speed(told.state.jobs[1], NODES)
        assert speed.rate(8, 2, "gpu") < speed.rate(8, 1, "gpu")
        assert speed.rate(8, 1, "gpu") == pytest.approx(speed.curve("gpu")[8])


class TestFit:
    def test_a_law_that_was_measured_at_three_sizes_is_found_at_others(self) -> None:
        told = History()
        told.submit(1, epochs=100)
        for gpus in (1, 2, 4):
            told.run(1, gpus, [law(gpus)] * 4)
        curve = told.curve(1)
        for gpus in (1, 2, 4):
            assert curve[gpus] == pytest.approx(law(1) / law(gpus), rel=0.03)
        assert curve[8] == pytest.approx(law(1) / law(8), rel=0.15)

    def test_measured_only_at_three_gpus_and_never_at_one(self) -> None:
        told = History()
        told.submit(1, epochs=50)
        told.run(1, 3, [40.0] * 5)
        assert told.remaining_s(1) / told.curve(1)[3] == pytest.approx(45 * 40.0, rel=0.02)
        assert 1.5 < told.curve(1)[3] < 3.0
        assert told.curve(1)[6] > told.curve(1)[3]

    def test_measured_only_at_two_gpus_does_not_poison_the_rest(self) -> None:
        """Elsewhere this made S(2) = 0.02 and S(4) = 1.0."""
        told = History()
        told.submit(1)
        told.run(1, 2, [50.0])
        curve = told.curve(1)
        assert 1.5 < curve[2] < 2.0 < curve[4] < 4.0

    def test_measured_at_one_and_two_gives_a_sensible_rest(self) -> None:
        """Elsewhere this made S(2) = 1.82 and S(3) = S(4) = … = 100."""
        told = History()
        told.submit(1)
        told.run(1, 1, [100.0] * 3)
        told.run(1, 2, [55.0] * 3)
        curve = told.curve(1)
        assert curve[2] == pytest.approx(1.82, rel=0.03)
        assert 2.2 < curve[4] < 4.0

    def test_a_slow_epoch_does_not_poison_it(self) -> None:
        calm, upset = History(), History()
        for told, odd in ((calm, law(2)), (upset, 40 * law(2))):
            told.submit(1, epochs=100)
            told.run(1, 1, [law(1)] * 5)
            told.run(1, 2, [law(2), law(2), odd, law(2), law(2)])
            told.run(1, 4, [law(4)] * 5)
        for gpus in range(1, 17):
            assert upset.curve(1)[gpus] == pytest.approx(calm.curve(1)[gpus], rel=0.02)
        assert upset.remaining_s(1) == pytest.approx(calm.remaining_s(1), rel=0.02)

    def test_a_size_that_does_not_fit_the_others_counts_for_little(self) -> None:
        told = History()
        told.submit(1)
        for gpus in (1, 2, 4, 6, 8):
            told.run(1, gpus, [law(gpus) * (6 if gpus == 6 else 1)] * 4)
        assert told.curve(1)[16] > 0.7 * law(1) / law(16)

    def test_a_model_that_gets_slower_with_more_gpus_is_flat_from_there(self) -> None:
        told = History()
        told.submit(1)
        for gpus, time_s in ((1, 100.0), (2, 60.0), (4, 80.0), (8, 120.0)):
            told.run(1, gpus, [time_s] * 4)
        curve = told.curve(1)
        assert list(curve) == sorted(curve)
        assert curve[16] == curve[4]

    def test_goodput_counts_not_samples_when_batches_adapt(self) -> None:
        told = History()
        told.submit(1, epochs=100)
        told.run(1, 1, [100.0] * 3, samples_per_s=10.0, goodput=10.0, batch_size=32)
        told.run(1, 4, [20.0] * 3, samples_per_s=50.0, goodput=25.0, batch_size=128)
        assert told.curve(1)[4] == pytest.approx(2.5, rel=0.05)

    def test_epochs_that_get_shorter_as_training_goes_on_do_not_look_like_speed(self) -> None:
        """Long first epochs on two GPUs, short later ones on one: samples tell the speed, epochs what is left."""
        told = History()
        told.submit(1, epochs=40)
        told.run(1, 2, [500.0] * 4, samples_per_s=19.0, batch_size=64)
        told.run(1, 1, [100.0] * 4, samples_per_s=10.0, batch_size=65)
        assert told.curve(1)[2] == pytest.approx(1.9, rel=0.03)
        assert told.remaining_s(1) == pytest.approx(32 * 100.0, rel=0.05)


class TestFamilies:
    def test_a_second_submission_begins_with_what_the_first_has_shown_even_after_its_end(self) -> None:
        told = History()
        told.submit(1, epochs=12)
        for gpus in (1, 2, 4):
            told.run(1, gpus, [law(gpus)] * 4)
        run = RunId(1, 4)
        part = Part(node="n0", gpus=(0,))
        told.tell(RunPlanned(run=run, allocation=Allocation(parts=(part,), gpu_type="gpu"), at_s=told.now_s))
        told.tell(RunStarted(run=run, at_s=told.now_s))
        told.end(1, ExitReason.FINISHED)
        told.submit(2, epochs=10)
        assert told.curve(2)[4] == pytest.approx(law(1) / law(4), rel=0.05)
        assert told.remaining_s(2) == pytest.approx(10 * law(1), rel=0.1)
        assert told.book.describe(told.state.jobs[2], NODES).source == "family"

    def test_the_length_of_earlier_jobs_without_epochs_is_expected_of_the_next(self) -> None:
        told = History()
        for job in (1, 2, 3):
            told.submit(job, command=("./simulate.sh",), uses_library=False)
            run = RunId(job, 1)
            part = Part(node="n0", gpus=(0,))
            told.tell(RunPlanned(run=run, allocation=Allocation(parts=(part,), gpu_type="gpu"), at_s=told.now_s))
            told.tell(RunStarted(run=run, at_s=told.now_s))
            told.now_s += 7200.0
            told.end(job, ExitReason.FINISHED)
        told.submit(4, command=("./simulate.sh",), uses_library=False)
        assert told.remaining_s(4) == pytest.approx(7200.0, rel=0.01)

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            (("python", "train.py", "--lr", "0.1"), ("python", "/data/x/train.py", "--lr", "0.2"), True),
            (("python", "train.py", "--model", "bert"), ("python", "train.py", "--model", "gpt"), False),
            (("python", "train.py", "--arch=vgg16"), ("python", "train.py", "--arch=vgg16", "-v"), True),
            (("/bin/sh", "-c", "cd a; python run_12.py"), ("/bin/sh", "-c", "cd b; python run_7.py"), True),
            (("python", "-m", "trainer.main"), ("python", "-m", "other.main"), False),
        ],
    )
    def test_families_are_read_off_commands(self, one: tuple[str, ...], other: tuple[str, ...], same: bool) -> None:
        told = History()
        specs = [told.submit(job, name="n", command=command).spec for job, command in ((1, one), (2, other))]
        assert (family_of(specs[0]) == family_of(specs[1])) is same

    def test_what_the_user_calls_a_family_is_one_and_names_count_where_there_is_no_script(self) -> None:
        told = History()
        assert family_of(told.submit(1, family="mine").spec) == "mine"
        second = family_of(told.submit(2, name="resnet-17", command=("true",)).spec)
        assert second == family_of(told.submit(3, name="resnet-18", command=("true",)).spec)

    def test_a_job_measured_only_at_a_size_where_its_family_is_odd_is_expected_to_be_like_it_elsewhere(self) -> None:
        odd = {1: 100.0, 2: 90.0, 4: 20.0}  # no curve of the usual shape
        told = History()
        told.submit(1, epochs=100)
        for gpus, epoch_s in odd.items():
            told.run(1, gpus, [epoch_s] * 8)
        told.submit(2, epochs=100)
        told.run(2, 2, [odd[2]] * 8)
        assert told.curve(2)[4] == pytest.approx(told.curve(1)[4], rel=0.05)
        assert told.curve(2)[2] == pytest.approx(told.curve(1)[2], rel=0.25)

    def test_members_that_scale_almost_linearly_are_never_taken_for_jobs_of_other_lengths(self) -> None:
        """Each measured at one size only: 12 GPUs are 2.8 times as fast as 4, which no default shape says."""
        told = History()
        for job, (gpus, nodes, epoch_s) in enumerate([(4, 1, 300.0), (12, 2, 107.0), (16, 2, 86.0), (20, 3, 82.0)], 1):
            told.submit(job, gpus=GpuRequest(min=1, max=32), family="same")
            told.run(job, gpus, [epoch_s] * 4, nodes=nodes)
        told.submit(9, gpus=GpuRequest(min=1, max=32), family="same")
        told.run(9, 4, [300.0] * 2)
        curve = told.curve(9)
        assert curve[12] / curve[4] == pytest.approx(300 / 107, rel=0.1)
        assert curve[20] / curve[4] == pytest.approx(300 / 82, rel=0.1)

    def test_members_of_other_lengths_are_never_taken_for_a_curve(self) -> None:
        """Each at a size of its own: 8 GPUs are not as fast as one because that member has eight times the data."""
        told = History()
        for job, (gpus, epoch_s) in enumerate([(1, 100.0), (8, 100.0)], 1):
            told.submit(job, gpus=GpuRequest(min=1, max=8), family="same")
            told.run(job, gpus, [epoch_s] * 4)
        told.submit(9, gpus=GpuRequest(min=1, max=8), family="same")
        assert told.curve(9)[8] > 4.0


class TestTypes:
    def test_a_type_is_as_fast_as_was_measured(self) -> None:
        told = History()
        told.submit(1)
        told.run(1, 2, [60.0] * 4, gpu_type="slow")
        told.run(1, 2, [20.0] * 4, gpu_type="fast")
        speed = told.book.speed(told.state.jobs[1], {"slow": 8, "fast": 8})
        assert speed.curve("slow")[1] == pytest.approx(1.0)
        assert speed.curve("fast")[2] / speed.curve("slow")[2] == pytest.approx(3.0, rel=0.1)

    @pytest.mark.parametrize("lengths", [(100.0, 102.0, 25.0), (100.0, 25.0)])
    def test_jobs_of_a_family_that_each_used_one_type_tell_how_fast_types_are(self, lengths: tuple[float, ...]) -> None:
        told = History()
        for job, epoch_s in enumerate(lengths, start=1):
            told.submit(job)
            told.run(job, 1, [epoch_s] * 3, gpu_type="new" if epoch_s < 50 else "old")
        speed = told.book.speed(told.submit(9), {"old": 8, "new": 8})
        assert speed.rate(1, 1, "new") / speed.rate(1, 1, "old") == pytest.approx(4.0, rel=0.3)

    def test_jobs_of_a_family_that_train_on_other_data_do_not(self) -> None:
        told = History()
        for job, (epoch_s, gpu_type) in enumerate([(400.0, "old"), (100.0, "old"), (100.0, "new")], start=1):
            told.submit(job)
            told.run(job, 1, [epoch_s] * 3, gpu_type=gpu_type)
        speed = told.book.speed(told.submit(9), {"old": 8, "new": 8})
        assert speed.rate(1, 1, "new") / speed.rate(1, 1, "old") == pytest.approx(1.0, rel=0.3)

    def test_known_types_are_compared_before_anything_is_measured_and_unknown_ones_are_equal(self) -> None:
        told = History()
        told.submit(1)
        speed = told.book.speed(told.state.jobs[1], {"A100": 8, "T4": 4, "x": 4})
        assert speed.curve("A100")[1] == pytest.approx(1.0)
        assert speed.curve("T4")[1] == pytest.approx(0.25, rel=0.01)

    def test_one_type_alone_is_the_reference(self) -> None:
        told = History()
        told.submit(1)
        assert told.book.speed(told.state.jobs[1], {"H100": 8}).curve("H100")[1] == pytest.approx(1.0)


class TestRemaining:
    def test_its_users_estimate_at_the_size_asked_for_until_the_first_epoch(self) -> None:
        told = History()
        told.submit(1, estimated_s=3600.0, epochs=10, gpus=GpuRequest(min=1, max=8, start=4))
        assert told.remaining_s(1) / told.curve(1)[4] == pytest.approx(3600.0)
        told.run(1, 4, [100.0])
        assert told.remaining_s(1) / told.curve(1)[4] == pytest.approx(900.0, rel=0.05)

    def test_it_is_corrected_after_every_epoch_and_surer_each_time(self) -> None:
        told = History()
        told.submit(1, epochs=40)
        sigmas = []
        for done in range(1, 9):
            told.run(1, 2, [50.0])
            assert told.remaining_s(1) / told.curve(1)[2] == pytest.approx((40 - done) * 50.0, rel=0.05)
            sigmas.append(told.book.remaining(told.state.jobs[1]).sigma)
        assert sigmas == sorted(sigmas, reverse=True)
        assert sigmas[-1] < 0.1 < sigmas[0]

    def test_nothing_known_is_an_hour_and_says_so(self) -> None:
        told = History()
        told.submit(1)
        left = told.book.remaining(told.state.jobs[1])
        assert (left.at_speed_1_s, left.known, left.sigma) == (3600.0, False, 1.0)

    def test_a_job_that_does_not_say_how_many_epochs_is_judged_by_its_loss(self) -> None:
        told = History()
        told.submit(1)
        for epoch in range(1, 13):
            told.run(1, 1, [10.0], metrics={"loss": 1.0 / (0.5 * epoch + 0.5) + 0.1})
        # The fall is a hundredth of the first at 0.5·e + 0.5 = 5, that is, at epoch 9: it is about to end.
        assert told.remaining_s(1) <= 80.0

    def test_a_loss_that_hardly_falls_promises_at_most_a_hundred_times_what_was_seen(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Flat:
            def epochs(self) -> float:
                return 1e9

        monkeypatch.setattr(remaining, "fit_losses", lambda _: Flat())
        told = History()
        told.submit(1)
        told.run(1, 1, [10.0] * 5)
        assert told.remaining_s(1) == pytest.approx(10.0 * (100 * 5 - 5), rel=0.05)

    def test_how_much_a_familys_lengths_differ_is_relative_to_them(self) -> None:
        def sigma(lengths: tuple[int, ...]) -> float:
            told = History()
            for job, epochs in enumerate(lengths, start=1):
                told.submit(job)
                told.run(job, 1, [1.0] * epochs)
                told.tell(RunPlanned(run=RunId(job, 2), allocation=ONE_GPU, at_s=told.now_s))
                told.tell(RunStarted(run=RunId(job, 2), at_s=told.now_s))
                told.end(job, ExitReason.FINISHED)
            told.submit(len(lengths) + 1)
            told.run(len(lengths) + 1, 1, [1.0])
            return told.book.remaining(told.state.jobs[len(lengths) + 1]).sigma

        assert sigma((4, 8, 16)) == pytest.approx(sigma((8, 16, 32)))
        assert sigma((7, 8, 9)) < sigma((4, 8, 16)) < sigma((2, 8, 32))

    def test_the_loss_curve_is_found(self) -> None:
        curve = fit_losses([(e, 1.0 / (0.2 * e + 0.4) + 0.3) for e in range(1, 30)])
        assert curve is not None
        assert curve.loss(60) == pytest.approx(1.0 / 12.4 + 0.3, rel=0.05)
        assert fit_losses([(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.1)]) is None
        assert fit_losses([(1, 2.0), (2, 1.0)]) is None

    def test_losses_next_to_nothing_are_no_curve(self) -> None:
        assert fit_losses([(1, 2e-311), (2, 2e-311), (3, 2e-311), (4, 0.0)]) is None
        assert fit_losses([(e, 1e-99 / e) for e in range(1, 9)]) is not None

    def test_a_job_longer_than_thought_is_not_thought_to_be_about_to_end(self) -> None:
        told = History()
        told.submit(1, checkpoint_dir="/ck", uses_library=False)
        told.run(1, 1, [])
        for _ in range(3):
            run = RunId(1, told.state.jobs[1].attempts + 1)
            part = Part(node="n0", gpus=(0,))
            told.tell(RunPlanned(run=run, allocation=Allocation(parts=(part,), gpu_type="gpu"), at_s=told.now_s))
            told.tell(RunStarted(run=run, at_s=told.now_s))
            told.now_s += 36_000.0
            told.end(1, ExitReason.STOPPED)
        assert told.remaining_s(1) > 10_000.0


class TestForPeople:
    def test_everything_a_person_may_want_to_see(self) -> None:
        told = History()
        told.submit(1, epochs=20)
        told.run(1, 1, [law(1)] * 3, batch_size=32)
        told.run(1, 4, [law(4)] * 2, batch_size=32)
        seen = told.book.describe(told.state.jobs[1], NODES)
        assert seen.source == "measured"
        assert [(p.gpus, p.epochs, p.batch_size) for p in seen.points] == [(1, 3, 32), (4, 2, 32)]
        assert seen.points[1].speed == pytest.approx(seen.curves["gpu"][4], rel=0.05)
        assert seen.remaining_low_s < seen.remaining.at_speed_1_s < seen.remaining_high_s
        assert 0.3 < seen.confidence < 1.0
        told.submit(2, command=("./other.sh",))
        assert told.book.describe(told.state.jobs[2], NODES).confidence == 0.0


class TestMemory:
    def test_never_grows_without_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("swell.speed.book.KEEP_JOBS", 50)
        monkeypatch.setattr("swell.speed.book.KEEP_FAMILIES", 20)
        told = History()
        for job in range(1, 200):
            told.submit(job, name="abcdefghij"[job % 10] * (1 + job % 29), command=("true",))
            told.run(job, 1 + job % 40, [10.0] * 12)
            told.remaining_s(job)
            told.curve(job)
        assert len(told.book._jobs) <= 50
        assert len(told.book._families) <= 20
        assert all(len(f.members) <= 12 for f in told.book._families.values())

    def test_a_book_that_missed_the_submission_learns_all_the_same(self) -> None:
        told = History()
        told.submit(1, epochs=10)
        told.book = Book()
        told.run(1, 2, [30.0] * 4)
        assert told.remaining_s(1) / told.curve(1)[2] == pytest.approx(6 * 30.0, rel=0.05)

    def test_a_job_that_still_runs_after_its_last_epoch_does_not_end_in_0_seconds(self) -> None:
        told = History()
        told.submit(1, epochs=4)
        told.run(1, 1, [100.0] * 4)
        assert told.book.remaining(told.state.jobs[1]).at_speed_1_s == pytest.approx(4.0, rel=0.1)

    def test_the_remaining_time_is_the_same_object_while_it_is_the_same(self) -> None:
        """Another priority makes another record, and not another remaining time: views may be kept."""
        told = History()
        told.submit(1, epochs=10)
        told.run(1, 2, [50.0, 50.0])
        record = told.state.jobs[1]
        first = told.book.remaining(record)
        other = replace(record, priority=5)
        assert told.book.remaining(other) is first

    def test_the_same_number_of_gpus_on_one_and_on_two_nodes_stays_apart(self) -> None:
        told = History()
        told.submit(1, epochs=100)
        told.run(1, 4, [30.0] * 3)
        told.run(1, 4, [60.0] * 3, nodes=2)
        speed = told.book.speed(told.state.jobs[1], NODES)
        assert speed.rate(4, 1, "gpu") > 1.5 * speed.rate(4, 2, "gpu")

    def test_a_report_from_within_an_epoch_is_about_the_one_that_is_under_way(self) -> None:
        """`count=0` with three epochs done measures the fourth; with `count=1` it is the third that has ended."""
        measured = Measurements()
        for epoch, count in ((3, 1), (3, 0)):
            measured.add(
                EpochEnded(run=RunId(1, 1), at_s=9.0, epoch=epoch, epoch_s=5.0, gpus=2, gpu_type="gpu", count=count)
            )
        assert [epoch for _, _, epoch in measured.recent] == [3, 4]


class TestStarts:
    def begin(self, told: History, job: int, start_s: float) -> None:
        run = RunId(job, told.state.jobs[job].attempts + 1)
        told.tell(RunPlanned(run=run, allocation=ONE_GPU, at_s=told.now_s))
        told.tell(RunStarted(run=run, at_s=told.now_s))
        told.now_s += start_s
        told.tell(TrainingBegan(run=run, at_s=told.now_s, epoch=0, epochs=10))

    def start_s(self, told: History, job: int) -> float | None:
        return told.book.remaining(told.state.jobs[job]).start_s

    def test_a_job_is_expected_to_start_as_quickly_as_others_of_its_family(self) -> None:
        told = History()
        told.submit(1)
        told.submit(2)
        told.submit(3, command=("python", "other.py"))
        assert self.start_s(told, 2) is None
        self.begin(told, 1, 4.0)
        assert self.start_s(told, 2) == 4.0
        assert self.start_s(told, 3) is None

    def test_restarts_count_alone_as_soon_as_there_are_any(self) -> None:
        """The first start of a job loads no checkpoint."""
        told = History()
        told.submit(1)
        told.submit(2)
        self.begin(told, 1, 4.0)
        told.end(1, ExitReason.STOPPED)
        self.begin(told, 1, 40.0)
        assert self.start_s(told, 2) == 40.0

    def test_starts_that_are_about_as_long_change_no_answer(self) -> None:
        told = History()
        told.submit(1)
        told.submit(2)
        told.submit(3)
        self.begin(told, 1, 4.0)
        before = told.book.remaining(told.state.jobs[3])
        self.begin(told, 2, 4.2)
        assert told.book.remaining(told.state.jobs[3]) is before

    def test_a_book_that_is_fitted_by_the_log_has_news_of_a_first_start(self) -> None:
        told = History()
        told.book = Book(fits_on_ask=False)
        told.submit(1)
        told.submit(2)
        self.begin(told, 1, 4.0)
        assert told.book.has_news
        assert self.start_s(told, 2) is None
        told.tell(SpeedsFitted(at_s=told.now_s))
        assert self.start_s(told, 2) == 4.0
