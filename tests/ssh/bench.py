"""The executor suite's world on a machine of its own, through an agent over a real sshd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contract.executor_benches import AgentBench
from ssh import machines
from ssh.machines import Machine
from swell.core.resources import Ssh
from swell.executors.ssh.transport import Dial, over_ssh


@contextmanager
def new_machines(directory: Path) -> Iterator[Callable[..., Machine]]:
    """Make machines and switch them on: all see `directory` under its path here, and are gone at the end."""
    key = directory / "id_ed25519"
    machines.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    network = machines.network()

    def new(name: str, **options: Any) -> Machine:
        made = Machine(network, directory / f"machine-{name}", name, key=key, shared=directory, **options)
        made.power_on()
        return made

    try:
        yield new
    finally:
        network.close()


def dial_to(machine: Machine) -> Dial:
    return over_ssh(
        Ssh(host=machine.address, user="root", key_file=str(machine.key), host_key=machine.host_key, root="")
    )


class SshBench(AgentBench):
    """`home` has one path on the machine and here."""

    def __init__(self, home: Path, machine: Machine) -> None:
        super().__init__(home)
        self.machine = machine

    def dial(self) -> Dial:
        return dial_to(self.machine)
