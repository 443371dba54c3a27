"""Reports that wait to be sent by `link`, bounded however long the daemon is away. Nothing here blocks or does I/O."""

from __future__ import annotations

import threading
from typing import Any

from swell.sdk.meter import alike, merge

MAX_ENTRIES = 32
MAX_POINTS = 512
SHORT_EPOCH_S = 1.0
"""Epochs shorter than this are reported together, if they were trained in the same way."""


class Outbox:
    """When too many wait, epochs are merged and points thinned out: counts stay exact, detail is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[dict[str, Any]] = []
        self._series: dict[str, list[tuple[float, float]]] = {}
        self._strides: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self.began: dict[str, int] | None = None

    def add_epoch(self, entry: dict[str, Any]) -> None:
        with self._lock:
            self._entries.append(entry)
            self._shrink()

    def add_point(self, name: str, at_s: float, value: float) -> None:
        with self._lock:
            seen = self._seen.get(name, 0)
            self._seen[name] = seen + 1
            if seen % self._strides.get(name, 1):
                return
            points = self._series.setdefault(name, [])
            points.append((at_s, value))
            if len(points) >= MAX_POINTS:
                del points[1::2]
                self._strides[name] = self._strides.get(name, 1) * 2

    def take(self) -> dict[str, Any]:
        """All that waits, for one report. Give it back with `restore` if it did not arrive."""
        with self._lock:
            parcel: dict[str, Any] = {"epochs": self._entries, "series": self._series}
            if self.began is not None:
                parcel["began"] = self.began
            self._entries, self._series, self.began = [], {}, None
            self._strides, self._seen = {}, {}
            return parcel

    def restore(self, parcel: dict[str, Any]) -> None:
        with self._lock:
            self._entries[:0] = parcel["epochs"]
            self._shrink()
            self.began = self.began or parcel.get("began")
            for name, points in parcel["series"].items():
                merged = points + self._series.get(name, [])
                self._series[name] = merged[:: 1 + len(merged) // MAX_POINTS]

    @property
    def empty(self) -> bool:
        return not (self._entries or self._series or self.began)

    def _shrink(self) -> None:
        """Short neighbours that are alike become one entry; so do the oldest when there are too many."""
        kept: list[dict[str, Any]] = []
        for entry in self._entries:
            if kept and max(kept[-1]["epoch_s"], entry["epoch_s"]) < SHORT_EPOCH_S and alike(kept[-1], entry):
                kept[-1] = merge(kept[-1], entry)
            else:
                kept.append(entry)
        while len(kept) > MAX_ENTRIES:
            kept[:2] = [merge(kept[0], kept[1])]
        self._entries = kept
