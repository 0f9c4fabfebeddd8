"""shmlimit.toml: one [table] and its [limits], checked whole before anything is made of it.

    [table]
    name = "shop"                   # the segment in /dev/shm
    keys = "1M"                     # most live keys expected

    [hosts]                         # left out: this host has the limits for itself
    source = "file:/etc/shop/hosts"
    fallback = 10

    [limits.per_ip]
    rate = "100/s burst 500"
    key = "ip"

Every refusal is a ConfigError that names the file, the key's path in it, the value found and what
is accepted. Unknown keys are refused: a misspelt key must not switch a protection off silently.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmlimit._core import MODES, SCOPES, WHEN_FULL
from shmlimit.config_refusal import at, did_you_mean, key_text, known_keys, matches, refusal, within
from shmlimit.errors import ConfigError
from shmlimit.hosts.settings import HostsConfig, hosts_of
from shmlimit.rate import Rate, parse_quantity, rates_fault, shown
from shmlimit.regular_file import UnreadableFile, content_of, printable

DEFAULT_FILE = "shmlimit.toml"
ENVIRONMENT_VARIABLE = "SHMLIMIT_CONFIG"

LIMITS_MAX = 256  # rows in the table: one for each rate of a limit
KEYS_MAX = 1 << 31
WORKERS_MAX = 4096

INITIAL = ("full", "empty")

_FILE_BYTES_MAX = 1 << 20
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_LIMIT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,50}")
_LIMIT_NAME_ACCEPTED = (
    "1 to 51 letters, digits, '_', '-' or '.', the first one a letter or '_' (a name with a dot is "
    'quoted in TOML: [limits."per.ip"])'
)
_COUNTED_KEY = re.compile(r"ip|header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")  # a token of RFC 9110

_EXAMPLE = 'a [table] with name = "shop", and for each limit a [limits.NAME] with rate = "100/s"'


_ALONE = HostsConfig()  # one host that has the limits for itself


@dataclass(frozen=True, slots=True)
class LimitConfig:
    """One limit. ConfigError, beginning with the field's name: a value is not accepted."""

    name: str
    rates: tuple[Rate, ...]  # they hold together; the file calls them `rate`
    key: str | None = None  # what the middleware counts by: "ip", "header:NAME", or nothing
    mode: str = "enforce"  # one of MODES
    when_full: str = "evict"  # one of WHEN_FULL: what happens when a key finds no free slot
    scope: str = "global"  # one of SCOPES: whether all hosts together have the rates, or each
    initial: str = "full"  # one of INITIAL: how full buckets are when the segment gets the limit

    def __post_init__(self) -> None:
        if not matches(_LIMIT_NAME, self.name):
            raise refusal("name", self.name, _LIMIT_NAME_ACCEPTED)
        if not isinstance(self.rates, tuple) or not all(
            isinstance(rate, Rate) for rate in self.rates
        ):
            raise refusal("rates", self.rates, "a tuple of Rates, as of Rate.parse_several")
        fault = rates_fault(self.rates)
        if fault:
            raise ConfigError(f"rates: {fault}")
        if self.key is not None and not matches(_COUNTED_KEY, self.key):
            raise refusal("key", self.key, "'ip' or 'header:NAME', such as 'header:X-Api-Key'")
        words_of = {"mode": MODES, "scope": SCOPES, "when_full": WHEN_FULL, "initial": INITIAL}
        for field, accepted in words_of.items():
            value = getattr(self, field)
            if value not in accepted:
                words = ", ".join(map(repr, accepted))
                raise refusal(field, value, words, did_you_mean(value, accepted))


@dataclass(frozen=True, slots=True)
class TableConfig:
    """The segment and its size. ConfigError, beginning with the field's name: not accepted."""

    name: str  # of the segment in /dev/shm
    keys: int = 1_000_000  # most live keys expected; texts such as "250k" or "1M" become an int
    workers: int = 64  # processes that get counters of their own; any others share one row
    shared: bool = False  # whether servers that run at the same time may share it

    def __post_init__(self) -> None:
        if not matches(_TABLE_NAME, self.name) or self.name in (".", ".."):  # two directories
            raise refusal("name", self.name, "1 to 200 letters, digits, '_', '-' or '.'")
        keys = parse_quantity(self.keys) if isinstance(self.keys, str) else self.keys
        if not within(keys, KEYS_MAX):
            accepted = f'a whole number from 1 to {KEYS_MAX}, also as "250k" or "1M"'
            raise refusal("keys", self.keys, accepted)
        if not within(self.workers, WORKERS_MAX):
            raise refusal("workers", self.workers, f"a whole number from 1 to {WORKERS_MAX}")
        if not isinstance(self.shared, bool):
            raise refusal("shared", self.shared, "true or false")
        object.__setattr__(self, "keys", keys)


@dataclass(frozen=True, slots=True)
class Config:
    """What one shmlimit.toml says, checked. `path` is absolute, or None for one made in code."""

    table: TableConfig
    limits: tuple[LimitConfig, ...]
    path: Path | None = None
    hosts: HostsConfig = _ALONE

    def __post_init__(self) -> None:
        names = [limit.name for limit in self.limits]
        rates = sum(len(limit.rates) for limit in self.limits)
        if rates > LIMITS_MAX:
            raise ConfigError(
                f"limits: there are {rates} rates in them; accepted: at most {LIMITS_MAX} in all"
            )
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"limits: {name!r} is there twice; accepted: each name once")

    @staticmethod
    def place(path: str | os.PathLike[str] | None = None) -> Path:
        """Where the configuration file is looked for, absolute, whether or not there is one.

        It is `path`, else $SHMLIMIT_CONFIG unless empty, else ./shmlimit.toml.
        """
        if path is None:
            path = os.environ.get(ENVIRONMENT_VARIABLE, "") or DEFAULT_FILE
        return _absolute(path)

    @staticmethod
    def find(path: str | os.PathLike[str] | None = None) -> Path:
        """The same, without reading it. ConfigError: there is no such file. The next place is not
        tried then: it would be a configuration that nobody asked for.
        """
        found = Config.place(path)
        try:
            os.stat(found)
        except (FileNotFoundError, NotADirectoryError):
            if path is not None:
                looked = "the path given"
            elif os.environ.get(ENVIRONMENT_VARIABLE, ""):
                looked = f"${ENVIRONMENT_VARIABLE}"
            else:
                looked = f"${ENVIRONMENT_VARIABLE} (not set), then ./{DEFAULT_FILE}"
            raise _missing(found, f" (looked at: {looked})") from None
        except (OSError, ValueError):
            pass  # something is there: load says what is wrong with it
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Config:
        """Reads and checks one file. ConfigError: whatever is wrong with the file or in it."""
        absolute = _absolute(path)
        document = _toml(absolute)
        with at(f"{printable(absolute)}: "):
            known_keys("", document, ("table", "hosts", "limits"))
            table = _table(_section(document, "table"))
            hosts = hosts_of(document.get("hosts", {}))
            limits = tuple(_limit(*item) for item in _section(document, "limits").items())
            if not limits:
                raise ConfigError(f"limits: there are none; accepted: {_EXAMPLE}")
            return cls(table, limits, absolute, hosts)


# The file.


def _absolute(path: str | os.PathLike[str]) -> Path:
    """Absolute, so that a change of directory changes nothing later. Symbolic links stay: when one
    is swapped, as in a mounted ConfigMap, the next reading has to see it."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a path must be a str or os.PathLike[str], not {type(text).__name__}")
    if not text or "\0" in text:
        raise ConfigError(f"path {shown(text)}: names no file; accepted: the path of a TOML file")
    try:
        return Path(os.path.abspath(text))
    except OSError as error:  # the current directory was deleted
        raise ConfigError(
            f"{shown(text)}: the current directory cannot be read ({error.strerror}); accepted: "
            f"an absolute path, as argument or in ${ENVIRONMENT_VARIABLE}"
        ) from None


def _missing(path: Path, looked: str = "") -> ConfigError:
    return ConfigError(
        f"{printable(path)}: there is no such file{looked}; create it with {_EXAMPLE}, or name "
        f"another file in ${ENVIRONMENT_VARIABLE}"
    )


def _content(path: Path) -> bytes:
    try:
        return content_of(path, _FILE_BYTES_MAX)
    except UnreadableFile as fault:
        if fault.missing:
            raise _missing(path) from None
        remedy = fault.remedy or "accepted: a TOML file"
        raise ConfigError(f"{printable(path)}: {fault}; {remedy}") from None


def _toml(path: Path) -> dict[str, Any]:
    content = _content(path)
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        line = content.count(b"\n", 0, error.start) + 1
        fault = "is UTF-16" if utf16 else f"is not UTF-8: byte 0x{content[error.start]:02x}"
        fault = f"{fault} in line {line}"
    except tomllib.TOMLDecodeError as error:
        fault = f"is not TOML: {error}"
    except ValueError as error:  # an int of thousands of digits
        fault = f"holds a value that cannot be read: {error}"
    except RecursionError:
        fault = "is nested too deeply"
    raise ConfigError(f"{printable(path)}: {fault}; accepted: TOML in UTF-8, with {_EXAMPLE}")


# Its sections. A place is a key's path in the file, such as limits.per_ip.


def _table(section: Mapping[str, Any]) -> TableConfig:
    known_keys("table", section, ("name", "keys", "workers", "shared"))
    if "name" not in section:
        raise ConfigError('table.name: is missing; accepted: the segment\'s name, name = "shop"')
    with at("table."):
        return TableConfig(**section)


def _limit(name: str, entry: object) -> LimitConfig:
    place = f"limits.{key_text(name)}"
    if not _LIMIT_NAME.fullmatch(name):
        raise ConfigError(f"{place}: is no limit's name; accepted: {_LIMIT_NAME_ACCEPTED}")
    if not isinstance(entry, dict):
        raise refusal(place, entry, f'a table: [{place}] with rate = "100/s"')
    known_keys(place, entry, ("rate", "key", "scope", "mode", "when_full", "initial"))
    if "rate" not in entry:
        raise ConfigError(f'{place}.rate: is missing; accepted: a text such as rate = "100/s"')
    if not isinstance(entry["rate"], str):
        raise refusal(f"{place}.rate", entry["rate"], "a text such as '100/s burst 500'")
    with at(f"{place}.rate: "):
        rates = Rate.parse_several(entry["rate"])
    with at(f"{place}."):
        others = {key: value for key, value in entry.items() if key != "rate"}
        return LimitConfig(name, rates, **others)


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name not in document:
        raise ConfigError(f"{name}: is missing; accepted: {_EXAMPLE}")
    section = document[name]
    if not isinstance(section, dict):
        raise refusal(name, section, f"a table; {_EXAMPLE}")
    return section
