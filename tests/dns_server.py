"""A real DNS server, by UDP and TCP, that answers as a test wants it to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

UDP_BYTES_MAX = 512


@dataclass(frozen=True)
class Answer:
    """What is said to one question: records as in a zone file, and what goes wrong. What follows a
    CNAME is what that name stands for."""

    records: tuple[str, ...] = ()  # "TYPE data", such as "A 10.0.0.1", "CNAME other.example."
    ttl_s: int = 30
    rcode: dns.rcode.Rcode = dns.rcode.NOERROR
    drop: bool = False  # say nothing at all
    garbage: bytes | None = None  # say this
    cut_short: bool = False  # set TC, also by TCP, where it means that not all is said


NOTHING = Answer()
NO_SUCH_NAME = Answer(rcode=dns.rcode.NXDOMAIN)
SERVER_FAILURE = Answer(rcode=dns.rcode.SERVFAIL)
SILENCE = Answer(drop=True)
GARBAGE = Answer(garbage=b"\xff" * 40)


def a(*addresses: str, ttl_s: int = 30) -> Answer:
    return Answer(tuple(f"A {address}" for address in addresses), ttl_s)


def aaaa(*addresses: str, ttl_s: int = 30) -> Answer:
    return Answer(tuple(f"AAAA {address}" for address in addresses), ttl_s)


def srv(*targets: str, ttl_s: int = 30) -> Answer:
    """Targets as "PORT NAME"."""
    return Answer(tuple(f"SRV 0 10 {target}" for target in targets), ttl_s)


@dataclass
class DnsServer:
    """Questions without an answer of their own get NXDOMAIN, as of a name that is not there."""

    host: str  # its IPv4 address
    port: int
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # ("udp", name, type)
    silent_by: str = ""  # "tcp": it takes connections, and says nothing

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def say(self, name: str, kind: str, answer: Answer) -> None:
        self.answers[f"{name}.", kind] = answer

    def reply(self, wire: bytes, by: str) -> bytes | None:
        try:
            query = dns.message.from_wire(wire)
        except dns.exception.DNSException:
            return None
        (question,) = query.question
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((by, name, kind))
        answer = self.answers.get((name, kind), NO_SUCH_NAME)
        if answer.drop or by == self.silent_by:
            return None
        if answer.garbage is not None:
            return wire[:2] + answer.garbage
        response = dns.message.make_response(query)
        response.set_rcode(answer.rcode)
        owner = name
        if not answer.records:  # says for how long that there is none may be believed
            soa = f"ns.test. root.test. 1 60 60 60 {answer.ttl_s}"
            response.authority.append(dns.rrset.from_text("test.", 3600, "IN", "SOA", soa))
        for record in answer.records:
            record_kind, _, data = record.partition(" ")
            rrset = dns.rrset.from_text(owner, answer.ttl_s, "IN", record_kind, data)
            response.answer.append(rrset)
            owner = data if record_kind == "CNAME" else owner
        if answer.cut_short:
            response.flags |= dns.flags.TC
        whole = response.to_wire(max_size=65_535)
        if by == "tcp" or len(whole) <= UDP_BYTES_MAX:
            return whole
        response.answer = response.answer[:20]  # some of them, as real servers do
        response.flags |= dns.flags.TC
        return response.to_wire(max_size=65_535)


@contextmanager
def dns_server(tcp: bool = True, host: str = "127.0.0.1") -> Iterator[DnsServer]:
    """Runs for the block, at an address of this host. Without `tcp` connections are refused."""
    with contextlib.ExitStack() as stack:
        udp, listener = _sockets(host)
        stack.enter_context(udp)
        stack.enter_context(listener)
        server = DnsServer(*udp.getsockname())
        threads = [threading.Thread(target=_serve_udp, args=(server, udp))]
        if tcp:
            listener.listen(16)
            threads.append(threading.Thread(target=_serve_tcp, args=(server, listener)))
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            # A blocked read of another thread ends by a shutdown, not by a close.
            for end in (udp, listener):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _sockets(host: str) -> tuple[socket.socket, socket.socket]:
    """Two that have the same port; the one for TCP does not listen yet, and so refuses."""
    while True:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind((host, 0))
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind(udp.getsockname())
        except OSError:  # another process has that port
            udp.close()
            listener.close()
            continue
        return udp, listener


def _serve_udp(server: DnsServer, udp: socket.socket) -> None:
    while True:
        try:
            wire, client = udp.recvfrom(65_535)
        except OSError:
            return
        if not wire:  # shut down
            return
        reply = server.reply(wire, "udp")
        if reply is not None:
            udp.sendto(reply, client)


def _serve_tcp(server: DnsServer, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError, struct.error):
            connection.settimeout(10)
            (size,) = struct.unpack("!H", connection.recv(2))
            reply = server.reply(connection.recv(size), "tcp")
            if reply is None:
                connection.recv(1)  # until the client gives up
            else:
                connection.sendall(struct.pack("!H", len(reply)) + reply)
