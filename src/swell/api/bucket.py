"""A token bucket: it fills steadily up to a limit, and each request takes one token out. Callers pass the time."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    left: float  # tokens, as of `seen_s`
    seen_s: float

    def refill(self, now_s: float, per_s: float, most: float) -> None:
        self.left, self.seen_s = min(most, self.left + (now_s - self.seen_s) * per_s), now_s

    def wait_s(self, per_s: float) -> int:
        """Whole seconds until it has a token; 0: it has one now."""
        return 0 if self.left >= 1.0 else max(1, math.ceil((1.0 - self.left) / per_s))
