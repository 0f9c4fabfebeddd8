"""A real server under load while the file that counts its hosts changes in every way there is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from demo.clients import Clients
from shmlimit import Limiter
from tests.agents import beats
from tests.servers import HOOKS, config_file, running, wait_until
from tests.share_meter import Phase, ShareMeter

RATE, BURST = 300, 60  # a second, at once
OFFERED = 420  # a second
WORKERS = 2
PHASE_S = 0.9 * int(os.environ.get("SHMLIMIT_SOAK", "1"))
OFF = 0.02  # by how much a phase may differ from the share

Write = Callable[[Path, str | None], None]
"""Gives a file that content; None removes it."""


def by_rename(file: Path, content: str | None) -> None:
    if content is None:
        file.unlink()
        return
    other = file.with_name("hosts.new")
    other.write_text(content)
    other.replace(file)


def in_place(file: Path, content: str | None) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_text(content)


_versions = count()


def by_link(file: Path, content: str | None) -> None:
    """As Kubernetes mounts a ConfigMap: hosts -> ..data/hosts, and ..data -> a directory of its own
    for each version, replaced by a rename."""
    version = file.with_name(f"..version-{next(_versions)}")
    version.mkdir()
    if content is not None:
        (version / file.name).write_text(content)
    link = file.with_name("..data_tmp")
    link.symlink_to(version.name)
    link.replace(file.with_name("..data"))
    if not file.is_symlink():
        file.symlink_to(f"..data/{file.name}")


@pytest.mark.parametrize("write", [by_rename, in_place, by_link])
def test_what_is_admitted_follows_the_share_while_the_file_changes(
    write: Write, segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = config_file(tmp_path, segment_name, f"{RATE}/s burst {BURST}", monkeypatch)
    hosts = tmp_path / "mounted" / "hosts"
    hosts.parent.mkdir()
    write(hosts, "1\n")
    with file.open("a") as text:
        text.write(f'[hosts]\nsource = "file:{hosts}"\nfallback = 8\nsettle = "200ms"\n')
    with running(file, *HOOKS, "--workers", str(WORKERS)) as server:
        limiter = Limiter.from_config(file)
        wait_until(lambda: beats(limiter) and limiter.hosts.in_force == 1)
        with limiter, Clients(server.port, OFFERED) as clients:
            before, begin_ns = limiter.counters()["per_ip"]["allowed"], time.monotonic_ns()
            phases, changed_ns = changes(limiter, lambda content: write(hosts, content))
            admitted = limiter.counters()["per_ip"]["allowed"] - before
            end_ns = time.monotonic_ns()
        log = server.log.read_text()
        assert server.stop() == 0
    assert {answer.status for answer in clients.answers} == {200, 429}, "no request fails"
    assert [phase.hosts for phase in phases] == [1, 4, 2, 2, 2, 3]
    for phase in phases:
        share = RATE / phase.hosts * phase.seconds
        # a worker that was interrupted has decided, and not counted yet
        assert abs(phase.admitted - share) <= OFF * share + 1 + WORKERS, phase
    assert admitted <= bound([begin_ns, *changed_ns, end_ns], [1, 4, 2, 3]), "in all"
    told = [line for line in log.splitlines() if "the count stays 2" in line]
    assert len(told) == 2, "one line for each reason, however often it was read"
    assert "Traceback" not in log


def changes(limiter: Limiter, write: Callable[[str | None], None]) -> tuple[list[Phase], list[int]]:
    """1 -> 4 -> 2 -> garbage -> deleted -> 3. Returns when the larger share ended or began, too."""
    meter = ShareMeter(limiter, "per_ip")
    phases, changed_ns = [meter.phase(PHASE_S)], []
    write("4\n")
    wait_until(lambda: limiter.hosts.in_force == 4)
    changed_ns.append(time.monotonic_ns())
    phases.append(meter.phase(PHASE_S))
    changed_ns.append(time.monotonic_ns())
    write("10.0.0.1\n10.0.0.2\n")
    wait_until(lambda: limiter.hosts.in_force == 2)
    phases.append(meter.phase(PHASE_S))
    for content, reason in (("3 4\n", "accepted: one whole number"), (None, "no such file")):
        write(content)
        wait_until(lambda reason=reason: reason in limiter.hosts.failure)  # type: ignore[misc]
        assert limiter.hosts.failing is not None
        phases.append(meter.phase(PHASE_S))
    write("3\n")
    wait_until(lambda: limiter.hosts.in_force == 3)
    changed_ns.append(time.monotonic_ns())
    assert limiter.hosts.failure == ""
    phases.append(meter.phase(PHASE_S))
    return phases, changed_ns


def bound(times_ns: list[int], hosts: list[int]) -> float:
    """What may pass: a burst, each share for its time, and what a smaller count sets free."""
    most = float(BURST)
    for i, count_of_hosts in enumerate(hosts):
        most += RATE / count_of_hosts * (times_ns[i + 1] - times_ns[i]) / 1e9
        if i and hosts[i - 1] > count_of_hosts:
            most += BURST * (1 - count_of_hosts / hosts[i - 1])
    return most
