"""The texts that name a source of the host count, "file:/etc/shop/hosts", and what they mean."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

from shmlimit.config_refusal import did_you_mean, within
from shmlimit.errors import ConfigError
from shmlimit.hosts.source import COUNT_ACCEPTED, COUNT_MAX, HostSource
from shmlimit.rate import parse_quantity, shown

if TYPE_CHECKING:
    from shmlimit.hosts.settings import HostsConfig

SCHEMES = ("static", "file", "dns", "dns+srv", "env")
SOURCES_ACCEPTED = (
    "static:N, file:PATH, dns:NAME, dns+srv:NAME, env:VARIABLE or package.module:callable"
)

_TEXT_MAX = 4096  # characters
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NAME_CHARACTERS_MAX = 253
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class SourceText(NamedTuple):
    scheme: str  # one of SCHEMES, or "import"
    rest: str  # what follows the colon; for "import" all of it


def parse_source(text: object) -> SourceText:
    """Reads it without looking whether there is such a source. ConfigError: what is wrong."""
    if not isinstance(text, str) or not text or len(text) > _TEXT_MAX or "\0" in text:
        raise ConfigError(f"{shown(text)} is no source; accepted: {SOURCES_ACCEPTED}")
    scheme, colon, rest = text.partition(":")
    if not colon:
        hint = did_you_mean(scheme, SCHEMES)
        raise ConfigError(f"{shown(text)} has no ':'{hint}; accepted: {SOURCES_ACCEPTED}")
    if scheme not in SCHEMES:
        return _import_path(text)
    fault = _FAULT_OF[scheme](rest)
    if fault:
        raise ConfigError(f"{shown(text)}: {fault}")
    return SourceText(scheme, rest)


def source_of(settings: HostsConfig) -> HostSource:
    """The source that the settings name, not yet read. ConfigError: an import path leads nowhere.

    Only what the source needs is imported.
    """
    scheme, rest = parse_source(settings.source)
    if scheme == "static":
        from shmlimit.hosts.static import StaticSource

        return StaticSource(static_count(rest))
    if scheme == "env":
        from shmlimit.hosts.env import EnvSource

        return EnvSource(rest)
    if scheme == "file":
        from shmlimit.hosts.file import FileSource

        return FileSource(rest, settings.reread)
    if scheme == "import":
        from shmlimit.hosts.imported import ImportedSource

        return ImportedSource(rest, settings.reread)
    from shmlimit.hosts.dns import AddressSource, ServiceSource

    return (AddressSource if scheme == "dns" else ServiceSource)(rest, settings)


def static_count(rest: str) -> int:
    """The N of a checked static:N."""
    count = parse_quantity(rest)
    assert count is not None, "parse_source has checked it"
    return count


# What is wrong with what follows the colon, and what is accepted; "" when nothing is.


def _static_fault(rest: str) -> str:
    return "" if within(parse_quantity(rest), COUNT_MAX) else f"accepted: {COUNT_ACCEPTED}"


def _file_fault(rest: str) -> str:
    if rest.startswith("/"):
        return ""
    return "accepted: an absolute path, such as file:/etc/shop/hosts"


def _env_fault(rest: str) -> str:
    if _VARIABLE.fullmatch(rest):
        return ""
    return "accepted: the name of an environment variable, such as env:SHOP_HOSTS"


def _dns_fault(rest: str) -> str:
    accepted = "accepted: a full name, such as dns:web.prod.svc.cluster.local"
    try:
        ipaddress.ip_address(rest.strip("[]"))
    except ValueError:
        pass
    else:
        return f"is an address, no name; {accepted}"
    if not rest.isascii():
        return f"is not ASCII: write the name as it is on the wire (xn--...); {accepted}"
    name = rest.removesuffix(".")
    labels = name.split(".")
    if len(name) <= _NAME_CHARACTERS_MAX and all(map(_LABEL.fullmatch, labels)):
        return ""
    return accepted


_FAULT_OF = {
    "static": _static_fault,
    "file": _file_fault,
    "env": _env_fault,
    "dns": _dns_fault,
    "dns+srv": _dns_fault,
}


def _import_path(text: str) -> SourceText:
    module, _, attribute = text.partition(":")
    hint = did_you_mean(module, SCHEMES)
    if _DOTTED.fullmatch(module) and _DOTTED.fullmatch(attribute) and not hint:
        return SourceText("import", text)
    raise ConfigError(f"{shown(text)} is no source{hint}; accepted: {SOURCES_ACCEPTED}")
