"""What adaptive jobs know, shared by those that have seen the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

from swell.sim.job_experience import Experience, Times
from swell.sim.profiles import applications
from swell.speed.step_time import Point, fit

Seen = tuple[str, Point, Times]


def told(known: Experience, seen: list[Seen]) -> Experience:
    for gpu_type, point, times_s in seen:
        known = known.after(gpu_type, point, times_s)
    return known


class TestExperience:
    def test_jobs_that_share_what_they_know_know_what_each_would_alone(self, profiles: Path) -> None:
        app = applications(profiles)["toy"]
        rng, shared = Random(7), Experience()
        some = [("gpu", (1, 1, 10), (1.0, 0.0)), ("gpu", (1, 4, 10), (1.1, 0.1)), ("gpu", (1, 4, 10), (1.3, 0.3))]
        for _ in range(40):
            seen = [rng.choice(some) for _ in range(rng.randrange(5))]
            together, alone = told(shared, seen), told(Experience(), seen)
            for gpus, noise in product((1, 4), (0.0, 1.0, 50.0)):
                where = (app, 1, gpus, "gpu", (1.0, noise))
                assert together.choose(*where) == alone.choose(*where)

    def test_the_same_in_the_same_order_is_worked_out_once(self) -> None:
        novice = Experience()
        seen: list[Seen] = [("gpu", (1, 1, 10), (1.0, 0.0)), ("gpu", (1, 2, 10), (1.1, 0.1))]
        assert told(novice, seen) is told(novice, seen)
        assert told(novice, seen) is told(novice, [*seen, ("gpu", (1, 2, 10), (9.0, 0.0))]), "the first one counts"
        assert told(novice, seen) is not told(novice, seen[::-1])

    def test_never_changes_what_another_job_knows(self, profiles: Path) -> None:
        app = applications(profiles)["toy"]
        one = told(Experience(), [("gpu", (1, 1, 10), (1.0, 0.0))])
        before = one.steps_s(app, 1, 4, "gpu")
        other = one.after("gpu", (1, 4, 10), (2.0, 1.0))
        assert before is not None
        assert before is one.steps_s(app, 1, 4, "gpu")
        atomic, accumulate, _ = app.candidate_arrays(4, "gpu")
        model = fit({(1, 1, 10): (1.0, 0.0), (1, 4, 10): (2.0, 1.0)})
        expected = model.steps_s(model.network_s(1, 4), atomic, accumulate)
        after = other.steps_s(app, 1, 4, "gpu")
        assert after is not None
        assert after.tolist() == expected.tolist()
        assert one.steps_s(app, 1, 4, "unseen") is None
