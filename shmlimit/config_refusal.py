"""How the refusal of a configuration is put: the key's place, the value, what is accepted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from shmlimit.errors import ConfigError
from shmlimit.rate import shown

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")  # what TOML lets stand without quotes


@contextmanager
def at(place: str) -> Iterator[None]:
    """Puts the place before the message of a ConfigError that is raised inside."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}{error}") from None


def refusal(place: str, value: object, accepted: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{place}: {shown(value)} is not accepted{hint}; accepted: {accepted}")


def did_you_mean(word: object, known: Sequence[str]) -> str:
    if not isinstance(word, str):
        return ""
    close = difflib.get_close_matches(word[:100].lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def known_keys(place: str, section: Mapping[str, object], known: Sequence[str]) -> None:
    """ConfigError: the section has a key that is not `known`."""
    for key, value in section.items():
        if key in known:
            continue
        hint = did_you_mean(key, known)
        if isinstance(value, dict) and place.startswith("limits.") and not hint:
            hint = '; a limit\'s name with a dot needs quotes: [limits."per.ip"]'
        where = f"{place}.{key_text(key)}" if place else key_text(key)
        raise ConfigError(f"{where}: is unknown{hint}; accepted here: {', '.join(known)}")


def key_text(key: str) -> str:
    """The key as TOML has it in a path."""
    return key if _BARE_KEY.fullmatch(key) else shown(key)


def matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def within(value: object, most: int) -> bool:
    """A whole number from 1 to `most`; True and False are not numbers here."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
