"""Holds the container of one worker: makes sure of its image, runs it to its end, and is rid of it. Standard library
only; called by the shim in the child that would otherwise become the worker's program, and by whoever sweeps.

Files in the worker's directory, beside the shim's: `env` (0600), `pid` (of the container's first process), `preparing`
and `pull` (while its image is fetched: what the runtime prints), `container.json` (how it ended).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat as modes
import subprocess
import time
from collections.abc import Iterator, Mapping

from swell.shim import container_argv as argv_of
from swell.shim.files import Json, boot_s, cause_in, create, touch, write_whole
from swell.shim.processes import send, stat_of
from swell.shim.relay import Relay

CALL_S = 60.0
"""A runtime that takes longer to answer a query counts as not answering."""
POLL_S = 0.02
SETTLE_S = 5.0
"""A runtime has so long to notice that a container has ended."""
LOST = {"step": "lost", "said": "the container's monitor was killed; no exit code is known"}
_SEARCHED = ("podman", "docker")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Failed(Exception):
    """The container could not be started: `failed` has the step, and the runtime's message as `said`."""

    def __init__(self, **failed: object) -> None:
        super().__init__(str(failed.get("said", "")))
        self.failed: Json = dict(failed)


# ---- in the worker's place ----


def hold(request: Json, directory: str, mark: str, started: int) -> int:
    """Run the container to its end: its exit code. `started` is closed once it runs; else it takes why not."""
    held = Held(request, directory, mark, started)
    try:
        return held.run()
    except Failed as error:
        held.report(error.failed)
        return 127
    except OSError as error:
        held.report({"step": "runtime", "errno": error.errno, "said": str(error), "image": held.image})
        return 127


class Held:
    """One container, from its image to its end."""

    def __init__(self, request: Json, directory: str, mark: str, started: int) -> None:
        self.request = request
        self.container: Json = request["container"]
        self.directory = directory
        self.mark = mark
        self.started = started
        self.env = runtime_env(request)

    def run(self) -> int:
        self.program = program_of(self.container, self.env)
        sources = allowed_sources(self.container["sources"], self.env)
        self.container["mounts"] = [checked(mount, sources) for mount in self.container["mounts"]]
        relay = Relay(self.container["ports"])
        self._write_env()
        self._have_image()
        relay.start(self.started)
        own = (self.directory, os.getuid(), os.getgid())
        argv = argv_of.run_argv(self.program, self.container, self.request["argv"], *own)
        process = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL)
        self._until_up(process)
        self._is_up()
        lost = self._while_it_has_its_gpus(process)
        return self._tell(self._end(process.returncode), lost)

    @property
    def image(self) -> str:
        return str(self.container["image"])

    def report(self, failed: Json) -> None:
        """Why it never ran. Once it does, what becomes of it is in its own record."""
        if self.started >= 0:
            os.write(self.started, json.dumps({"errno": None, **failed}).encode()[:4000])

    def _is_up(self) -> None:
        os.close(self.started)
        self.started = -1

    def _write_env(self) -> None:
        inside = {**self.request["env"], "SWELL_RUN": self.request["run"], "SWELL_MARK": self.mark}
        try:
            write_whole(self.directory, "env", argv_of.env_file(inside))
        except ValueError as error:
            raise Failed(step="setup", said=str(error)) from None

    # -- the image --

    def _have_image(self) -> None:
        """Pulled if it is not there: by one run per node at a time, so that two with the same image pull it once."""
        platform = self._image()
        if platform is None:
            touch(self.directory, "preparing")
            with _pull_lock(self.directory, self.container["image"]):
                platform = self._image() or self._pull()
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, "preparing"))
        here = argv_of.platform_of(os.uname().machine)
        if platform not in (here, "/", ""):
            raise Failed(step="architecture", said=f"it is for {platform}, the machine is {here}", image=self.image)

    def _image(self) -> str | None:
        code, said = call(argv_of.image_argv(self.program, self.image), self.env)
        if code == 0:
            return said.strip()
        if argv_of.is_docker(self.program) and "cannot connect" in said.lower():
            raise Failed(step="runtime", said=said[-500:], image=self.image)
        return None

    def _pull(self) -> str:
        shown = create(self.directory, "pull", os.O_WRONLY | os.O_TRUNC)
        try:
            argv = argv_of.pull_argv(self.program, self.image)
            with subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=shown, stderr=shown) as pulling:
                try:
                    code = pulling.wait(self.container["pull_timeout_s"])
                except subprocess.TimeoutExpired:
                    pulling.kill()
                    code = None
        finally:
            os.close(shown)
        if code is None:
            said = f"not here after {self.container['pull_timeout_s']:g} s"
            raise Failed(step="registry", said=said, image=self.image)
        platform = self._image() if code == 0 else None
        if platform is None:
            said = cause_in(os.path.join(self.directory, "pull"), [])
            raise Failed(**argv_of.pull_failure_of(said, self.image))
        return platform

    # -- the container --

    def _until_up(self, process: subprocess.Popen[bytes]) -> None:
        """Returns once the container runs, or ran."""
        look = self._docker_began if argv_of.is_docker(self.program) else self._pid
        while process.poll() is None:
            if look():
                return
            time.sleep(POLL_S)
        if _began(self.state()):
            return
        if process.returncode < 0:  # the runtime was killed meanwhile
            raise Failed(**LOST)
        said = cause_in(os.path.join(self.directory, "log"), [])
        raise Failed(**argv_of.failure_of(process.returncode, said, self.image, self.request["argv"][0]))

    def _while_it_has_its_gpus(self, process: subprocess.Popen[bytes]) -> str:
        """Until it has ended. A reload of the machine's init, or a driver that was updated, takes a container's GPUs
        away for good: then it is ended here, and the driver's message is returned."""
        every_s = self.container["gpu_probe_s"] if self.container["gpus"]["vendor"] == "nvidia" else None
        while True:
            try:
                process.wait(every_s)
                return ""
            except subprocess.TimeoutExpired:
                answer = call(argv_of.probe_argv(self.program, self.container["name"]), self.env)
                if message := argv_of.gpus_lost(*answer):
                    call(argv_of.kill_argv(self.program, self.container["name"]), self.env)
                    process.wait()
                    return message

    def _docker_began(self) -> bool:
        time.sleep(10 * POLL_S)
        return _began(self.state())

    def _end(self, code: int) -> Json:
        """The runtime's client has ended. If it was killed the container goes on, and its end is waited for."""
        if argv_of.tells_the_end(self.program, code):
            return {"Status": "exited", "ExitCode": code}
        give_up_s = 0.0
        while _status(state := self.state()) != "exited":
            if _status(state) == "running" and (argv_of.is_docker(self.program) or _is_alive(self._pid())):
                give_up_s = 0.0
            elif not give_up_s:
                give_up_s = boot_s() + SETTLE_S
            elif boot_s() > give_up_s:
                break
            time.sleep(10 * POLL_S)
        return state

    def _pid(self) -> int:
        try:
            with open(os.path.join(self.directory, "pid"), encoding="ascii") as file:
                return int(file.read() or 0)
        except (OSError, ValueError):
            return 0

    def state(self) -> Json:
        """What the runtime knows of it; empty: nothing."""
        code, said = call(argv_of.state_argv(self.program, self.container["name"]), self.env)
        try:
            found = json.loads(said) if code == 0 else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _tell(self, state: Json, lost_gpus: str = "") -> int:
        exited = _status(state) == "exited" and state.get("ExitCode", -1) >= 0
        found = {"code": state["ExitCode"] if exited else None, "oom": bool(state.get("OOMKilled"))}
        ended = {**found, "lost": not exited, "lost_gpus": lost_gpus}
        write_whole(self.directory, "container.json", json.dumps(ended).encode())
        return int(found["code"] or 0)


def _status(state: Json) -> str:
    return str(state.get("Status", ""))


def _began(state: Json) -> bool:
    return not str(state.get("StartedAt", "0001")).startswith("0001")


def _is_alive(pid: int) -> bool:
    stat = stat_of(pid) if pid else None
    return stat is not None and stat.alive


@contextlib.contextmanager
def _pull_lock(directory: str, image: str) -> Iterator[None]:
    """Of this image, on this node. A file beside the runs: the system drops the lock if its holder is killed."""
    runs = os.path.dirname(os.path.dirname(directory))
    fd = create(runs, ".pull-" + hashlib.sha256(image.encode()).hexdigest()[:16], os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# ---- mounts ----


def allowed_sources(sources: list[str], env: dict[str, str]) -> list[str]:
    """As they really are; `~` is the home of whoever the daemon runs as."""
    home = env.get("HOME") or os.path.expanduser("~")
    return [os.path.realpath(home + top[1:] if top == "~" or top.startswith("~/") else top) for top in sources]


def checked(mount: Json, sources: list[str]) -> Json:
    """The mount with its source as it really is. What is not below one of `sources`, or no file or directory, fails.

    Links are followed here once, and what they lead to is mounted: changing a link later changes nothing."""
    if "make" in mount:
        _make(mount)
        return mount
    source = os.path.realpath(mount["source"])
    if not any(source == top or source.startswith(top.rstrip("/") + "/") for top in sources):
        leads = "" if source == os.path.normpath(mount["source"]) else f" leads to {source}, which"
        where = ", ".join(sources) or "nothing"
        raise Failed(step="mount", said=f"{mount['source']}{leads} is outside of what may be mounted here ({where})")
    try:
        kind = os.stat(source).st_mode
    except OSError as error:
        raise Failed(step="mount", said=f"{mount['source']}: {error.strerror}") from None
    if not (modes.S_ISDIR(kind) or modes.S_ISREG(kind)):
        raise Failed(
            step="mount", said=f"{mount['source']} is a device, pipe or socket; only files and directories are mounted"
        )
    if any(character in source for character in ',:"\\') or not source.isprintable():
        raise Failed(step="mount", said=f"{source!r} has a character that container runtimes read as something else")
    return {**mount, "source": source}


def _make(mount: Json) -> None:
    """Ours: they are there before the container, and belong to the user rather than to whoever runs the runtime."""
    if mount["make"] == "directory":
        os.makedirs(mount["source"], mode=0o700, exist_ok=True)
    elif mount["make"] == "file":
        os.close(os.open(mount["source"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


# ---- for the shim ----


def runtime_env(request: Json) -> dict[str, str]:
    """The environment of the runtime itself: the machine's, without the job's."""
    base: dict[str, str] = dict(request.get("runtime_env", {}))
    path = base.get("PATH", "")
    return {**base, "PATH": f"{path}:{_PATH}" if path else _PATH}


def program_of(container: Json, env: dict[str, str]) -> str:
    names = [container["runtime"]] if container["runtime"] else _SEARCHED
    for name in names:
        if found := shutil.which(name, path=env["PATH"]):
            return found
    wanted = " or ".join(names)
    raise Failed(step="missing", said=f"there is no {wanted}", image=container["image"])


def why_none(runtime: str, environ: Mapping[str, str]) -> str:
    """Why this machine runs no containers, for people; empty: it has the runtime, or one of those that are known."""
    try:
        program_of({"runtime": runtime, "image": ""}, runtime_env({"runtime_env": dict(environ)}))
    except Failed as error:
        return f"{error} on it"
    return ""


def call(argv: list[str], env: dict[str, str], within_s: float = CALL_S) -> tuple[int, str]:
    """Ask the runtime: its exit code and what it printed. -1: it did not answer in time, or could not be started."""
    blocked = bool(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=False,
            preexec_fn=_unblock if blocked else None,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return -1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def remove(request: Json | None, within_s: float = CALL_S) -> bool:
    """Be rid of the worker's container. True: there is none (any more)."""
    container = (request or {}).get("container")
    if not request or not container:
        return True
    env = runtime_env(request)
    try:
        program = program_of(container, env)
    except Failed:
        return True
    code, said = call(argv_of.remove_argv(program, container["name"]), env, within_s)
    return code == 0 or "no such container" in said.lower()


def preparing(directory: str) -> str:
    """What the runtime last printed about the image that it pulls; empty: it pulls none."""
    if not os.path.exists(os.path.join(directory, "preparing")):
        return ""
    return cause_in(os.path.join(directory, "pull"), []) or "another run fetches the same image"


def terminate(members: dict[int, int]) -> bool:
    """SIGTERM to what runs inside, as the processes of a worker without a container get it; the runtime's own helpers
    are left to bring the end home. False: nothing runs inside yet.

    The first process of a container is not ended by a SIGTERM that it does not handle. Any other would be."""
    here = _namespace(os.getpid())
    inside = {pid: start for pid, start in members.items() if _namespace(pid) not in ("", here)}
    for pid, start in inside.items():
        send(pid, start, signal.SIGKILL if _is_deaf(pid) else signal.SIGTERM)
    return bool(inside)


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _is_deaf(pid: int) -> bool:
    """The first process of its namespace, that neither handles SIGTERM nor has chosen to ignore it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        first = facts["NSpid"].split()[-1] == "1"
        bit = 1 << (signal.SIGTERM - 1)
        return first and not (int(facts["SigCgt"], 16) | int(facts["SigIgn"], 16)) & bit
    except (OSError, KeyError, ValueError):
        return False


def outcome(directory: str, record: Json) -> Json:
    """The exit record with what the runtime knows of the end of the container. Without a word of it (what held it was
    killed) nothing is known: that is no failure of the job."""
    if record["failed"] or record["asked"]:
        return record
    try:
        with open(os.path.join(directory, "container.json"), "rb") as file:
            ended = json.loads(file.read())
    except (OSError, ValueError):
        ended = {"lost": True}
    if ended.get("lost_gpus"):
        failed = {"step": "gpus", "said": ended["lost_gpus"], "errno": None}
        return {**record, "code": None, "signal": None, "failed": failed}
    if ended["lost"]:
        return {**record, "code": None, "signal": None, "failed": {**LOST, "errno": None}}
    code = ended["code"]
    by_signal = code - 128 if 128 < code < 128 + signal.NSIG else None
    killed = by_signal == signal.SIGKILL
    oom = killed and (ended["oom"] or record["oom"])
    return {**record, "code": None if by_signal else code, "signal": by_signal, "oom": oom}
