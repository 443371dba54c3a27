"""AFS-L, apathetic future share, length-aware: GPUs go out one step at a time to the winner of a scan over the jobs.

A step takes a job to its next size (the first to its minimum). Of two jobs without GPUs the one with less remaining
time wins. Otherwise let a be the shorter by its own length now, rem/S(n), and b the longer (a job without GPUs is the
longest): b wins iff (S_b(m)-S_b(n))/S_b(m) > (S_a(m)-S_a(n))/S_a(n), each per GPU of the step n -> m. On a tie a job
without GPUs wins: two equal jobs on two GPUs get one each, also when speed is linear.

That relation is not transitive, so the winner of a scan depends on its order. Ours goes from the shortest job to the
longest, so that the answer depends on the jobs alone. Then whoever leads is always the shorter one, and the next to
take over is the first longer job whose left side exceeds the leader's right side: found by blocks with their maxima
instead of a walk. O((jobs + GPUs) · (log jobs + jobs/64) · leaders a scan) in place of O(jobs · GPUs); with concave
speeds, while jobs wait, each wins at once. (Hwang et al., Elastic resource sharing for distributed deep learning,
NSDI 2021.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter

from swell.core.decision import Decision
from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Ladder, Memory, OwnReasons, Purse, grant, ladder
from swell.policy.options import NO_OPTIONS
from swell.ports import Random

BLOCK = 48
Key = tuple[float, float, int]
"""(length now, remaining time, place in order of submission): the order of the scan."""


class AfsL:
    name = "afs-l"
    elastic = True
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        race = _Race(snapshot)
        race.run()
        grants = {runner.job.id: grant(runner.n, runner.gpu_type) for runner in race.runners}
        return Decision(grants=grants, reasons=race.reasons, memory=memory)


class _Runner:
    """A job that has GPUs, and what its next step brings."""

    __slots__ = ("as_longer", "as_shorter", "gpu_type", "job", "key", "n", "place", "remaining_s", "rung", "rungs")

    def __init__(self, job: JobView, place: int, remaining_s: float, gpu_type: str, rungs: Ladder | None) -> None:
        self.job, self.place, self.remaining_s = job, place, remaining_s
        self.gpu_type, self.rungs, self.rung = gpu_type, rungs, 0
        self.n = job.sizes[0]

    def look_ahead(self) -> bool:
        """Work out length and gains of the next step; False when there is none."""
        rungs = self.rungs
        if rungs is None or self.rung + 1 >= len(rungs.sizes):
            return False
        speed = rungs.speeds[self.rung] or 1e-9
        faster = rungs.speeds[self.rung + 1]
        gained = (faster - speed) / (rungs.sizes[self.rung + 1] - self.n)
        self.key: Key = (self.remaining_s / speed, self.remaining_s, self.place)
        self.as_longer = gained / faster
        self.as_shorter = gained / speed
        return True

    def step(self) -> int:
        assert self.rungs is not None  # look_ahead has found a rung
        return self.rungs.sizes[self.rung + 1] - self.n

    def grow(self) -> None:
        self.n += self.step()
        self.rung += 1


class _Race:
    def __init__(self, snapshot: Snapshot) -> None:
        self.purse = Purse(snapshot.capacity)
        self.runners: list[_Runner] = []
        self.reasons: OwnReasons = {}
        self._line = _Line()
        self._steep: dict[JobId, None] = {}  # runners that may beat a job without GPUs
        waiting = [(job.remaining_s(snapshot.now_s), place, job) for place, job in enumerate(snapshot.jobs)]
        waiting.sort(key=itemgetter(0, 1), reverse=True)
        self._waiting = waiting  # the shortest last

    def run(self) -> None:
        while self._waiting:
            leader = self._leader() if self._steep else None
            if leader is not None and leader.as_shorter > 1.0:
                self._grow(leader)
            else:
                self._admit()
        if self.purse.free_gpus():
            while (leader := self._leader()) is not None:
                self._grow(leader)

    def _admit(self) -> None:
        remaining_s, place, job = self._waiting.pop()
        n = job.sizes[0]
        gpu_type = self.purse.best_type(job, n)
        if gpu_type is None:
            self.reasons[job.id] = self.purse.no_room(job, n)
            return
        self.purse.take(job, n, gpu_type)
        elastic = len(job.sizes) > 1 and job.gpu_milli > 0
        runner = _Runner(job, place, remaining_s, gpu_type, ladder(job, gpu_type) if elastic else None)
        self.runners.append(runner)
        self._line_up(runner)

    def _line_up(self, runner: _Runner) -> None:
        if runner.look_ahead():
            self._line.add(runner)
            if runner.as_shorter > 1.0:
                self._steep[runner.job.id] = None

    def _grow(self, runner: _Runner) -> None:
        self._leave(runner)
        self.purse.take(runner.job, runner.step(), runner.gpu_type)
        runner.grow()
        self._line_up(runner)

    def _leave(self, runner: _Runner) -> None:
        self._line.remove(runner)
        self._steep.pop(runner.job.id, None)

    def _leader(self) -> _Runner | None:
        """Who wins the scan among those that have GPUs. One whose step no longer fits leaves, and the scan begins
        again."""
        leader = self._line.first()
        while leader is not None:
            if not self.purse.fits(leader.job, leader.step(), leader.gpu_type):
                self._leave(leader)
                leader = self._line.first()
                continue
            better = self._line.after(leader.key, leader.as_shorter)
            if better is None:
                return leader
            leader = better
        return None


class _Line:
    """Runners in order of length, in blocks that know their largest gain. Newcomers are filed when first asked."""

    def __init__(self) -> None:
        self._blocks: list[list[Key]] = []
        self._last: list[Key] = []
        self._most: list[float] = []
        self._by_place: dict[int, _Runner] = {}
        self._new: list[_Runner] = []

    def add(self, runner: _Runner) -> None:
        self._new.append(runner)

    def _file(self) -> None:
        if len(self._new) > len(self._by_place) // 8 + 8:
            everyone = sorted([*(r.key for r in self._by_place.values()), *(r.key for r in self._new)])
            self._by_place.update({r.place: r for r in self._new})
            self._blocks = [everyone[i : i + BLOCK] for i in range(0, len(everyone), BLOCK)]
            self._last = [block[-1] for block in self._blocks]
            self._most = [self._max(block) for block in self._blocks]
        else:
            for runner in self._new:
                self._insert(runner)
        self._new.clear()

    def _insert(self, runner: _Runner) -> None:
        self._by_place[runner.place] = runner
        if not self._blocks:
            self._blocks, self._last, self._most = [[runner.key]], [runner.key], [runner.as_longer]
            return
        at = min(bisect_left(self._last, runner.key), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, runner.key)
        self._last[at] = block[-1]
        self._most[at] = max(self._most[at], runner.as_longer)
        if len(block) > 2 * BLOCK:
            self._split(at)

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        halves = [block[:BLOCK], block[BLOCK:]]
        self._blocks[at : at + 1] = halves
        self._last[at : at + 1] = [half[-1] for half in halves]
        self._most[at : at + 1] = [self._max(half) for half in halves]

    def _max(self, block: list[Key]) -> float:
        return max(self._by_place[place].as_longer for _, _, place in block)

    def remove(self, runner: _Runner) -> None:
        if self._new:
            self._file()
        at = bisect_left(self._last, runner.key)
        block = self._blocks[at]
        del block[bisect_left(block, runner.key)]
        if not block:
            del self._blocks[at], self._last[at], self._most[at]
        else:
            self._last[at] = block[-1]
            if runner.as_longer >= self._most[at]:
                self._most[at] = self._max(block)
        del self._by_place[runner.place]

    def first(self) -> _Runner | None:
        if self._new:
            self._file()
        return self._by_place[self._blocks[0][0][-1]] if self._blocks else None

    def after(self, key: Key, gain: float) -> _Runner | None:
        """The shortest runner beyond `key` that gains more than this."""
        at = bisect_left(self._last, key)
        begin = bisect_left(self._blocks[at], key) + 1
        for number in range(at, len(self._blocks)):
            if self._most[number] > gain:
                for _, _, place in self._blocks[number][begin:]:
                    runner = self._by_place[place]
                    if runner.as_longer > gain:
                        return runner
            begin = 0
        return None
