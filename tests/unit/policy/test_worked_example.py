"""docs/explanation/why-three-gpus.md, executed: every number on the page is what the reference computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swell.core.decision import ReasonCode
from swell.core.snapshot import Curve, JobView
from swell.policy.swell import reference
from swell.policy.swell.measures import Bidder, Cluster
from swell.policy.swell.settings import settings_of
from unit.policy.views import NOW_S, bare, counts, snapshot, view

PAGE = Path(__file__).resolve().parents[3] / "docs/explanation/why-three-gpus.md"
CLUSTER = Cluster(gpu_type="gpu", milli=8000, per_node=8, now_s=NOW_S)


def table(head: str) -> list[list[str]]:
    """Rows of the table on the page that begins with this head."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"| {head} |")
    assert rest, f"no table with the head {head}"
    rows = re.findall(r"^\|(.*)\|$", rest.partition("\n\n")[0], re.MULTILINE)
    return [[cell.strip(" *") for cell in row.split("|")] for row in rows[1:]]


def jobs() -> list[JobView]:
    found = []
    for job, sizes, left, speeds in table("job | sizes it allows | left on one GPU | speed on 1, 2, 3, 4 GPUs"):
        curve: Curve = (0.0, *(0.0 if speed == "–" else float(speed) for speed in speeds.split(", ")))
        allowed = tuple(int(n) for n in sizes.split(", "))
        rem = float(left.removesuffix(" s"))
        found.append(view(int(job), sizes=allowed, rem=rem, curve=curve, at=NOW_S, restart_cost_s=0.0))
    return found


def bidders() -> dict[int, Bidder]:
    settings = settings_of(snapshot(jobs()))
    found = [reference._bidder(job, CLUSTER) for job in jobs()]
    reference._weigh(found, CLUSTER, settings)
    reference._find_worth(found, CLUSTER, settings)
    return {bidder.job.id: bidder for bidder in found}


def test_the_worth_of_each_job() -> None:
    found = bidders()
    rows = table("job | longer jobs | worth | at n")
    assert len(rows) == len(found)
    for job, longer, worth, n in rows:
        bidder = found[int(job)]
        assert bidder.weight == 1.0
        assert f"{bidder.worth:.4f}".rstrip("0") == worth
        cost = 1 + 3 * (int(longer) + 1) * int(n) / 8
        assert abs(cost / bidder.curve[int(n)] - bidder.worth) < 1e-12


def test_the_cost_of_job_seven_by_size() -> None:
    chain = dict(bidders()[7].chain)
    rows = table("n | cost per second | progress per second | cost per second of progress")
    assert [int(row[0]) for row in rows] == list(chain)
    for n, cost, speed, ratio in rows:
        assert (float(cost), float(speed)) == (1 + 3 * 2 * int(n) / 8, chain[int(n)])
        assert f"{float(cost) / float(speed):.4f}".rstrip("0") == ratio


def test_the_steps_in_the_order_in_which_they_are_sold() -> None:
    settings = settings_of(snapshot(jobs()))
    steps = []
    for job, bidder in bidders().items():
        n, value = 0, 0.0
        for more, better in reference._values(bidder, settings):
            steps.append(((better - value) / (more - n), f"job {job}: {n} → {more}", better - value))
            n, value = more, better
    steps.sort(key=lambda step: -step[0])
    rows = table("step | value | per GPU | GPUs left before |")
    assert [row[0] for row in rows] == [name for _, name, _ in steps]
    left, blocked = 8, set[str]()
    for (per_gpu, name, value), row in zip(steps, rows, strict=True):
        assert [float(row[1]), float(row[2])] == [round(value, 4), round(per_gpu, 4)], name
        assert int(row[3]) == left
        first, _, then = name.partition(": ")[2].partition(" → ")
        needs, whose = int(then) - int(first), name.partition(":")[0]
        fits = "the step before it did not fit" if whose in blocked else f"needs {needs}: does not fit"
        bought = needs <= left and whose not in blocked
        assert row[4] == ("bought" if bought else fits)
        left -= needs if bought else 0
        blocked |= set() if bought else {whose}
    assert left == 1


def test_what_each_job_gets_from_the_reference_and_from_the_policy() -> None:
    given = table("job | 3 | 5 | 6 | 7 | 9")
    wanted = [0 if n == "–" else int(n) for n in given[0][1:]]
    taken = snapshot(jobs())
    decided = reference.decide(jobs(), CLUSTER, settings_of(taken))
    assert [decided.get(job.id, 0) for job in jobs()] == wanted
    assert counts(bare("swell", taken), jobs()) == wanted == [2, 1, 2, 3, 0]
    behind, room = bare("swell", taken).why()[9]
    assert (behind.code, behind.detail["ahead"], room.code, room.detail) == (
        ReasonCode.BEHIND,
        4,
        ReasonCode.CAPACITY,
        {"needs": 3, "free": 0},
    )


@pytest.mark.parametrize(("restart_cost_s", "size"), [(1.0, 8), (250.0, 4)])
def test_the_reference_charges_a_restart_of_a_running_job_as_the_policy_does(restart_cost_s: float, size: int) -> None:
    curve = (0.0, 1.0, 2.0, 3.0, 4.0, 4.1, 4.2, 4.3, 4.4)
    job = view(1, 1, 8, rem=90_000, curve=curve, held=4, restart_cost_s=restart_cost_s)
    taken = snapshot([job], 8)
    assert reference.decide([job], CLUSTER, settings_of(taken)) == {1: size}
    assert counts(bare("swell", taken), [job]) == [size]


def test_a_step_that_did_not_fit_is_tried_first() -> None:
    smaller = view(9, sizes=(2, 3, 4), rem=18000.0, curve=(0.0, 0.0, 1.8, 2.4, 2.8), at=NOW_S, restart_cost_s=0.0)
    decided = reference.decide([*jobs()[:-1], smaller], CLUSTER, settings_of(snapshot(jobs())))
    assert decided == {3: 2, 5: 1, 6: 2, 7: 1, 9: 2}


def test_what_would_change_it() -> None:
    def with_changes(**changes: dict[str, object]) -> list[int]:
        numbers = {int(name.removeprefix("job")): value for name, value in changes.items()}
        now = [
            view(job.id, **({"sizes": job.sizes, "rem": job.remaining_1_s, "curve": job.curve("gpu"), "at": NOW_S,
                             "restart_cost_s": 0.0} | numbers.get(job.id, {})))  # type: ignore[arg-type]
            for job in jobs()
        ]  # fmt: skip
        return counts(bare("swell", snapshot(now)), now)

    assert with_changes(job7={"held": 2, "restart_cost_s": 30.0})[3] == 3
    assert round(2.4 / (1 + 3 * 30 / 7200 * 2.4), 2) == 2.33
    assert round(1.8 * (1 + 30 / 600), 2) == 1.89
    assert with_changes(job9={"sizes": (1, 2, 3, 4), "curve": (0.0, 1.0, 1.8, 2.4, 2.8)})[4] == 1
    assert with_changes(job9={"at": NOW_S - 50_000, "waiting": 50_000})[4] >= 2
