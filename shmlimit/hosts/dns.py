"""dns:NAME and dns+srv:NAME, a count of what a name stands for.

All or nothing: a lookup of which a part failed would count some hosts only, and each host that it
leaves out raises every share. So a query without an answer, an answer cut short, or a second family
of addresses that could not be asked for, is a failed reading.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

import dns.exception
import dns.flags
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from shmlimit.errors import SourceFailed
from shmlimit.hosts.settings import nameserver_address
from shmlimit.hosts.source import HostSource, Reading, checked_count

if TYPE_CHECKING:
    from shmlimit.hosts.settings import HostsConfig

_TRIES_MAX = 2  # of each query, at each name server, fit into the time of a reading
_LATE = "no answer in time"
_RESOLV_CONF = "/etc/resolv.conf"


class _NameSource(HostSource):
    """A name, asked for by a resolver of its own: no cache, no search domains."""

    scheme: str

    def __init__(self, name: str, settings: HostsConfig, resolv_conf: str = _RESOLV_CONF) -> None:
        self.name = f"{self.scheme}:{name}"
        self._settings = settings
        self._resolv_conf = resolv_conf
        self._asked = dns.name.from_text(name)  # absolute, with or without a dot at its end

    @abstractmethod
    def read(self) -> Reading: ...

    def _answers(self, *kinds: dns.rdatatype.RdataType) -> list[dns.resolver.Answer]:
        """One for each kind, maybe without records. SourceFailed: not all have an answer."""
        deadline_s = time.monotonic() + self._settings.timeout
        resolver = self._resolver(len(kinds))
        return [self._answer(resolver, kind, deadline_s) for kind in kinds]

    def _answer(
        self, resolver: dns.resolver.Resolver, kind: dns.rdatatype.RdataType, deadline_s: float
    ) -> dns.resolver.Answer:
        text = dns.rdatatype.to_text(kind)
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise self._failed(text, _LATE, self._settings.timeout)
        try:
            answer = resolver.resolve(
                self._asked,
                kind,
                raise_on_no_answer=False,
                lifetime=remaining_s,
            )
        except dns.resolver.NXDOMAIN:
            raise self._failed(text, "there is no such name (NXDOMAIN)") from None
        except dns.resolver.LifetimeTimeout as error:
            by_tcp = any(tried_tcp for _, tried_tcp, *_ in error.kwargs.get("errors", ()))
            words = "a whole answer needs TCP, and none came in time" if by_tcp else _LATE
            raise self._failed(text, words, self._settings.timeout) from None
        except dns.resolver.NoNameservers as error:
            raise self._failed(text, _refusals(error)) from None
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise self._failed(text, type(error).__name__) from None
        if answer.response.flags & dns.flags.TC:
            raise self._failed(text, "the answer is cut short even by TCP")
        return answer

    def _resolver(self, kinds: int) -> dns.resolver.Resolver:
        """Made anew for each reading, since resolv.conf changes while a process lives."""
        try:
            resolver = dns.resolver.Resolver(configure=False)
            if self._settings.nameservers:
                resolver.nameservers = [
                    dns.nameserver.Do53Nameserver(*address)
                    for address in map(nameserver_address, self._settings.nameservers)
                    if address is not None  # HostsConfig has checked them
                ]
            else:
                resolver.read_resolv_conf(self._resolv_conf)
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise SourceFailed(
                f"{self.name}: {self._resolv_conf} names no name server to be used ({error}); "
                'accepted: a line such as "nameserver 10.0.0.53" there, or `nameservers` in [hosts]'
            ) from None
        # A server that does not answer must leave time for the next one and for the other kind.
        tries = kinds * len(resolver.nameservers) * _TRIES_MAX
        resolver.timeout = self._settings.timeout / tries
        return resolver

    def _failed(self, kind: str, fault: str, timeout_s: float | None = None) -> SourceFailed:
        within = "" if timeout_s is None else f" ({timeout_s:g} s for the whole reading)"
        return SourceFailed(
            f"{self.name}: {kind}: {fault}{within}; accepted: a whole answer that names hosts"
        )

    def _reading(self, count: int, answers: Iterable[dns.resolver.Answer], records: str) -> Reading:
        if not count:
            raise SourceFailed(f"{self.name}: the name has no {records}; accepted: at least one")
        ttl_s = min(answer.chaining_result.minimum_ttl for answer in answers if answer.rrset)
        again_s = min(max(ttl_s, self._settings.min_ttl), self._settings.max_ttl)
        return Reading(checked_count(count, self.name), again_s)


class AddressSource(_NameSource):
    """Hosts by their addresses. One that has both kinds is there once in each, so the larger number
    counts every host once, as long as all hosts of one kind or all of both are in the name."""

    scheme = "dns"

    def read(self) -> Reading:
        answers = self._answers(dns.rdatatype.A, dns.rdatatype.AAAA)
        count = max(len({record.address for record in answer.rrset or ()}) for answer in answers)
        return self._reading(count, answers, "address")


class ServiceSource(_NameSource):
    """Hosts by the targets of SRV records: two ports of one target are one host."""

    scheme = "dns+srv"

    def read(self) -> Reading:
        answers = self._answers(dns.rdatatype.SRV)
        targets = {record.target for answer in answers for record in answer.rrset or ()}
        targets.discard(dns.name.root)  # the service is decidedly not there (RFC 2782)
        return self._reading(len(targets), answers, "SRV record with a target")


def _refusals(error: dns.resolver.NoNameservers) -> str:
    """What each name server answered, in the same words each time: it is told once a change."""
    told = []
    for server, by_tcp, port, fault, _ in error.kwargs.get("errors", ()):
        words = fault if isinstance(fault, str) else _words(fault)
        address = server.removeprefix("Do53:").partition("@")[0]
        told.append(f"{address} port {port}{' by TCP' if by_tcp else ''}: {words}")
    return "; ".join(dict.fromkeys(told)) or "no name server has an answer"


def _words(fault: object) -> str:
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return type(fault).__name__
