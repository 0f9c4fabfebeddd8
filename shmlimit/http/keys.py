"""From a request to the key that a limit counts it by.

    "ip"            b"ip:203.0.113.7", b"ip:2001:db8:1:2::/64"
    "header:NAME"   b"h:" and the header's value; without a value, the key of "ip"

A person has a whole IPv6 /64, so that is one key. A missing header must not be a way around the
limit, so it counts by address; the prefixes keep what a client writes into a header from being
anybody's address. A peer without a usable address (a Unix socket has none) shares one key with all
its like.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

KeyFunction = Callable[[dict[str, Any]], bytes]  # from a WSGI environ

NO_ADDRESS = b"ip:unknown"
_IPV4_MAPPED = bytes(10) + b"\xff\xff"  # ::ffff:0:0/96
_NOT_PREFIXED = ("CONTENT_TYPE", "CONTENT_LENGTH")  # the two headers that WSGI names without HTTP_


def key_function(counted: str) -> KeyFunction:
    """The function for a limit's `key`: "ip" or "header:NAME". ValueError: something else."""
    kind, _, header = counted.partition(":")
    if counted == "ip":
        return ip_key
    if kind == "header" and header:
        return _header_key(header)
    raise ValueError(f"key {counted!r} is not accepted; accepted: 'ip' or 'header:NAME'")


def ip_key(environ: dict[str, Any]) -> bytes:
    address = environ.get("REMOTE_ADDR")
    return address_key(address) if isinstance(address, str) else NO_ADDRESS


def address_key(address: str) -> bytes:
    """The key of a peer's address, in whatever of its spellings it comes."""
    try:
        if ":" not in address:
            socket.inet_pton(socket.AF_INET, address)  # accepts only the canonical spelling
            return b"ip:" + address.encode("ascii")
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])  # %: a scope
    except (OSError, ValueError):
        return NO_ADDRESS
    if packed.startswith(_IPV4_MAPPED):
        return b"ip:" + socket.inet_ntop(socket.AF_INET, packed[12:]).encode("ascii")
    network = socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8))
    return b"ip:" + network.encode("ascii") + b"/64"


def _header_key(header: str) -> KeyFunction:
    name = header.upper().replace("-", "_")
    variable = name if name in _NOT_PREFIXED else f"HTTP_{name}"

    def header_key(environ: dict[str, Any]) -> bytes:
        # WSGI strings hold bytes as latin-1; whatever else a server puts there must not fail
        value = environ.get(variable)
        if not isinstance(value, str) or not value.strip():
            return ip_key(environ)
        return b"h:" + value.strip().encode("latin-1", "backslashreplace")

    return header_key
