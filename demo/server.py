"""Servers of their own on a free port, for as long as a `with` block runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parent.parent


class ServerProcess:
    """A server in `directory`, where its log is too, with its process group to itself."""

    def __init__(
        self,
        directory: Path,
        log: str,
        port: int,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        descriptors: Collection[int] = (),
    ) -> None:
        self.log = directory / log
        self.port = port
        self.command = command
        paths = [str(directory), str(ROOT), os.environ.get("PYTHONPATH", "")]
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                    "XDG_RUNTIME_DIR": str(directory),  # where gunicorn puts a control socket
                    **(environment or {}),
                },
                stdout=file,
                stderr=file,
                pass_fds=descriptors,
                process_group=0,  # a Ctrl-C is ours to pass on
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends the server by that signal; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Server(ServerProcess):
    """gunicorn with those arguments, executed by the command that comes `before`, if one does.

    Clients may connect at once: the socket listens already, and is gunicorn's from then on. Such a
    server cannot be upgraded by USR2, since its successor would look for the same descriptor; one
    that is `upgradable` makes its socket itself, in its own time.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        upgradable: bool = False,
        before: Sequence[str] = (),
    ) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
            port: int = listener.getsockname()[1]
            bind, descriptors = f"fd://{listener.fileno()}", [listener.fileno()]
            if upgradable:
                bind, descriptors = f"127.0.0.1:{port}", []
                listener.close()
            # Its script: after USR2, `-m gunicorn` would find gunicorn's `http` before Python's.
            script = os.path.join(sysconfig.get_path("scripts"), "gunicorn")
            command = [*before, sys.executable, script, "--bind", bind, *arguments]
            super().__init__(directory, "gunicorn.log", port, command, environment, descriptors)
