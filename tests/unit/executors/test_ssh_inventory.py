"""What a machine over SSH has: asked through its agent, together by all who ask at the same time."""

from __future__ import annotations

import asyncio
from typing import cast

from contract.executor_benches import RealClock
from swell.executors.inventory import Ours
from swell.executors.ssh.inventory import FarMachine
from swell.executors.ssh.transport import SshTransport
from swell.executors.transport import Json

GPU: Json = {"index": 0, "uuid": "GPU-0", "name": "A100", "total_mib": 40960, "mig": False, "percent": None}


class SlowDriver:
    """Each reading takes until `finish`."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Semaphore(0)

    async def inventory(self, runtime: str) -> Json:
        self.begun += 1
        used = 9000 if self.begun == 1 else 1  # the first one began while memory was still in use
        await self.go.acquire()
        gpus = [{**GPU, "used_mib": used, "processes": []}]
        return {"cpus": 1, "memory_mib": 1024, "gpus": gpus, "trouble": "", "no_containers": ""}


async def _moments() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_whoever_asks_during_a_reading_shares_the_next_one() -> None:
    """The one under way may have begun before what they want to see."""

    async def play() -> None:
        driver = SlowDriver()
        machine = FarMachine("gpu1", cast(SshTransport, driver), RealClock())
        first = asyncio.create_task(machine.read(Ours()))
        await _moments()
        later = [asyncio.create_task(machine.read(Ours())) for _ in range(7)]
        await _moments()
        assert driver.begun == 1
        driver.go.release()
        await first
        await _moments()
        assert driver.begun == 2
        driver.go.release()
        nodes = await asyncio.gather(*later)
        assert driver.begun == 2
        assert [node.gpus[0].health.value for node in nodes] == ["ok"] * 7

    asyncio.run(play())


def test_a_reading_that_failed_is_made_again_by_the_next_who_asked() -> None:
    class Failing(SlowDriver):
        async def inventory(self, runtime: str) -> Json:
            found = await super().inventory(runtime)
            if self.begun == 2:
                raise OSError("the link was cut")
            return found

    async def play() -> None:
        driver = Failing()
        driver.go = asyncio.Semaphore(9)
        machine = FarMachine("gpu1", cast(SshTransport, driver), RealClock())
        found = await asyncio.gather(*(machine.read(Ours()) for _ in range(3)), return_exceptions=True)
        assert [isinstance(node, OSError) for node in found] == [False, True, False]

    asyncio.run(play())


def test_whether_a_gpu_is_clean_is_read_anew_and_declared_slots_always_are() -> None:
    async def play() -> None:
        driver = SlowDriver()
        machine = FarMachine("gpu1", cast(SshTransport, driver), RealClock())
        assert await machine.clean([0], Ours()), "nothing was ever read: a slot"
        assert driver.begun == 0
        driver.go.release()
        await machine.read(Ours())
        assert await machine.clean([7], Ours()), "of another number than any GPU"
        assert driver.begun == 1
        driver.go.release()
        assert await machine.clean([0], Ours()), "the memory is free by now"
        assert driver.begun == 2

    asyncio.run(play())
