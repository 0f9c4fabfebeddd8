"""The demo: 4 workers, far more requests than the limit allows, a worker killed in the middle.

python -m demo              the bound holds: exit status 0
python -m demo --broken     the control: each worker limits by itself, as limiters in a worker's
                            memory do, and 4 workers admit more than the limit: exit status 1
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from demo.clients import NO_ANSWER, NS_PER_S, Clients, ask
from demo.report import Run, report
from demo.server import Server
from shmlimit import Config, Limiter

WORKERS = 4
OVERLOAD = 4  # times the limit's rate is offered
START_S = 30.0
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="A limit under load.")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load; 6 unless given")
    parser.add_argument("--broken", action="store_true", help="a limiter for each worker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shmlimit-demo-") as directory:
        return run(Path(directory), arguments.seconds, arguments.broken)


def run(directory: Path, seconds: float, broken: bool) -> int:
    """Starts the server, loads it, kills a worker, reports. The exit status."""
    file = directory / "shmlimit.toml"
    text = (HERE / "shmlimit.toml").read_text()
    file.write_text(text.replace('"demo"', f'"demo-{os.getpid()}"'))  # this run's own table
    (rate,) = Config.load(file).limits[0].rates
    environment = {"SHMLIMIT_CONFIG": str(file), **({"DEMO_BROKEN": "1"} if broken else {})}
    hooks = ("-c", "python:gunicorn_hooks", "--workers", str(WORKERS), "demo.app:app")
    print(f"{WORKERS} gunicorn workers under load, all together limited to {rate} …\n", flush=True)
    with Server(directory, *hooks, environment=environment) as server:
        if not _is_up(server):
            sys.exit(f"the server did not start; its log:\n{server.log.read_text()}")
        with Limiter.from_config(file) as limiter:  # attached by name, as any process may
            clients = Clients(server.port, OVERLOAD * rate.count * NS_PER_S // rate.period_ns)
            with clients:
                time.sleep(seconds / 2)
                worker, killed_ns = _kill_a_worker(clients)
                time.sleep(seconds / 2)
            return report(Run(limiter, rate, clients, worker, killed_ns, WORKERS, broken))


def _is_up(server: Server) -> bool:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and server.process.poll() is None:
        if ask(server.port).status != NO_ANSWER:
            return True
    return False


def _kill_a_worker(clients: Clients) -> tuple[int, int]:
    """Kills the worker that admitted a request last: its pid, and when it was killed."""
    worker = next(answer.worker for answer in reversed(clients.answers) if answer.worker)
    killed_ns = time.monotonic_ns()
    os.kill(worker, signal.SIGKILL)
    return worker, killed_ns


if __name__ == "__main__":
    sys.exit(main())
