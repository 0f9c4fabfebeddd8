"""The [hosts] section of shmlimit.toml: which source says how many hosts there are, and the rules.

[hosts]
source = "dns:web.prod.svc.cluster.local"
fallback = 10
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields

from shmlimit.config_refusal import at, known_keys, refusal, within
from shmlimit.duration import parse_duration_s
from shmlimit.errors import ConfigError
from shmlimit.hosts.scheme import parse_source, static_count
from shmlimit.hosts.source import COUNT_ACCEPTED, COUNT_MAX
from shmlimit.rate import shown

_DAY_S = 86_400.0
_NAMESERVERS_MAX = 16
_NAMESERVERS_ACCEPTED = (
    f"a list of 1 to {_NAMESERVERS_MAX} addresses, each maybe with a port: "
    '["10.0.0.53", "10.0.0.54:5353", "[2001:db8::53]:53"]'
)
_DURATIONS = {  # field -> least and most seconds
    "settle": (0.0, _DAY_S),
    "reread": (0.1, _DAY_S),
    "timeout": (0.1, 60.0),
    "min_ttl": (0.1, _DAY_S),
    "max_ttl": (0.1, _DAY_S),
}


@dataclass(frozen=True, slots=True)
class HostsConfig:
    """Durations are seconds, or texts such as "200ms", "10s" and "5min" that become seconds.

    ConfigError, beginning with the field's name: a value is not accepted.
    """

    source: str = "static:1"
    fallback: int | None = None
    """The count until the first good reading. Every source but static has to be given one, since
    nothing that could be assumed is right: a count too small lets the hosts together pass more than
    the limits, a count too large less. Afterwards it is never None; static:N has N."""
    min: int = 1  # a reading below counts as this
    max: int = 100_000  # a reading above counts as this
    settle: float = 10.0  # for how long readings have to be smaller before the count shrinks
    reread: float = 10.0  # a file, or a callable, is read again after this without being told to
    nameservers: tuple[str, ...] = ()  # "IP", "IPv4:PORT" or "[IPv6]:PORT"; () is /etc/resolv.conf
    timeout: float = 5.0  # for all queries of one reading of DNS together
    min_ttl: float = 5.0  # an answer of DNS is asked for again no sooner
    max_ttl: float = 60.0  # and no later

    def __post_init__(self) -> None:
        with at("source: "):
            scheme, rest = parse_source(self.source)
        for field in ("min", "max"):
            if not within(getattr(self, field), COUNT_MAX):
                raise refusal(field, getattr(self, field), COUNT_ACCEPTED)
        if self.min > self.max:
            raise ConfigError(f"min: {self.min} is more than max, {self.max}; accepted: at most it")
        self._check_fallback(static_count(rest) if scheme == "static" else None)
        for field, (least_s, most_s) in _DURATIONS.items():
            seconds = _duration_s(field, getattr(self, field), least_s, most_s)
            object.__setattr__(self, field, seconds)
        if self.min_ttl > self.max_ttl:
            raise ConfigError(
                f"min_ttl: {self.min_ttl:g} s is more than max_ttl, {self.max_ttl:g} s; accepted: "
                "at most it"
            )
        object.__setattr__(self, "nameservers", _nameservers(self.nameservers))

    def clamped(self, count: int) -> int:
        """The count that is enforced for one that was read."""
        return min(max(count, self.min), self.max)

    def _check_fallback(self, static: int | None) -> None:
        if self.fallback is None and static is not None:
            object.__setattr__(self, "fallback", self.clamped(static))
        elif self.fallback is None:
            raise ConfigError(
                f"fallback: is missing, the count until {shown(self.source)} was read for the "
                f"first time; accepted: {COUNT_ACCEPTED}; with 1 each host enforces the whole "
                "limit until then"
            )
        elif not within(self.fallback, COUNT_MAX):
            raise refusal("fallback", self.fallback, COUNT_ACCEPTED)
        elif self.clamped(self.fallback) != self.fallback:
            raise ConfigError(
                f"fallback: {self.fallback} is not between min and max; accepted: {self.min} to "
                f"{self.max}"
            )


def hosts_of(section: object) -> HostsConfig:
    """The checked [hosts] of a file. ConfigError, beginning with the key's place in the file."""
    if not isinstance(section, Mapping):
        raise refusal("hosts", section, 'a table: [hosts] with source = "file:/etc/shop/hosts"')
    known_keys("hosts", section, [field.name for field in fields(HostsConfig)])
    with at("hosts."):
        return HostsConfig(**section)


def nameserver_address(text: str) -> tuple[str, int] | None:
    """(address, port), or None when the text is none. The port is 53 unless it names one."""
    address, port = text, "53"
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:] if rest else port
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        return None
    try:
        return str(ipaddress.ip_address(address)), int(port)
    except ValueError:
        return None


def _nameservers(value: object) -> tuple[str, ...]:
    if value == ():
        return ()
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _NAMESERVERS_MAX:
        raise refusal("nameservers", value, _NAMESERVERS_ACCEPTED)
    for server in value:
        if not isinstance(server, str) or nameserver_address(server) is None:
            raise refusal("nameservers", server, _NAMESERVERS_ACCEPTED)
    return tuple(value)


def _duration_s(field: str, value: object, least_s: float, most_s: float) -> float:
    seconds = None
    if isinstance(value, str):
        seconds = parse_duration_s(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    if seconds is not None and least_s <= seconds <= most_s:  # not a number is in no range
        return float(seconds)
    raise refusal(
        field,
        value,
        f"from {_duration_text(least_s)} to {_duration_text(most_s)}, as seconds or as a text such "
        'as "200ms", "10s" or "5min"',
    )


def _duration_text(seconds: float) -> str:
    return f"{seconds:g}s" if seconds < 1_000 else f"{seconds / 3_600:g}h"
