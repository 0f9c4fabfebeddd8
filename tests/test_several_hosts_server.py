"""Several hosts with one limit, counted by one DNS name: together they admit the limit, and not
more, also after one of them is gone."""

from __future__ import annotations

import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.server import ROOT
from shmlimit.lock import EXCLUSIVE, USERS_BYTE, opened, try_lock
from shmlimit.segment_name import DIRECTORY
from tests.dns_server import NOTHING, DnsServer, a, dns_server
from tests.network import GATEWAY, address, inside, network, why_not
from tests.servers import wait_until

RATE, BURST = 900, 450  # a second, at once; of all hosts
HOSTS = 3
OFFERED = RATE  # a second, by each host: three times the limit in all
PHASE_S = 2.5
TTL_S, SETTLE_S = 1, 0.5
NAME = "web.test"
PATIENCE_S = 10  # of a busy machine, beyond what is promised


@dataclass(frozen=True)
class Admission:
    before_ns: int
    after_ns: int
    hosts: int  # in force then


@dataclass
class Host:
    process: subprocess.Popen[str]
    out: Path

    def admissions(self) -> list[Admission]:
        """So far. A line that is not whole yet, or never will be, is none."""
        lines = self.out.read_text().splitlines(keepends=True) if self.out.exists() else []
        return [Admission(*map(int, line.split())) for line in lines if line.endswith("\n")]


Before = Callable[[int], list[str]]
"""What comes before the command of a host."""


@contextmanager
def offering(
    directory: Path, configs: list[Path], hosts: int, before: Before = lambda _: []
) -> Iterator[list[Host]]:
    """Hosts that have begun, `hosts` in the eyes of each."""
    with ExitStack() as stack:
        started = []
        for host, config in enumerate(configs):
            out = directory / f"admitted-{host}"
            program = [sys.executable, "-m", "tests.offering", config, out, OFFERED, hosts]
            process = subprocess.Popen(
                [*before(host), *map(str, program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            stack.callback(process.wait, 30)
            stack.callback(process.kill)
            started.append(Host(process, out))
        for each in started:
            assert each.process.stdout is not None
            assert each.process.stdout.readline() == "ready\n"
        for each in started:
            assert each.process.stdin is not None
            each.process.stdin.write("go\n")
            each.process.stdin.flush()
        yield started


def write_config(directory: Path, name: str, hosts: str) -> Path:
    path = directory / f"{name}.toml"
    path.write_text(
        f'[table]\nname = "{name}"\nkeys = 100\n'
        f'[limits.all]\nrate = "{RATE}/s burst {BURST}"\n[hosts]\n{hosts}\n'
    )
    return path


def counted_by(server: DnsServer) -> str:
    return (
        f'source = "dns:{NAME}"\nnameservers = ["{server.address}"]\nmin_ttl = "100ms"\n'
        f'settle = "{SETTLE_S}s"\nfallback = {HOSTS + 2}'
    )


def say(server: DnsServer, hosts: int) -> None:
    server.say(NAME, "A", a(*map(address, range(hosts)), ttl_s=TTL_S))
    server.say(NAME, "AAAA", NOTHING)


def most_in_excess(admissions: list[Admission]) -> float:
    """By how much more was admitted in some window than the rate gives for its length: what a burst
    has to cover. Windows begin just before an admission and end just after one."""
    begins = sorted(each.before_ns for each in admissions)
    ends = sorted(each.after_ns for each in admissions)
    cells_a_ns = RATE / 1e9
    begun, best, most = 0, float("-inf"), 0.0
    for ended, end_ns in enumerate(ends, start=1):
        while begun < len(begins) and begins[begun] <= end_ns:
            best = max(best, cells_a_ns * begins[begun] - begun)
            begun += 1
        most = max(most, ended + best - cells_a_ns * end_ns)
    return most


def admitted(hosts: list[Host], begin_ns: int, end_ns: int) -> int:
    ends = sorted(each.after_ns for host in hosts for each in host.admissions())
    return bisect_left(ends, end_ns) - bisect_left(ends, begin_ns)


def sleep_until(ns: float) -> None:
    wait_until(lambda: time.monotonic_ns() >= ns)


def check_of_hosts(hosts: list[Host], server: DnsServer) -> None:
    """All of them, and then two of them, make up the whole."""
    begin_ns = time.monotonic_ns()
    sleep_until(begin_ns + PHASE_S * 1e9)
    say(server, HOSTS - 1)
    gone_ns = time.monotonic_ns()
    hosts[2].process.kill()
    passed, most = admitted(hosts, 0, gone_ns), BURST + RATE * (gone_ns - begin_ns) / 1e9
    assert passed >= 0.99 * most, "what the limit allows is used"

    def follows(host: Host) -> bool:
        return host.admissions()[-1].hosts == HOSTS - 1

    wait_until(lambda: all(follows(host) for host in hosts[:2]))
    followed_ns = [
        next(each.after_ns for each in host.admissions() if each.hosts == HOSTS - 1)
        for host in hosts[:2]
    ]
    assert min(followed_ns) - gone_ns >= SETTLE_S * 1e9, "a smaller count has to prove itself"
    assert max(followed_ns) - gone_ns <= (TTL_S + SETTLE_S + PATIENCE_S) * 1e9
    since_ns = max(followed_ns)
    sleep_until(since_ns + PHASE_S * 1e9)
    end_ns = time.monotonic_ns()
    wait_until(lambda: all(host.admissions()[-1].after_ns >= end_ns for host in hosts[:2]))
    made_up = admitted(hosts[:2], since_ns, end_ns)
    whole = RATE * (end_ns - since_ns) / 1e9
    assert made_up >= 0.99 * whole, "two make up the whole"

    everything = [each for host in hosts for each in host.admissions()]
    print(f"{passed=} of {most:.0f}, {made_up=} of {whole:.0f}; {most_in_excess(everything)=:.0f}")
    before = [each for each in everything if each.after_ns < min(followed_ns)]
    assert most_in_excess(before) <= BURST
    freed = BURST * (1 - (HOSTS - 1) / HOSTS)  # by a host that leaves at once
    assert most_in_excess(everything) <= BURST + freed


def in_use(segment: str) -> bool:
    with opened(segment) as descriptor:
        return not try_lock(descriptor, USERS_BYTE, EXCLUSIVE)


def remove_left(names: list[str]) -> None:
    """Hosts that were killed leave their segments; their agents leave by themselves."""
    for name in names:
        for path in Path(DIRECTORY).glob(f"shmlimit.*.{name}"):
            wait_until(lambda path=path: not in_use(str(path)))  # type: ignore[misc]
            path.unlink()


def test_three_tables_are_one_limit_and_two_are_when_one_is_gone(
    segment_name: str, tmp_path: Path
) -> None:
    names = [f"{segment_name}-{host}" for host in range(HOSTS)]
    with dns_server() as server:
        say(server, HOSTS)
        configs = [write_config(tmp_path, name, counted_by(server)) for name in names]
        try:
            with offering(tmp_path, configs, HOSTS) as hosts:
                check_of_hosts(hosts, server)
        finally:
            remove_left(names)


def test_hosts_with_a_network_and_memory_of_their_own(segment_name: str, tmp_path: Path) -> None:
    reason = why_not(segment_name)
    if reason is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        net = stack.enter_context(network(segment_name, HOSTS))
        with inside(net.switch):
            server = stack.enter_context(dns_server(host=GATEWAY))
        say(server, HOSTS)
        config = write_config(tmp_path, segment_name, counted_by(server))
        with offering(tmp_path, [config] * HOSTS, HOSTS, net.command) as hosts:
            check_of_hosts(hosts, server)


def test_hosts_that_each_count_one_exceed_the_limit(segment_name: str, tmp_path: Path) -> None:
    """What the two tests above would see of hosts that did not share."""
    names = [f"{segment_name}-{host}" for host in range(HOSTS)]
    configs = [write_config(tmp_path, name, 'source = "static:1"') for name in names]
    try:
        with offering(tmp_path, configs, 1) as hosts:
            wait_until(lambda: all(len(host.admissions()) > BURST for host in hosts))
            everything = [each for host in hosts for each in host.admissions()]
    finally:
        remove_left(names)
    assert most_in_excess(everything) > 2 * BURST
