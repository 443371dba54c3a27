"""Where Swell keeps its things on this machine, and the one way to write and read what must stay private there.

Stdlib only: the command line finds its daemon through this file."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from swell.core.errors import SwellError

ADDRESS_NAME = "daemon.json"
ACTIVE_NAME = "active.json"
TOKEN_NAME = "token"  # noqa: S105 - the name of a file
METRICS_TOKEN_NAME = "metrics-token"  # noqa: S105 - the name of a file
PORT_NAME = "port"
TLS_PORT_NAME = "tls-port"
TLS_CERTIFICATE_NAME = "tls.crt"
TLS_KEY_NAME = "tls.key"
LOGIN_NAME = "login.json"
HOOKS_NAME = "hooks.json"
SLOTS_NAME = "slots"
AUDIT_NAME = "audit.jsonl"
REFUSED_NAME = "audit-refused.jsonl"
LOCK_NAME = "daemon.lock"
LOG_NAME = "daemon.log"
OUTPUT_NAME = "serve.out"
DATABASE_NAME = "swell.db"
STATE_NAMES = (
    ADDRESS_NAME,
    ACTIVE_NAME,
    TOKEN_NAME,
    METRICS_TOKEN_NAME,
    PORT_NAME,
    TLS_PORT_NAME,
    TLS_CERTIFICATE_NAME,
    TLS_KEY_NAME,
    SLOTS_NAME,
    LOCK_NAME,
    LOG_NAME,
    OUTPUT_NAME,
    DATABASE_NAME,
    HOOKS_NAME,
    AUDIT_NAME,
    REFUSED_NAME,
    "last-job",
)
"""Files that the daemon writes directly into its home."""
MIN_TOKEN = 32
"""Characters. What Swell makes has 64."""
_TOKEN = re.compile(rf"[!-~]{{{MIN_TOKEN},}}")


class HomeRefused(SwellError):
    """The home directory or a file in it is not safe to use; the message names it and says what to do."""


def default_home() -> Path:
    return Path(os.environ.get("SWELL_HOME") or Path.home() / ".swell")


def make_directory(path: Path) -> None:
    """Make a private directory if there is none; refuse one that other users own or may write to."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise HomeRefused(f"{path} is no directory; name one with --home or SWELL_HOME") from error
    except OSError as error:
        raise HomeRefused(
            f"the directory {path} cannot be made ({error.strerror}); name one that you may write to, with --home or "
            "SWELL_HOME"
        ) from error
    check_directory(path)


def check_directory(path: Path) -> None:
    found = path.stat()
    _check_owner(path, found)
    if found.st_mode & 0o022:
        raise HomeRefused(
            f"other users may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}), and so run commands as you; "
            f"look whether anything in it is not yours, then run `chmod go-w {path}` and start again"
        )


def check_state_files(home: Path) -> None:
    """A link in place of a state file would make the daemon write to wherever it points."""
    for name in STATE_NAMES:
        path = home / name
        with contextlib.suppress(FileNotFoundError):
            _check_file(path, path.lstat())


def check_socket(path: str) -> None:
    """A Unix socket for other users lies where only we can put another in its place. Empty: there is none."""
    if not path:
        return
    folder = Path(path).parent
    if not Path(path).is_absolute() or not folder.is_dir():
        raise HomeRefused(
            f"the socket {path} needs the absolute path of a directory that is there; make it, owned by you"
        )
    check_directory(folder)
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise HomeRefused(f"{path} is there and no socket; remove it, or name another `socket`")


def write_private(path: Path, text: str) -> None:
    """Whole and on disk when it returns, for our user only; before that, and if it fails, what was there before.

    For one writer at a time: the daemon that holds the home."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # of a start that was killed
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def kept_slots(home: Path) -> int | None:
    """How many slots were declared last; None: none were, or what is written there is no number."""
    try:
        return int((home / SLOTS_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def keep_slots(home: Path, gpus: int | None) -> None:
    """Remember a declaration for later starts; None forgets it."""
    if gpus is None:
        (home / SLOTS_NAME).unlink(missing_ok=True)
    elif gpus != kept_slots(home):
        write_private(home / SLOTS_NAME, str(gpus))


def open_private(path: Path) -> int:
    """A descriptor for writing at the end of a file of ours that is no link, made if it is not there."""
    with _named(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _check_file(path, os.fstat(fd))
    except HomeRefused:
        os.close(fd)
        raise
    return fd


def token_of(path: Path) -> str:
    """The daemon's secret, made at the first start. Refuses one that anybody could know or guess."""
    if not os.path.lexists(path):
        write_private(path, os.urandom(32).hex())
    return read_token(path)


def read_token(path: Path) -> str:
    with _named(path):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        _check_file(path, found)
        if found.st_mode & 0o077:
            raise HomeRefused(
                f"the token in {path} can be read or changed by other users (mode {stat.S_IMODE(found.st_mode):04o}); "
                f"if nobody has, run `chmod 600 {path}`, else delete it, and start again"
            )
        text = file.read().decode(errors="replace").strip()
    if not is_token(text):
        raise HomeRefused(
            f"the token in {path} {_defect(text)}; delete the file (`rm {path}`): the next start makes a new one"
        )
    return text


def is_token(text: str) -> bool:
    """Long enough that nobody guesses it, and of characters that a header can carry."""
    return _TOKEN.fullmatch(text) is not None


def _defect(text: str) -> str:
    if not text:
        return "is empty, perhaps since a disk was full"
    if len(text) < MIN_TOKEN:
        return f"has {len(text)} characters, fewer than the {MIN_TOKEN} that make it hard to guess"
    return "has characters other than printable ASCII without spaces, which no request can carry"


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """What O_NOFOLLOW refuses has a name of its own; other errors name the file themselves."""
    try:
        yield
    except OSError:
        if path.is_symlink():
            _check_file(path, path.lstat())
        raise


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = f"a link to {path.readlink()}" if path.is_symlink() else "not a plain file"
        raise HomeRefused(f"{path} is {what}; put a plain file in its place, or remove it, and start again")
    _check_owner(path, found)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise HomeRefused(
            f"{path} belongs to user {found.st_uid}, and the daemon runs as user {os.geteuid()}; "
            f"run it as its owner, or give the files to this user (`chown -R {os.geteuid()} …`)"
        )


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
