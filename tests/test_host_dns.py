"""dns: and dns+srv:, against a real server: what counts, and that half an answer counts nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.rcode
import dns.resolver
import pytest

from shmlimit.errors import SourceFailed
from shmlimit.hosts.count import HostCount
from shmlimit.hosts.dns import AddressSource, ServiceSource
from shmlimit.hosts.scheme import source_of
from shmlimit.hosts.settings import HostsConfig
from shmlimit.hosts.source import Reading
from tests.dns_server import (
    GARBAGE,
    NO_SUCH_NAME,
    NOTHING,
    SERVER_FAILURE,
    SILENCE,
    Answer,
    DnsServer,
    a,
    aaaa,
    dns_server,
    srv,
)

NAME = "web.test"
PATIENCE_S = 20.0  # for answers that come, on a machine that may be busy
TIMEOUT_S = 0.5  # for those that do not


@pytest.fixture
def server() -> Iterator[DnsServer]:
    with dns_server() as running:
        yield running


def settings(server: DnsServer, **values: Any) -> HostsConfig:
    defaults = {"source": f"dns:{NAME}", "fallback": 10, "nameservers": [server.address]}
    return HostsConfig(**{**defaults, "timeout": PATIENCE_S, **values})


def read(server: DnsServer, **values: Any) -> Reading:
    source = source_of(settings(server, **values))
    try:
        return source.read()
    finally:
        source.close()


def fault(server: DnsServer, **values: Any) -> str:
    with pytest.raises(SourceFailed) as failure:
        read(server, **values)
    message = str(failure.value)
    assert "accepted: " in message
    assert NAME in message
    return message


def test_addresses_are_counted(server: DnsServer) -> None:
    server.say(NAME, "A", a("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    server.say(NAME, "AAAA", NOTHING)
    assert read(server).count == 3
    assert {kind for _, _, kind in server.asked} == {"A", "AAAA"}


def test_an_address_that_is_there_twice_is_one_host(server: DnsServer) -> None:
    server.say(NAME, "A", a("10.0.0.1", "10.0.0.2", "10.0.0.1"))
    server.say(NAME, "AAAA", NOTHING)
    assert read(server).count == 2


@pytest.mark.parametrize(("v4", "v6", "hosts"), [(3, 3, 3), (2, 3, 3), (3, 1, 3), (0, 2, 2)])
def test_hosts_with_addresses_of_both_kinds_count_once(
    server: DnsServer, v4: int, v6: int, hosts: int
) -> None:
    server.say(NAME, "A", a(*(f"10.0.0.{number}" for number in range(v4))))
    server.say(NAME, "AAAA", aaaa(*(f"2001:db8::{number}" for number in range(v6))))
    assert read(server).count == hosts


@pytest.mark.parametrize(
    ("ttls_s", "again_s"), [((0, 0), 5), ((3600, 3600), 60), ((30, 20), 20), ((30, 40), 30)]
)
def test_the_shorter_ttl_counts_between_min_and_max(
    server: DnsServer, ttls_s: tuple[int, int], again_s: float
) -> None:
    server.say(NAME, "A", a("10.0.0.1", ttl_s=ttls_s[0]))
    server.say(NAME, "AAAA", aaaa("2001:db8::1", ttl_s=ttls_s[1]))
    assert read(server).read_again_s == again_s


def test_that_there_is_no_other_kind_says_nothing_of_when_to_ask_again(server: DnsServer) -> None:
    server.say(NAME, "A", a("10.0.0.1", ttl_s=25))
    server.say(NAME, "AAAA", Answer(ttl_s=6))
    assert read(server).read_again_s == 25


def test_a_chain_of_names_leads_to_the_addresses(server: DnsServer) -> None:
    chain = Answer(("CNAME b.test.", "CNAME c.test.", "A 10.0.0.1", "A 10.0.0.2"), ttl_s=25)
    server.say(NAME, "A", chain)
    server.say(NAME, "AAAA", Answer(("CNAME b.test.",), ttl_s=25))
    assert read(server) == Reading(2, 25)


def test_300_addresses_come_by_tcp(server: DnsServer) -> None:
    addresses = [f"10.0.{number // 250}.{number % 250}" for number in range(300)]
    server.say(NAME, "A", a(*addresses))
    server.say(NAME, "AAAA", NOTHING)
    assert read(server).count == 300
    assert ("tcp", f"{NAME}.", "A") in server.asked


def test_a_part_of_the_addresses_is_no_answer_when_tcp_is_refused() -> None:
    with dns_server(tcp=False) as server:
        server.say(NAME, "A", a(*(f"10.0.0.{number}" for number in range(250))))
        server.say(NAME, "AAAA", NOTHING)
        assert "by TCP: Connection refused" in fault(server)


def test_a_part_of_the_addresses_is_no_answer_when_tcp_is_silent(server: DnsServer) -> None:
    server.silent_by = "tcp"
    server.say(NAME, "A", a(*(f"10.0.0.{number}" for number in range(250))))
    server.say(NAME, "AAAA", NOTHING)
    assert "A: a whole answer needs TCP, and none came in time (1" in fault(server, timeout=1)


def test_a_part_of_the_addresses_is_no_answer_by_tcp_either(server: DnsServer) -> None:
    server.say(NAME, "A", Answer(("A 10.0.0.1",), cut_short=True))
    server.say(NAME, "AAAA", NOTHING)
    assert "A: the answer is cut short even by TCP" in fault(server)


@pytest.mark.parametrize(
    ("answer", "reason", "timeout_s"),
    [
        (NO_SUCH_NAME, "there is no such name (NXDOMAIN)", PATIENCE_S),
        (SERVER_FAILURE, "SERVFAIL", PATIENCE_S),
        (Answer(rcode=dns.rcode.REFUSED), "REFUSED", PATIENCE_S),
        (SILENCE, "no answer in time (0.5 s for the whole reading)", TIMEOUT_S),
        (GARBAGE, "no answer in time (0.5 s for the whole reading)", TIMEOUT_S),
        (Answer(garbage=b""), "no answer in time (0.5 s for the whole reading)", TIMEOUT_S),
        (Answer(("CNAME web.test.",)), "ChainTooLong", PATIENCE_S),
    ],
    ids=["no such name", "failure", "refused", "silence", "garbage", "two bytes", "endless chain"],
)
def test_one_kind_that_failed_is_no_answer_even_if_the_other_has_one(
    server: DnsServer, answer: Answer, reason: str, timeout_s: float
) -> None:
    server.say(NAME, "A", a("10.0.0.1", "10.0.0.2"))
    server.say(NAME, "AAAA", answer)
    assert reason in fault(server, timeout=timeout_s)
    assert timeout_s == TIMEOUT_S or "AAAA: " in fault(server)
    server.say(NAME, "A", answer)
    server.say(NAME, "AAAA", aaaa("2001:db8::1"))
    assert reason in fault(server, timeout=timeout_s)


def test_no_addresses_are_no_count(server: DnsServer) -> None:
    server.say(NAME, "A", NOTHING)
    server.say(NAME, "AAAA", NOTHING)
    assert "has no address" in fault(server)


def test_reasons_are_the_same_each_time(server: DnsServer) -> None:
    for answer in (SERVER_FAILURE, SILENCE, GARBAGE, NO_SUCH_NAME):
        server.say(NAME, "A", answer)
        timeout_s = TIMEOUT_S if answer in (SILENCE, GARBAGE) else PATIENCE_S
        assert fault(server, timeout=timeout_s) == fault(server, timeout=timeout_s)


def test_nothing_listens() -> None:
    with dns_server() as server:
        pass
    assert "no answer in time" in fault(server, timeout=TIMEOUT_S)


def test_a_reading_ends_when_its_time_is_over(server: DnsServer) -> None:
    server.say(NAME, "A", SILENCE)
    server.say(NAME, "AAAA", SILENCE)
    begin_s = time.monotonic()
    fault(server, timeout=TIMEOUT_S)
    assert time.monotonic() - begin_s < PATIENCE_S


def test_a_server_is_asked_when_three_before_it_are_silent(server: DnsServer) -> None:
    server.say(NAME, "A", a("10.0.0.1"))
    server.say(NAME, "AAAA", NOTHING)
    with dns_server() as silent:
        silent.say(NAME, "A", SILENCE)
        silent.say(NAME, "AAAA", SILENCE)
        servers = [silent.address] * 3 + [server.address]
        assert read(server, nameservers=servers, timeout=6).count == 1


@pytest.fixture
def port_of_resolv_conf(server: DnsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """resolv.conf cannot name a port; what it names is asked at that of the test's server."""
    reset = dns.resolver.Resolver.reset

    def with_port(resolver: dns.resolver.Resolver) -> None:
        reset(resolver)
        resolver.port = server.port

    monkeypatch.setattr(dns.resolver.Resolver, "reset", with_port)


@pytest.mark.usefixtures("port_of_resolv_conf")
def test_names_are_absolute_and_search_domains_are_never_used(
    server: DnsServer, tmp_path: Path
) -> None:
    server.say("web.cluster.test", "A", a("10.0.0.1"))
    server.say("web.cluster.test", "AAAA", NOTHING)
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("search cluster.test\noptions ndots:5\nnameserver 127.0.0.1\n")
    for name in ("web", "web."):
        source = AddressSource(name, settings(server, nameservers=()), str(resolv_conf))
        with pytest.raises(SourceFailed, match="NXDOMAIN"):
            source.read()
    assert {name for _, name, _ in server.asked} == {"web."}


@pytest.mark.parametrize(
    "content", [None, "", "# nothing\nsearch test\n", "nameserver nonsense\n", "nameserver\n"]
)
def test_a_resolv_conf_without_servers_is_a_reason(
    server: DnsServer, tmp_path: Path, content: str | None
) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    if content is not None:
        resolv_conf.write_text(content)
    source = AddressSource(NAME, settings(server, nameservers=()), str(resolv_conf))
    with pytest.raises(SourceFailed, match="names no name server to be used") as failure:
        source.read()
    assert str(resolv_conf) in str(failure.value)


@pytest.mark.usefixtures("port_of_resolv_conf")
def test_resolv_conf_is_read_anew_each_time(server: DnsServer, tmp_path: Path) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    source = AddressSource(NAME, settings(server, nameservers=()), str(resolv_conf))
    server.say(NAME, "A", a("10.0.0.1"))
    server.say(NAME, "AAAA", NOTHING)
    with pytest.raises(SourceFailed, match="names no name server"):
        source.read()
    resolv_conf.write_text("nameserver 127.0.0.1\n")
    assert source.read().count == 1


def test_two_ports_of_one_target_are_one_host(server: DnsServer) -> None:
    server.say(
        NAME, "SRV", srv("80 h1.test.", "81 h1.test.", "80 H2.test.", "80 h2.test.", ttl_s=9)
    )
    assert read(server, source=f"dns+srv:{NAME}") == Reading(2, 9)
    assert isinstance(source_of(settings(server, source=f"dns+srv:{NAME}")), ServiceSource)
    assert {kind for _, _, kind in server.asked} == {"SRV"}


@pytest.mark.parametrize("answer", [srv("0 ."), NOTHING])
def test_a_service_that_is_not_there_has_no_target(server: DnsServer, answer: Answer) -> None:
    server.say(NAME, "SRV", answer)
    assert "has no SRV record with a target" in fault(server, source=f"dns+srv:{NAME}")


def test_the_count_stands_through_all_kinds_of_failure_and_then_grows(server: DnsServer) -> None:
    count = HostCount(settings(server), jitter=lambda: 1.0)
    now = 0.0

    def step(timeout_s: float = PATIENCE_S) -> bool:
        nonlocal now
        now += 60.0
        try:
            return count.read(now, read(server, timeout=timeout_s))
        except SourceFailed as failure:
            return count.failed(now, str(failure))

    server.say(NAME, "AAAA", NOTHING)
    server.say(NAME, "A", a(*(f"10.0.0.{number}" for number in range(4))))
    assert step()
    for answer in (NO_SUCH_NAME, SERVER_FAILURE, NOTHING, SILENCE, GARBAGE):
        server.say(NAME, "A", answer)
        assert not step(TIMEOUT_S if answer in (SILENCE, GARBAGE) else PATIENCE_S)
        assert count.count == 4
        assert count.error is not None
    assert count.age_s(now) == 300.0
    server.say(NAME, "A", a(*(f"10.0.0.{number}" for number in range(6))))
    assert step()
    assert (count.count, count.error) == (6, None)


def test_a_name_that_flaps_never_lowers_the_count(server: DnsServer) -> None:
    configured = settings(server)
    source, count = source_of(configured), HostCount(configured)
    server.say(NAME, "AAAA", NOTHING)
    seen = set()
    for now, hosts in zip(range(1, 31), itertools.cycle([5, 4]), strict=False):
        server.say(NAME, "A", a(*(f"10.0.0.{number}" for number in range(hosts))))
        count.read(float(now), source.read())
        seen.add(count.count)
    assert seen == {5}
