"""The first thing that runs on a machine: sent as text to a fixed command, it takes in the rest and becomes the agent.

It may use nothing of this package, and what it says must be understood by any version of the daemon:
{"root", "cluster", "hash"} in, {"need": bool} out, the files as one archive in if they are needed; then the agent
speaks.
"""

import io
import json
import os
import struct
import sys
import tarfile
from typing import Any, Dict, Tuple


def _read(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        sys.exit(0)
    return data


def _take() -> Tuple[Dict[str, Any], bytes]:
    of_text, of_data = struct.unpack(">II", _read(8))
    return json.loads(_read(of_text).decode()), _read(of_data)


def _tell(message: Dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    sys.stdout.buffer.write(struct.pack(">II", len(text), 0) + text)
    sys.stdout.buffer.flush()


def boot() -> None:
    request = _take()[0]
    if sys.version_info < (3, 8):  # noqa: UP036
        _tell({"error": f"Python {sys.version.split()[0]} is too old: 3.8 is needed"})
        return
    try:
        os.umask(0o077)
        cluster = os.path.join(os.path.abspath(os.path.expanduser(request["root"] or "~/.swell")), request["cluster"])
        home = os.path.join(cluster, "agent", request["hash"])
        need = not os.path.isdir(home)
        _tell({"need": need})
        if need:
            fresh = f"{home}.{os.getpid()}"
            with tarfile.open(fileobj=io.BytesIO(_take()[1])) as archive:
                archive.extractall(fresh)  # noqa: S202 - the daemon's own files
            try:
                os.rename(fresh, home)
            except OSError:
                if not os.path.isdir(home):
                    raise
    except OSError as error:
        _tell({"error": f"{error}; Swell needs a directory of its own there"})
        return
    sys.path.insert(0, home)
    from swell.shim import agent

    agent.main(cluster, request)


if __name__ == "__main__":
    boot()
