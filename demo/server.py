"""A gunicorn server of its own on a free port, for as long as a `with` block runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parent.parent


class Server:
    """gunicorn with those arguments, in `directory`, where its log is too.

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
    ) -> None:
        self.log = directory / "gunicorn.log"
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = listener.getsockname()[1]
        bind, descriptors = f"fd://{listener.fileno()}", [listener.fileno()]
        if upgradable:
            bind, descriptors = f"127.0.0.1:{self.port}", []
            listener.close()
        paths = [str(directory), str(ROOT), os.environ.get("PYTHONPATH", "")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", "--bind", bind, *arguments],
                cwd=directory,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                    "XDG_RUNTIME_DIR": str(directory),  # where gunicorn puts a control socket
                    **(environment or {}),
                },
                stdout=log,
                stderr=log,
                pass_fds=descriptors,
                process_group=0,  # a Ctrl-C is ours to pass on
            )
        listener.close()

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
