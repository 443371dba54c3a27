"""The stop agreement: all ranks of a run stop at one position, or none stops (ADR 2).

The daemon proposes to stop *before* a position P (epoch, step) that no rank has begun. A rank that receives it in time
promises (acks) to wait at P for the result. When every rank has promised and none has begun P, P is decided; it is made
durable (`StopAgreed`) and only then sent to the ranks, which leave only on that. If a rank began P before it received
the proposal, P is void, and a later position is proposed, twice as far ahead; so it converges even with short epochs.

Positions proposed to one run only grow, so an ack identifies its proposal, and late or repeated messages are harmless.
If a rank never reports (it does not use the library), nothing is proposed, so no rank waits in vain.

One value per run, kept by `daemon.stops`. Pure; rebuilt from the ranks' next messages after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Position = tuple[int, int]
"""(epoch, step): the last one that a rank has begun. (3, 0) is the start of the fourth epoch."""

FIRST_AHEAD_STEPS = 2
MAX_DOUBLINGS = 16
CROSSINGS = 3
"""For ranks that can stop at steps: after this many proposals whose epoch ended first, the ranks stop at an epoch
instead. Once may be chance (the next epoch may take an hour); three times mean that epochs are short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The latest report of one rank."""

    position: Position
    ack: Position | None = None
    steps: bool = False  # can stop at a step, not only at an epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPoint:
    """All ranks stop before `at`. They leave only once that is `agreed`."""

    at: Position
    agreed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    world_size: int = 0
    ranks: Mapping[int, Heard] = field(default_factory=dict)
    asked: bool = False  # the run has to stop
    terminating: bool = False  # its own ranks requested it after a SIGTERM: it cannot be withdrawn
    spare: int = 0  # number of last epochs not to interrupt: a resize would cost more than it brings
    epochs: int = 0  # as reported by the training code; 0: unset
    proposal: Position | None = None
    tried: int = 0  # proposals so far
    crossed: int = 0  # proposals that failed because a rank began another epoch
    highest: Position = (-1, 0)  # of all proposals; the next one is higher
    decided: Position | None = None  # every rank has promised: final, but not yet durable
    confirmed: bool = False  # durable: ranks may leave

    def ask(self, *, spare: int = 0, terminating: bool = False) -> Agreement:
        """The run has to stop. Of two requests the stricter one holds (a preemption after a resize spares nothing)."""
        spare = min(spare, self.spare) if self.asked else spare
        return replace(self, asked=True, spare=spare, terminating=self.terminating or terminating)._advance()

    def withdraw(self) -> Agreement:
        """The run continues. Ranks that have promised learn that there is no proposal, and continue; their promises are
        void, because the next proposal is higher. A durable decision stands."""
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
        """A message of a rank. Late, repeated and reordered messages are harmless."""
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
        """The answer to any rank."""
        if self.proposal is None:
            return None
        return StopPoint(at=self.proposal, agreed=self.confirmed)

    def news_for(self, ack: Position | None) -> bool:
        """Whether a rank that has promised `ack` gets an answer at once; otherwise its long poll waits."""
        return self.confirmed or self.proposal != ack

    @property
    def complete(self) -> bool:
        """Whether every rank has reported."""
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
        """Propose the next position, above all that were begun, promised or proposed before."""
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
        """`ahead` epochs later, but before the end of the training."""
        wanted = begun[0] + ahead
        last = self.epochs - 1 - self.spare
        return (max(begun[0] + 1, min(wanted, last)) if self.epochs else wanted, 0)

    def _allowed(self, at: Position) -> bool:
        """Whether to stop there: not after the last epoch, where the training ends by itself."""
        return not self.epochs or at[0] < self.epochs - self.spare


def _later(ack: Position | None, known: Position | None) -> Position | None:
    """The later of two promises: an old one that arrives late is ignored."""
    if ack is None or known is None:
        return ack if known is None else known
    return max(ack, known)
