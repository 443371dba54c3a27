"""The stop agreement under messages that are delayed, reordered and doubled: daemon's half (`core.agreement`) against
the rank's half (`sdk.gate`). Never do two ranks leave at different positions; and it always ends."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from swell.core.agreement import Agreement, Position, StopPoint
from swell.sdk.gate import Gate


@dataclass
class Rank:
    """One rank with its gate. At most one poll is asked for at a time; an abandoned one may still arrive."""

    number: int
    steps_per_epoch: int
    epochs: int
    step_stops: bool
    gate: Gate = field(default_factory=Gate)
    at: Position = (0, 0)
    asked: int = 0  # number of the poll whose answer counts
    waiting: bool = False
    left_at: Position | None = None
    finished: bool = False

    @property
    def gone(self) -> bool:
        return self.finished or self.left_at is not None

    def boundaries(self) -> Position:
        epoch, step = self.at
        if self.step_stops and step + 1 < self.steps_per_epoch:
            return epoch, step + 1
        return epoch + 1, 0


@dataclass
class World:
    """Ranks, the daemon's agreement, and what is in the air between them."""

    ranks: list[Rank]
    lockstep: bool
    rng: random.Random
    agreement: Agreement = field(default_factory=Agreement)
    requests: list[tuple[int, int, Position, Position | None]] = field(default_factory=list)
    parked: list[tuple[int, int, Position | None]] = field(default_factory=list)
    answers: list[tuple[int, int, StopPoint | None]] = field(default_factory=list)

    def send(self, rank: Rank) -> None:
        begun, promised = rank.gate.word()
        rank.asked += 1
        rank.waiting = True
        self.requests.append((rank.number, rank.asked, begun, promised))

    def receive(self, index: int, keep: bool = False) -> None:
        number, poll, begun, ack = self.requests[index] if keep else self.requests.pop(index)
        rank = self.ranks[number]
        self._learn(
            self.agreement.hear(
                rank=number,
                position=begun,
                ack=ack,
                world_size=len(self.ranks),
                steps=rank.step_stops,
                epochs=rank.epochs,
            )
        )
        self.parked.append((number, poll, ack))
        self.wake()

    def ask(self, spare: int) -> None:
        self._learn(self.agreement.ask(spare=spare))
        self.wake()

    def withdraw(self) -> bool:
        """Did it come in time? What is decided is durable at once here."""
        before = self.agreement
        self.agreement = before.withdraw()
        self.wake()
        return before.decided is None

    def _learn(self, agreement: Agreement) -> None:
        if agreement.decided is not None and not agreement.confirmed:
            agreement = agreement.confirm()
        if self.agreement.decided is not None:
            assert agreement.decided == self.agreement.decided, "what is decided never changes"
        self.agreement = agreement

    def wake(self) -> None:
        """Answer the long polls for which there is news."""
        news = [entry for entry in self.parked if self.agreement.news_for(entry[2])]
        self.parked = [entry for entry in self.parked if entry not in news]
        self.answers += [(number, poll, self.agreement.view()) for number, poll, _ in news]

    def deliver(self, index: int) -> None:
        number, poll, view = self.answers.pop(index)
        rank = self.ranks[number]
        if poll != rank.asked:
            return  # the answer to a poll that the rank has given up on
        rank.waiting = False
        rank.gate.hear(view.at if view else None, bool(view and view.agreed))

    def advance(self, rank: Rank) -> None:
        if rank.gone:
            return
        at = rank.boundaries()
        if at[0] >= rank.epochs:
            if not self.lockstep or all(r.gone or r.at >= rank.at for r in self.ranks):
                rank.finished = True
                rank.gate.begun = (rank.epochs, 0)
                self.send(rank)  # the library's last word
            return
        if self.lockstep and any(not r.gone and r.at < rank.at for r in self.ranks):
            return  # waits in a collective for the others
        assert not (self.lockstep and any(r.left_at is not None and r.left_at <= rank.at for r in self.ranks))
        if rank.gate.would_wait(at):
            return
        if rank.gate.arrive(at):
            rank.at = at
        else:
            rank.left_at = at

    def random_action(self) -> None:
        choice = self.rng.randrange(6)
        rank = self.rng.choice(self.ranks)
        if choice <= 1:
            self.advance(rank)
        elif choice == 2 and not rank.gone and (not rank.waiting or self.rng.random() < 0.2):
            self.send(rank)
        elif choice == 3 and self.requests:
            self.receive(self.rng.randrange(len(self.requests)), keep=self.rng.random() < 0.1)
        elif choice >= 4 and self.answers:
            self.deliver(self.rng.randrange(len(self.answers)))

    def settle(self) -> None:
        """From now on messages get through, though training does not wait for them."""
        for _ in range(3000):
            if all(rank.gone for rank in self.ranks):
                return
            for rank in self.ranks:
                self.advance(rank)
                if not rank.waiting and not rank.gone:
                    self.send(rank)
            if self.rng.random() < 0.5:
                while self.requests:
                    self.receive(0)
                while self.answers:
                    self.deliver(0)
        raise AssertionError(f"did not end: {self.ranks} {self.agreement}")


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    world_size=st.integers(1, 4),
    lockstep=st.booleans(),
    step_stops=st.booleans(),
    epochs=st.sampled_from([2, 5, 20, 100_000]),
    spare=st.integers(0, 2),
    actions=st.integers(0, 300),
)
def test_never_do_two_ranks_leave_at_different_positions(
    seed: int, world_size: int, lockstep: bool, step_stops: bool, epochs: int, spare: int, actions: int
) -> None:
    rng = random.Random(seed)
    ranks = [Rank(number=n, steps_per_epoch=7, epochs=epochs, step_stops=step_stops) for n in range(world_size)]
    world = World(ranks=ranks, lockstep=lockstep, rng=rng)
    for rank in ranks:
        assert rank.gate.arrive((0, 0))
    before = rng.randrange(actions + 1)
    for _ in range(before):
        world.random_action()
    world.ask(spare)
    for _ in range(actions - before):
        world.random_action()
    world.settle()
    left = {rank.left_at for rank in ranks}
    assert len(left) == 1, "all left at the same position, or none did"
    if epochs > 1000:
        assert left != {None}, "a training that does not end by itself is stopped"
    (at,) = left
    if at is not None:
        assert at <= (epochs - spare, 0), "never within the last epochs, which a resize spares"
        assert step_stops or at[0] < epochs - spare, "and where the length of epochs does not matter, not just before"


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    world_size=st.integers(1, 4),
    lockstep=st.booleans(),
    step_stops=st.booleans(),
    rounds=st.integers(1, 4),
    again=st.booleans(),
)
def test_after_a_withdrawal_no_rank_leaves_or_waits_until_the_run_is_asked_again(
    seed: int, world_size: int, lockstep: bool, step_stops: bool, rounds: int, again: bool
) -> None:
    """Asked and withdrawn any number of times, with answers of all rounds in the air."""
    rng = random.Random(seed)
    ranks = [Rank(number=n, steps_per_epoch=7, epochs=300, step_stops=step_stops) for n in range(world_size)]
    world = World(ranks=ranks, lockstep=lockstep, rng=rng)
    for rank in ranks:
        assert rank.gate.arrive((0, 0))
    stays = True
    for _ in range(rounds):
        world.ask(0)
        for _ in range(rng.randrange(60)):
            world.random_action()
        stays = world.withdraw()
        for _ in range(rng.randrange(60)):
            world.random_action()
        if not stays:
            break
    if again and stays:
        world.ask(0)
    world.settle()
    left = {rank.left_at for rank in ranks}
    assert len(left) == 1, "all left at the same position, or none did"
    if stays and not again:
        assert left == {None}, "nobody left, and all came to the end of their training"
