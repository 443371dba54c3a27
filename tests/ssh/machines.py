"""Machines for tests: each a network namespace and a set of process namespaces on this machine, with a sshd of its own.

What a machine has of its own: address, hostname, /etc/hosts, /etc/passwd, home directories (/home), /tmp, /run, pids,
clock since boot, boot id, sshd and host key. What it shares with this machine: the rest of the file system, read with
the rights of its user. Inside, /mnt is the machine's own directory (`Machine.dir` outside); `bin` there is first in
PATH and has an nvidia-smi that reads `gpus.json`.

- Power: `power_off` kills every process at once and silences the link, as a pulled plug would. `power_on` boots again
  with another boot id (a fresh file over /proc/sys/kernel/random/boot_id: read it there) and CLOCK_BOOTTIME near 0.
- Link: `cut` and `mend`. Nothing is refused while it is cut: packets vanish. Delay: `SlowLink`, a relay in front of the
  sshd (netem is not in every kernel): give its address and port to the daemon in place of the machine's.
- sshd: `kill_sshd` ends the listener and all sessions, not what they started; `start_sshd` brings it back.

The user `ada` is an ordinary one; `root` may log in too (for environments that only root can read). `bob` is somebody
else, whose processes `occupy` puts on GPUs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import ROOT, eventually

USERS = {"ada": 21001, "bob": 21002}
PROGRAMS = ("ip", "unshare", "nsenter", "mount", "ssh-keygen")
SSHD = "/usr/sbin/sshd"
PATH = "/mnt/bin:/usr/local/bin:/usr/bin:/bin"
BOOT_S = 20.0


def missing() -> str:
    """Why there can be no machines here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    lacking += [] if Path(SSHD).exists() else ["sshd"]
    if lacking:
        return f"no {', '.join(lacking)} here; `make system-packages` installs openssh-server and iproute2"
    if not any(Path(place, "python3").exists() for place in PATH.split(":")):
        return "no python3 that every user can run"
    tried = f"try{os.getpid()}"
    made = subprocess.run(["ip", "link", "add", tried, "type", "bridge"], capture_output=True, text=True)
    if made.returncode:
        return f"no network bridges here: {made.stderr.strip()}"
    run("ip", "link", "del", tried)
    return ""


def run(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout


@dataclass
class Network:
    """A bridge of its own, in a /24 that nobody else here uses. Removed with everything on it by `close`."""

    number: int
    machines: list[Machine] = field(default_factory=list)

    @property
    def bridge(self) -> str:
        return f"swell{self.number}"

    @property
    def gateway(self) -> str:
        return f"10.77.{self.number}.1"

    def close(self) -> None:
        for machine in self.machines:
            machine.power_off()
            run("ip", "link", "del", machine.link, check=False)
            run("ip", "netns", "del", machine.namespace, check=False)
        run("ip", "link", "del", self.bridge, check=False)


def network() -> Network:
    for number in itertools.islice(itertools.cycle(range(1, 255)), os.getpid() % 254, 1000):
        made = Network(number)
        if subprocess.run(["ip", "link", "add", made.bridge, "type", "bridge"], capture_output=True).returncode:
            _remove_if_left(made)
            continue
        run("ip", "link", "set", made.bridge, "alias", str(os.getpid()))
        run("ip", "addr", "add", f"{made.gateway}/24", "dev", made.bridge)
        run("ip", "link", "set", made.bridge, "up")
        return made
    raise AssertionError("no free bridge")


def _remove_if_left(left: Network) -> None:
    """By a test process that was killed."""
    alias = Path("/sys/class/net", left.bridge, "ifalias")
    with contextlib.suppress(OSError, ValueError):
        if not Path("/proc", str(int(alias.read_text()))).exists():
            for namespace in run("ip", "netns", "list").split():
                if namespace.startswith(f"{left.bridge}-"):
                    run("ip", "netns", "del", namespace, check=False)
            run("ip", "link", "del", left.bridge, check=False)


class Machine:
    """One machine on a network. It is off until `power_on`."""

    def __init__(
        self,
        network: Network,
        directory: Path,
        name: str,
        *,
        gpus: int = 0,
        gpu_type: str = "NVIDIA A100-SXM4-40GB",
        gpu_memory_mib: int = 40960,
        key: Path,
        sshd: Sequence[str] = (),
        shared: Path | None = None,
        mounts: Sequence[str] = (),
    ) -> None:
        """`sshd`: further lines of its configuration. `shared`: a directory that it sees under its path here. `mounts`:
        commands that run as root in its mount namespace at each boot."""
        self.network, self.dir, self.name, self.key = network, directory, name, key
        network.machines.append(self)
        self.number = len(network.machines) + 9
        self.address = f"10.77.{network.number}.{self.number}"
        self.namespace = f"{network.bridge}-{name}"
        self.link = f"sw{network.number}-{self.number}"
        self.shared = shared
        self._outer: subprocess.Popen[bytes] | None = None
        self._occupants: list[subprocess.Popen[bytes]] = []
        self._make_files(sshd, mounts)
        self._make_link()
        self.set_gpus([{"name": gpu_type, "memory.total": gpu_memory_mib} for _ in range(gpus)])

    # -- power, link and sshd

    def power_on(self) -> None:
        (self.dir / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.dir / "sshd-wanted").touch()
        self.mend()
        with (self.dir / "console").open("ab") as console:
            self._outer = subprocess.Popen(
                self._boot_command(), stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        eventually(self._listens, BOOT_S, what=f"sshd of {self.name} listens: {self.console()}")

    def _boot_command(self) -> list[str]:
        since_boot_s = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        spaces = ["--mount", "--uts", "--pid", "--ipc", "--time", "--boottime", str(1 - since_boot_s)]
        process = ["--fork", "--kill-child", "--mount-proc", "sh", "-eu", str(self.dir / "boot")]
        return ["ip", "netns", "exec", self.namespace, "unshare", *spaces, *process]

    def power_off(self) -> None:
        self.cut()
        for occupant in self._occupants:
            occupant.kill()
            occupant.wait()
        self._occupants.clear()
        if self._outer is not None:
            inside = self.processes()
            self._outer.kill()
            self._outer.wait()
            eventually(lambda: not any(map(_lives, inside)), BOOT_S, what=f"{self.name} is off")
        self._outer = None

    def cut(self) -> None:
        run("ip", "link", "set", self.link, "down")

    def mend(self) -> None:
        run("ip", "link", "set", self.link, "up")

    def kill_sshd(self) -> None:
        (self.dir / "sshd-wanted").unlink(missing_ok=True)
        for pid in self.processes():
            if _name_of(pid) == "sshd":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start_sshd(self) -> None:
        (self.dir / "sshd-wanted").touch()
        eventually(self._listens, BOOT_S, what=f"sshd of {self.name} listens: {self.console()}")

    def new_host_key(self) -> None:
        """As after a new installation. Takes effect when sshd is started again."""
        path = self.dir / "etc" / "host_key"
        path.unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))

    # -- looking in

    @property
    def host_key(self) -> str:
        """Type and key, as in known_hosts."""
        return " ".join((self.dir / "etc" / "host_key.pub").read_text().split()[:2])

    @property
    def boot_id(self) -> str:
        return (self.dir / "boot_id").read_text().strip()

    def home(self, user: str = "ada") -> Path:
        return self.dir / "home" / user

    def console(self) -> str:
        path = self.dir / "console"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def init(self) -> int:
        """The machine's pid 1, by its pid here."""
        assert self._outer is not None, f"{self.name} is off"
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        return int(children.read_text().split()[0])

    def processes(self) -> list[int]:
        """Everything that runs on it, by pids here, but its pid 1. Zombies do not count."""
        try:
            init = self.init()
            space = os.readlink(f"/proc/{init}/ns/pid")
        except (OSError, IndexError):
            return []
        return [pid for pid in _pids() if pid != init and _space_of(pid) == space and _lives(pid)]

    def commands(self) -> list[str]:
        """Command lines of everything that runs on it but its init and sshd."""
        lines = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                lines += [argv] if argv and not argv.startswith("sshd") else []
        return lines

    def inside(self, user: str, *argv: str) -> list[str]:
        """The command that runs `argv` on the machine as its user, from here."""
        uid = str(USERS.get(user, 0))
        enter = ["nsenter", "-t", str(self.init()), "-m", "-u", "-i", "-n", "-p", "-T", "-S", uid, "-G", uid]
        return [*enter, "env", f"HOME=/home/{user}", f"PATH={PATH}", *argv]

    def run(self, *argv: str, user: str = "ada") -> str:
        return run(*self.inside(user, *argv))

    # -- GPUs

    def set_gpus(self, gpus: Sequence[Mapping[str, object]], *, driver: bool = True) -> None:
        """Fields as `nvidia-smi --query-gpu` names them; those without a value are [N/A]."""
        made = [{"index": i, "uuid": f"GPU-{self.name}-{i}", "memory.used": 1, **gpu} for i, gpu in enumerate(gpus)]
        self._write_state({"driver": driver, "gpus": made, "apps": []})

    def occupy(self, gpu: int, memory_mib: int = 9000, user: str = "bob") -> None:
        """Somebody else's process is on that GPU until the machine is off or `vacate`."""
        started = subprocess.Popen(
            self.inside(user, "sh", "-c", "echo $$; exec sleep 100000"),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self._occupants.append(started)
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        started.stdout.close()
        state = self._state()
        app = {"gpu_uuid": state["gpus"][gpu]["uuid"], "pid": pid, "used_memory": memory_mib, "process_name": "python"}
        state["gpus"][gpu]["memory.used"] = memory_mib + 1
        self._write_state({**state, "apps": [*state["apps"], app]})

    def vacate(self) -> None:
        for occupant in self._occupants:
            for pid in (occupant.pid, *_children(occupant.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            occupant.wait()
        self._occupants.clear()
        state = self._state()
        self._write_state({**state, "apps": [], "gpus": [{**gpu, "memory.used": 1} for gpu in state["gpus"]]})

    # -- making it

    def _make_files(self, sshd: Sequence[str], mounts: Sequence[str]) -> None:
        for name in ("etc", "bin", "home", "tmp", "shared", "checkout"):
            (self.dir / name).mkdir(parents=True, exist_ok=True)
        self.dir.chmod(0o755)
        (self.dir / "tmp").chmod(0o1777)
        for user, uid in {**USERS, "root": 0}.items():
            self.home(user).mkdir(exist_ok=True)
            os.chown(self.home(user), uid, uid)
        self.new_host_key()
        etc = self.dir / "etc"
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (etc / "passwd").write_text(_passwd())
        (etc / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
        (etc / "sshd_config").write_text("\n".join([*sshd, *_sshd_config(self.address)]) + "\n")
        (self.dir / "boot").write_text(_boot_script(self, mounts))
        smi = self.dir / "bin" / "nvidia-smi"
        smi.write_text(NVIDIA_SMI)
        smi.chmod(0o755)

    def _make_link(self) -> None:
        inside, mac = f"{self.link}i", f"02:77:00:00:{self.network.number:02x}:{self.number:02x}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", inside, "netns", self.namespace)
        run("ip", "link", "set", self.link, "master", self.network.bridge)
        within = ("ip", "-n", self.namespace)
        run(*within, "link", "set", inside, "name", "eth0", "address", mac)
        run(*within, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*within, "link", "set", "eth0", "up")
        run(*within, "link", "set", "lo", "up")
        # A known neighbour: packets to a machine that is cut off vanish, where ARP would report "no route to host".
        run("ip", "neigh", "replace", self.address, "lladdr", mac, "dev", self.network.bridge, "nud", "permanent")

    def _listens(self) -> bool:
        if self._outer is not None and self._outer.poll() is not None:
            raise AssertionError(f"{self.name} did not boot: {self.console()}")
        listening = run("ip", "netns", "exec", self.namespace, "cat", "/proc/net/tcp")
        return any(line.split()[1].endswith(":0016") and line.split()[3] == "0A" for line in listening.splitlines()[1:])

    def _state(self) -> dict[str, list[dict[str, object]]]:
        state: dict[str, list[dict[str, object]]] = json.loads((self.dir / "gpus.json").read_text())
        return state

    def _write_state(self, state: Mapping[str, object]) -> None:
        part = self.dir / "gpus.json.part"
        part.write_text(json.dumps(state))
        part.rename(self.dir / "gpus.json")


def _passwd() -> str:
    lines = [
        line for line in Path("/etc/passwd").read_text().splitlines() if line.split(":")[0] not in {*USERS, "root"}
    ]
    mine = [f"{user}:*:{uid}:{uid}::/home/{user}:/bin/sh" for user, uid in {"root": 0, **USERS}.items()]
    return "\n".join([*mine, *lines]) + "\n"


def _sshd_config(address: str) -> list[str]:
    """The first value of an option counts: what a test gives comes before these."""
    return [
        f"ListenAddress {address}",
        "HostKey /mnt/etc/host_key",
        "AuthorizedKeysFile /mnt/etc/authorized_keys",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "AllowTcpForwarding no",
        "AllowAgentForwarding no",
        "PermitRootLogin prohibit-password",
        "MaxStartups 100",
        "UseDNS no",
        "PrintMotd no",
        f"SetEnv PATH={PATH}",
    ]


def _boot_script(machine: Machine, mounts: Sequence[str]) -> str:
    """Pid 1 of the machine. The shell waits for any child, so that it reaps orphans."""
    kept = {"shared": machine.shared} if machine.shared else {}
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/home"):
        kept["checkout"] = ROOT  # with the environment of PyTorch; the machine's own /tmp or /home would hide it
    return "\n".join(
        [
            f"hostname {machine.name}",
            "mount --make-rprivate /",
            f"mount --bind '{machine.dir}' /mnt",
            *(f"mount --bind '{path}' /mnt/{name}" for name, path in kept.items()),
            "mount --bind /mnt/home /home",
            "mount --bind /mnt/tmp /tmp",
            *(f"mkdir -p '{path}' && mount --bind /mnt/{name} '{path}'" for name, path in kept.items()),
            "mount --bind /mnt/etc/hosts /etc/hosts",
            "mount --bind /mnt/etc/passwd /etc/passwd",
            "mount --bind /mnt/boot_id /proc/sys/kernel/random/boot_id",
            "mount -t tmpfs none /run",
            "mkdir -m 755 /run/sshd",
            *mounts,
            "cd /",
            "while :; do",
            f"  {SSHD} -D -e -f /mnt/etc/sshd_config || :",
            "  until [ -e /mnt/sshd-wanted ]; do sleep 0.1; done",
            "done",
        ]
    )


NVIDIA_SMI = """#!/usr/bin/env -S python3 -IS
import json, sys
state = json.load(open("/mnt/gpus.json"))
if not state["driver"]:
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    sys.exit(9)
options = dict(argument.lstrip("-").partition("=")[::2] for argument in sys.argv[1:])
rows = state["apps"] if "query-compute-apps" in options else state["gpus"]
fields = options.get("query-gpu") or options.get("query-compute-apps")
if not fields:
    print("\\n".join("GPU %d: %s (UUID: %s)" % (g["index"], g["name"], g["uuid"]) for g in state["gpus"]))
    sys.exit(0)
wanted = options.get("format", "csv")
unit = "" if "nounits" in wanted else " MiB"
if "noheader" not in wanted:
    print(", ".join(fields.split(",")))
for row in rows:
    cells = [(field.strip(), row.get(field.strip(), "[N/A]")) for field in fields.split(",")]
    print(", ".join(str(v) + (unit if k.endswith("memory") or k.startswith("memory.") else "") for k, v in cells))
"""


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _space_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
