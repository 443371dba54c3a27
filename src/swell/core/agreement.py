"""Where all ranks of a run stop: one answer, or none.

The daemon proposes to stop *before* a position P (epoch, step) that no rank has begun. A rank that hears it in time
promises (acks) to wait at P for the verdict. When every rank has promised and none has begun P, P is decided; it is
made durable (`StopAgreed`) and only then told to the ranks, who leave on nothing else. A rank that began P before it
heard of it voids P, and a later position is proposed, twice as far ahead: so it ends, however short the epochs are.

Positions proposed to one run only ever grow, so an ack names its proposal and a late or doubled message is harmless.
Ranks that never speak (no library in them) keep anything from being proposed: nobody waits in vain.

One value per run, kept by the daemon's loop: pure, rebuilt from the ranks' next messages after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Position = tuple[int, int]
"""(epoch, step): the last one that a rank has begun. (3, 0) is the start of the fourth epoch."""

FIRST_AHEAD_STEPS = 2
MAX_DOUBLINGS = 16
CROSSINGS = 3
"""For ranks that can stop at steps: after this many proposals that were overrun by the end of their epoch, the ranks
stop at an epoch instead. One overrun is chance (the next epoch may take an hour); three mean that epochs are short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The latest known of one rank."""

    position: Position
    ack: Position | None = None
    steps: bool = False  # can stop at a step, not only at an epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPoint:
    """Where all ranks stop: before `at`. They leave only once that is `agreed`."""

    at: Position
    agreed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    world_size: int = 0
    ranks: Mapping[int, Heard] = field(default_factory=dict)
    asked: bool = False  # the run is to stop
    terminating: bool = False  # its own ranks asked, after a SIGTERM: that cannot be withdrawn
    spare: int = 0  # number of last epochs not to interrupt: a resize would cost more than it brings
    epochs: int = 0  # as the training code knows it; 0: unset
    proposal: Position | None = None
    tried: int = 0  # proposals so far
    crossed: int = 0  # those that a rank had passed by beginning another epoch
    highest: Position = (-1, 0)  # of all proposals: the next one lies above
    decided: Position | None = None  # every rank has promised: final, to be made durable
    confirmed: bool = False  # durable: ranks may leave

    def ask(self, *, spare: int = 0, terminating: bool = False) -> Agreement:
        """The run shall stop. Asked twice, the stricter wish holds (a preemption after a resize spares nothing)."""
        spare = min(spare, self.spare) if self.asked else spare
        return replace(self, asked=True, spare=spare, terminating=self.terminating or terminating)._advance()

    def withdraw(self) -> Agreement:
        """The run shall go on. Ranks that have promised hear that nothing is proposed, and go on; what they promised
        before counts for nothing, since the next proposal lies above. A verdict that is durable stands."""
        if self.confirmed or self.terminating or not self.asked:
            return self
        return replace(self, asked=False, proposal=None, decided=None)

    def hear(
        self,
        *,
        rank: int,
        position: Position,
        world_size: int,
        ack: Position | None = None,
        steps: bool = False,
        epochs: int = 0,
    ) -> Agreement:
        """A message of a rank. Late, doubled and reordered ones do no harm."""
        known = self.ranks.get(rank)
        if known is not None:
            position, ack = max(position, known.position), _later(ack, known.ack)
        ranks = {r: h for r, h in self.ranks.items() if r < world_size}
        ranks[rank] = Heard(position=position, ack=ack, steps=steps)
        heard = replace(self, ranks=ranks, world_size=world_size, epochs=max(self.epochs, epochs))
        return heard._advance()

    def confirm(self) -> Agreement:
        """`StopAgreed` is on disk."""
        assert self.decided is not None
        return replace(self, confirmed=True)

    def view(self) -> StopPoint | None:
        """What to tell any rank that asks."""
        if self.proposal is None:
            return None
        return StopPoint(at=self.proposal, agreed=self.confirmed)

    def news_for(self, ack: Position | None) -> bool:
        """Must a rank that has promised `ack` be answered at once, or may its long poll wait?"""
        return self.confirmed or self.proposal != ack

    @property
    def complete(self) -> bool:
        """Every rank has spoken."""
        return self.world_size > 0 and all(rank in self.ranks for rank in range(self.world_size))

    def _advance(self) -> Agreement:
        if not self.asked or self.decided is not None or not self.complete:
            return self
        proposal = self.proposal
        if proposal is not None and all(h.position < proposal for h in self.ranks.values()):
            if all(h.ack == proposal for h in self.ranks.values()):
                return replace(self, decided=proposal)
            if all(h.ack is None or h.ack <= proposal for h in self.ranks.values()):
                return self
        return self._propose()

    def _propose(self) -> Agreement:
        """The next position to try: above all that was begun, promised or proposed before."""
        begun = max(h.position for h in self.ranks.values())
        crossed = self.crossed + (self.proposal is not None and begun[0] > self.proposal[0])
        at = self._next(begun, crossed)
        if at is None:
            return replace(self, proposal=None)
        return replace(self, proposal=at, highest=at, tried=self.tried + 1, crossed=crossed)

    def _next(self, begun: Position, crossed: int) -> Position | None:
        promised = max((h.ack for h in self.ranks.values() if h.ack is not None), default=(-1, 0))
        if crossed < CROSSINGS and all(h.steps for h in self.ranks.values()):
            at = (begun[0], begun[1] + (FIRST_AHEAD_STEPS << min(self.tried, MAX_DOUBLINGS)))
        else:
            at = self._epoch_ahead(begun, 1 << min(self.tried, MAX_DOUBLINGS))
        at = max(at, promised) if promised > begun else at
        if at <= self.highest:
            at = (self.highest[0], self.highest[1] + 1) if at[1] else (self.highest[0] + 1, 0)
        return at if self._allowed(at) else None

    def _epoch_ahead(self, begun: Position, ahead: int) -> Position:
        """`ahead` epochs on, but rather sooner than beyond the end of the training."""
        wanted = begun[0] + ahead
        last = self.epochs - 1 - self.spare
        return (max(begun[0] + 1, min(wanted, last)) if self.epochs else wanted, 0)

    def _allowed(self, at: Position) -> bool:
        """After the last epoch there is nothing to stop: the training ends by itself."""
        return not self.epochs or at[0] < self.epochs - self.spare


def _later(ack: Position | None, known: Position | None) -> Position | None:
    """Promises only ever move on: an old one that arrives late is no news."""
    if ack is None or known is None:
        return ack if known is None else known
    return max(ack, known)
