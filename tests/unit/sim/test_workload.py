from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.errors import SwellError
from swell.core.job import JobSpec
from swell.sim.cluster import gpus_by_type, parse_cluster
from swell.sim.generate import Recipe, generate
from swell.sim.simulate import Case, scenes, simulate
from swell.sim.swell_workloads import read_jobs, write_jobs
from swell.sim.workload import Arrival, Workload, at_load, drawn, name_of_draw


def workload(jobs: int) -> Workload:
    arrivals = (Arrival(at_s=10.0 * i, spec=JobSpec(name=f"j{i}", command=("true",))) for i in range(jobs))
    return Workload(name="w", arrivals=tuple(arrivals))


@pytest.mark.parametrize(("load", "jobs"), [(0.5, 5), (1.0, 10), (1.5, 15), (2.0, 20)])
def test_load_thins_and_repeats_evenly(load: float, jobs: int) -> None:
    scaled = at_load(workload(10), load)
    assert len(scaled.arrivals) == jobs
    times = [arrival.at_s for arrival in scaled.arrivals]
    assert times == sorted(times)
    assert times[-1] <= 95


def test_no_load_is_refused_with_an_example() -> None:
    with pytest.raises(SwellError, match=r"0\.5 half of it"):
        at_load(workload(1), 0)


def test_another_workload_of_the_same_kind_has_as_many_of_the_same_jobs_in_the_same_time() -> None:
    given = workload(50)
    other = drawn(given, 1)
    times = [arrival.at_s for arrival in other.arrivals]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= 490
    names = [arrival.spec.name for arrival in other.arrivals]
    assert len(set(names)) == 50
    assert {name.partition("-")[0] for name in names} < {arrival.spec.name for arrival in given.arrivals}


def test_what_is_drawn_depends_on_the_seed_alone_and_0_changes_nothing() -> None:
    given = workload(20)
    assert drawn(given, 1) == drawn(given, 1) != drawn(given, 2)
    assert drawn(given, 0) is given
    assert drawn(workload(0), 3).arrivals == ()
    assert (name_of_draw("w", 0), name_of_draw("w", 2)) == ("w", "w-draw2")


def test_clusters_have_nodes_gpus_and_types() -> None:
    nodes = parse_cluster("2x4,1x8xA100")
    assert [len(node.gpus) for node in nodes] == [4, 4, 8]
    assert gpus_by_type(nodes) == {"A100": 8, "gpu": 8}
    assert len({node.name for node in nodes}) == 3


def test_gpus_of_public_profiles_are_called_by_what_they_are(profiles: Path, one_job: Path) -> None:
    """A daemon would see T4s and A100s, whatever the machines are called, and knows which are faster."""
    app = profiles / "toy"
    for machine in ("aws", "dgx-ext"):
        (app / f"placements-{machine}.csv").write_text((app / "placements.csv").read_text())
        (app / f"scalability-{machine}.csv").write_text((app / "scalability.csv").read_text())
    for cluster in ("2x4xaws,1x8xdgx-ext", "2x4xT4,1x8xA100"):
        case = Case(workload=one_job, profiles=profiles, format="sia", cluster=cluster, policy="swell")
        (scene,) = scenes(case)
        assert gpus_by_type(scene.nodes) == {"A100": 8, "T4": 8}
        assert simulate(case).summary["unfinished"] == 0


def test_a_cluster_that_cannot_be_read_says_how_to_write_one() -> None:
    with pytest.raises(SwellError, match="write 16x4"):
        parse_cluster("16 nodes")
    with pytest.raises(SwellError, match="'0x4' is no node at all"):
        parse_cluster("2x4,0x4")


def test_a_recipe_says_what_families_and_estimates_mean_and_who_is_silent(tmp_path: Path) -> None:
    recipe = Recipe(jobs=60, gpus=8, families=3, alike=1.0, estimate_off=3.0, silent=0.5, seed=4)
    made = generate(recipe)
    lengths = {arrival.spec.family: arrival.truth["duration_s"] for arrival in made.arrivals}
    assert all(arrival.truth["duration_s"] == lengths[arrival.spec.family] for arrival in made.arrivals)
    ratios = [arrival.spec.estimated_s / arrival.truth["duration_s"] for arrival in made.arrivals]
    assert min(ratios) < 0.5 < 2.0 < max(ratios)
    silent = [arrival for arrival in made.arrivals if arrival.truth.get("silent")]
    assert 15 < len(silent) < 45
    assert not any(arrival.spec.epochs for arrival in silent)
    write_jobs(made, tmp_path / "jobs.yaml")
    again = read_jobs(tmp_path / "jobs.yaml")
    assert [a.truth.get("silent", 0.0) for a in again.arrivals] == [a.truth.get("silent", 0.0) for a in made.arrivals]
    assert again.arrivals[0].spec.estimated_s == pytest.approx(made.arrivals[0].spec.estimated_s, rel=0.01, abs=1.0)


def test_jobs_of_a_recipe_that_cannot_be_stopped_are_none_either_when_they_are_read_again(tmp_path: Path) -> None:
    made = generate(Recipe(jobs=60, gpus=8, silent=0.5, unstoppable=0.5, seed=4))
    write_jobs(made, tmp_path / "jobs.yaml")
    for arrivals in (made.arrivals, read_jobs(tmp_path / "jobs.yaml").arrivals):
        stay = [arrival for arrival in arrivals if not arrival.spec.may_be_stopped]
        assert 5 < len(stay) < 25
        assert all(arrival.truth.get("silent") for arrival in stay)


def test_what_is_not_asked_for_changes_no_workload() -> None:
    plain = generate(Recipe(jobs=20, seed=4))
    other = generate(Recipe(jobs=20, seed=4, estimate_off=3.0))
    assert [a.truth for a in plain.arrivals] == [a.truth for a in other.arrivals]
    with pytest.raises(SwellError, match="from 0 to 1"):
        generate(Recipe(alike=2.0))


def test_a_wrong_field_of_a_workload_is_told_with_its_file_and_job(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("- {command: 'true'}\n- {command: 'true', gpu: 2}\n")
    with pytest.raises(SwellError, match=r"jobs\.yaml, job 2, gpu: there is no such field \(write gpus: 2\)"):
        read_jobs(tmp_path / "jobs.yaml")
