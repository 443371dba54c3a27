"""Brings checkpoints of jobs into the daemon's store, and from there to the machines where jobs continue.

One piece at a time and machine, so that a large checkpoint delays no other call for long; within one rate for all of
them together. What broke off continues where it was.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from swell.checkpoints.copies import CopiedFile, CopyStore, Manifest
from swell.checkpoints.holder import Holder, Json, Spot
from swell.core.ids import JobId
from swell.core.resources import Contact, Node
from swell.core.state import JobRecord
from swell.shim.checkpoints import PIECE

MIB = 1024 * 1024
BUSY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    job_mib: int = 20 * 1024  # a job with larger checkpoints stays where its files are
    mib_per_s: float = 0.0  # of all transfers together; 0: as fast as it goes


class Pace:
    """Limits the bytes per second of all copies together."""

    def __init__(self, bytes_per_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic_s = monotonic_s
        self._free_s = 0.0

    def wait_s(self, size: int) -> float:
        """How long to wait after `size` bytes were sent."""
        if not self._bytes_per_s:
            return 0.0
        now_s = self._monotonic_s()
        self._free_s = max(now_s, self._free_s) + size / self._bytes_per_s
        return self._free_s - now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What became of an attempt to copy. `problem`: why this job's checkpoint cannot be copied, for people."""

    manifest: Manifest | None = None
    new: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A machine that is about to run the job."""

    node: str
    holder: Holder
    spot: Spot


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """`epoch`: how far the checkpoint is that the run finds; None: as the job's record says. `why`: if that is less."""

    epoch: int | None = None
    why: str = ""
    copied: Copied | None = None


class CannotCarry(OSError):
    """The job's checkpoint cannot be had where it is to run."""


class Carrier:
    """`home_of`: a machine as a holder, with where a job saves there; None: such a machine holds none."""

    def __init__(
        self,
        store: CopyStore,
        limits: Limits,
        home_of: Callable[[JobRecord, Node], Awaitable[Target | None]],
    ) -> None:
        self._store = store
        self._limit = limits.job_mib * MIB
        self._pace = Pace(limits.mib_per_s * MIB)
        self._home_of = home_of
        self._locks: dict[JobId, asyncio.Lock] = {}
        self._nonces: dict[JobId, tuple[int, str]] = {}

    # ---- into the store ----

    async def copy(self, record: JobRecord, at: Target, *, over: bool) -> Copied:
        """The newest finished checkpoint there is in the store afterwards, if there is one and it may be."""
        async with self._locks.setdefault(record.id, asyncio.Lock()):
            while True:
                told = await at.holder.set_aside(record.id, at.spot, over=over, limit=self._limit)
                if told.get("why") != "busy":
                    break
                await asyncio.sleep(BUSY_S)
            if "why" in told:
                return Copied(problem=_problem(record, told))
            manifest = manifest_of(record, told)
            known = await asyncio.to_thread(self._store.manifest, record.id)
            if known is not None and known.files == manifest.files:
                return Copied(manifest=known)
            for file in manifest.files:
                if not await self._fetch(record.id, file, at.holder):
                    return Copied()  # it was written to meanwhile: the next time finds the newer one
            await asyncio.to_thread(self._store.keep, record.id, manifest)
            return Copied(manifest=manifest, new=True)

    async def _fetch(self, job: JobId, file: CopiedFile, holder: Holder) -> bool:
        offset = await asyncio.to_thread(self._store.arrived, job, file)
        if offset >= file.size > 0:
            return True
        while offset < file.size:
            data = await holder.read(job, file.content, offset)
            if not data:
                return False
            await asyncio.to_thread(self._store.add, job, file, offset, data)
            offset += len(data)
            await asyncio.sleep(self._pace.wait_s(len(data)))
        if not file.size:
            await asyncio.to_thread(self._store.add, job, file, 0, b"")
        return await asyncio.to_thread(self._store.seal, job, file)

    async def shared_by(self, record: JobRecord, at: Target, others: Mapping[str, Target]) -> tuple[str, ...]:
        """Machines that see the same directory: a nonce is left through one and read through the others."""
        attempt = record.attempts
        known, nonce = self._nonces.get(record.id, (0, ""))
        if known != attempt:
            nonce = secrets.token_hex(16)
            await at.holder.mark(record.id, at.spot, nonce)
            self._nonces[record.id] = (attempt, nonce)
        looks = await asyncio.gather(*map(_nonce_of(record.id), others.values()))
        return tuple(sorted(name for name, seen in zip(others, looks, strict=True) if seen == nonce))

    # ---- to where it continues ----

    async def bring(self, record: JobRecord, targets: Mapping[str, Target], home: Node | None) -> Brought:
        """Every target has the newest checkpoint afterwards that can be had. `home`: the machine that has its files,
        unless it is gone. Raises OSError if that does not answer now, and `CannotCarry` if they may not be copied."""
        current = {record.files_on, *(record.copy.shared_by if record.copy is not None else ())}
        source = next((target for name, target in targets.items() if name in current), None)
        if source is None and home is not None and home.contact is not Contact.LOST:
            source = await self._home_of(record, home)
        there = await source.holder.look(record.id, source.spot) if source is not None else None
        has_files = bool(there and there["files"])
        behind = [target for name, target in targets.items() if name not in current]
        if has_files and there is not None and there["nonce"]:
            looks = await asyncio.gather(*map(_nonce_of(record.id), behind))
            behind = [target for target, nonce in zip(behind, looks, strict=True) if nonce != there["nonce"]]
        if has_files and source is not None:
            copied = await self._copied_whole(record, source) if behind else None
            await self._deliver(record, behind)
            epoch = epoch_of(record, there["progress"]) if there is not None else None
            further = epoch if epoch is not None and epoch > record.epochs_done else None  # a report was lost
            return Brought(epoch=further, copied=copied)
        return await self._from_the_store(record, targets)

    async def _copied_whole(self, record: JobRecord, source: Target) -> Copied:
        if not record.spec.copy_checkpoints:
            raise CannotCarry(f"its checkpoint stays on {source.node}: it has copy_checkpoints: false")
        while True:
            copied = await self.copy(record, source, over=True)
            if copied.problem:
                raise CannotCarry(f"its checkpoint stays on {source.node}: {copied.problem}")
            if copied.manifest is not None:
                return copied
            await asyncio.sleep(BUSY_S)

    async def _from_the_store(self, record: JobRecord, targets: Mapping[str, Target]) -> Brought:
        """Nobody who can be asked has its files."""
        manifest = await asyncio.to_thread(self._store.manifest, record.id)
        where = f"{record.files_on} has its newer files" if record.files_on else "its files are gone"
        if manifest is None:
            return Brought(epoch=0, why=f"{where}, and there is no copy of them")
        await self._deliver(record, list(targets.values()))
        return Brought(epoch=manifest.epoch, why=f"{where}; the latest copy of its checkpoint is of {manifest.epoch}")

    async def _deliver(self, record: JobRecord, targets: list[Target]) -> None:
        manifest = await asyncio.to_thread(self._store.manifest, record.id) if targets else None
        if manifest is not None:
            await asyncio.gather(*(self._deliver_to(record.id, manifest, target) for target in targets))

    async def _deliver_to(self, job: JobId, manifest: Manifest, target: Target) -> None:
        for file in {file.content: file for file in manifest.files}.values():
            offset = await target.holder.arrived(job, file.content)
            while offset < file.size:
                data = await asyncio.to_thread(self._store.read, job, file, offset)
                digest = file.pieces[offset // PIECE]
                await target.holder.take(job, file.content, offset, digest, data)
                offset += len(data)
                await asyncio.sleep(self._pace.wait_s(len(data)))
        files: list[list[object]] = [[file.path, file.size, file.mode, file.content] for file in manifest.files]
        spot = target.spot if manifest.named else Spot(own=target.spot.own)
        await target.holder.put_in_place(job, spot, files)

    # ---- away ----

    async def jobs(self) -> list[JobId]:
        """Those of which there is a copy, or a part of one."""
        return await asyncio.to_thread(self._store.jobs)

    async def forget(self, job: JobId) -> None:
        self._locks.pop(job, None)
        self._nonces.pop(job, None)
        await asyncio.to_thread(self._store.remove, job)


def _nonce_of(job: JobId) -> Callable[[Target], Awaitable[str]]:
    async def look(target: Target) -> str:
        try:
            return str((await target.holder.look(job, target.spot))["nonce"])
        except OSError:  # it does not answer: it is asked again when it matters
            return ""

    return look


def manifest_of(record: JobRecord, told: Json) -> Manifest:
    """Of what a machine has set aside. How far it is, its files say; where they do not, it is as far as the training
    had reported."""
    assert record.run is not None
    found = epoch_of(record, told["progress"])
    epoch = record.epochs_done if found is None else found
    files = (CopiedFile(path=f[0], size=f[1], mode=f[2], pieces=tuple(f[3])) for f in told["files"])
    return Manifest(epoch=epoch, attempt=record.run.id.attempt, files=tuple(files), named=bool(told["named"]))


def epoch_of(record: JobRecord, progress: list[int] | None) -> int | None:
    """How far files are, in the job's unit; None: they do not say."""
    counted = {"epoch": 0, "step": 1}.get(record.unit)
    return None if progress is None or counted is None else int(progress[counted])


def _problem(record: JobRecord, told: Json) -> str:
    if told["why"] == "large":
        return f"it has {told['bytes'] / MIB:,.0f} MiB, more than `checkpoint_copy_mib` allows"
    if told["why"] == "none" and record.epochs_saved:
        return "it saves outside of its checkpoint directory (SWELL_CHECKPOINT_DIR), from where nothing is copied"
    return ""
