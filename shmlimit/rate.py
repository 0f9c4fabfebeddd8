"""A rate as people write it ("100/s burst 500"), kept as three exact integers.

    text      =  rate {separator rate}        several rates hold together
    separator =  ";" | "," | "|"
    rate      =  count per period [burst]
    count     =  number, may end in k (thousand) or M (million)
    per       =  "/" | "per"
    period    =  [number] [unit], one of the two at least; no unit means seconds
    burst     =  "burst" number, may end in k or M; left out: the count, rounded up
    number    =  digits, may be grouped by "_" and have decimals: 1_000, 0.5
    unit      =  ms, s, min, h, d, week, month or year, and the other spellings in duration.py

Upper and lower case are the same, but for k and M. This reads what limits, Django REST framework,
django-ratelimit and throttled-py read, with the same meaning; where they differ, limits wins:

    10/month     30 days (Django REST framework looks at the first letter only: a minute)
    10/year      12 such months, 360 days
    5/10 min     ten minutes (django-ratelimit stops reading at the blank: ten seconds)
    0/s          refused: it would admit nothing, ever
    10/0 min     refused (limits reads one minute)
    10/5 years   refused: a burst has to refill within 4.5 years

Numbers are fractions while they are read, never floats, so that 0.1/s is one cell in ten seconds.
"""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shmlimit.duration import NUMBER, SPELLED_NS, UNITS_NS
from shmlimit.errors import InvalidRate

TICKS_PER_NS = 16
"""The table's clock counts sixteenths of a nanosecond."""

RATES_MAX = 8
"""Of one limit: each has a row in the table, and a bucket for each key."""

REFILL_TICKS_MAX = 1 << 61
"""Refilling a whole burst takes fewer ticks than this (4.5 years): sums then fit in 63 bits."""

_TEXT_MAX = 200  # characters of a rate string
_WORD_MAX = 1 << 63  # count and period are published as 64-bit words

ACCEPTED = (
    "accepted: COUNT/PERIOD or COUNT per PERIOD, then maybe 'burst N', such as '100/s', "
    "'10 per 5 minutes', '0.5/s' or '100/s burst 500', and ';' between several; units: ms, s, min, "
    "h, d, week, month, year"
)

_COUNT = re.compile(rf"({NUMBER})([kKM](?=\s*(?:/|(?i:per)))|)")
_PER = re.compile(r"\s*(?:/|per)\s*", re.IGNORECASE)
_PERIOD = re.compile(rf"({NUMBER})?(?:\s*((?!burst\b)[a-z]+))?", re.IGNORECASE)
_BURST = re.compile(rf"\s+(?i:burst)\s+({NUMBER})([kKM]?)")
_QUANTITY = re.compile(rf"({NUMBER})([kKM]?)")
_SUFFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6}


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` cells every `period_ns` nanoseconds, and at most `burst` cells at once.

    All three are ints >= 1. They are kept as written, not reduced: "10/min" is 10 in 60 s. The
    default burst of `parse` is the count. TypeError: not an int. InvalidRate: out of bounds, that
    is more than one cell a tick, or a burst that takes 2**61 ticks (4.5 years) or more to refill.
    """

    count: int  # cells a period, over all hosts
    period_ns: int
    burst: int  # cells, over all hosts

    def __post_init__(self) -> None:
        for field in ("count", "period_ns", "burst"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(
                    f"Rate: {field} must be an int, not {type(value).__name__} {shown(value)}"
                )
        fault = _out_of_bounds(self.count, self.period_ns, self.burst)
        if fault:
            numbers = ", ".join(map(shown, (self.count, self.period_ns, self.burst)))
            raise InvalidRate(f"Rate({numbers}): {fault}; accepted: count, period in ns, burst")

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Reads a text of one rate; the module's docstring has the grammar.

        TypeError: not a str. InvalidRate: names the text, what is wrong and what is accepted.
        """
        rates = cls.parse_several(text)
        if len(rates) > 1:
            raise InvalidRate(f"rate {shown(text)}: these are {len(rates)} rates; accepted: one")
        return rates[0]

    @classmethod
    def parse_several(cls, text: str) -> tuple[Rate, ...]:
        """Reads a text of one to eight rates, which hold together: "5/s; 100/day".

        TypeError: not a str. InvalidRate: names the text, what is wrong and what is accepted.
        """
        if not isinstance(text, str):
            raise TypeError(
                f"a rate is a string such as '100/s', not {type(text).__name__} {shown(text)}"
            )
        rates = []
        try:
            for part in _parts(text):
                numbers = _read(part)
                fault = _out_of_bounds(*numbers)
                if fault:
                    raise _RateTextError(fault)
                rates.append(cls(*numbers))
        except _RateTextError as error:
            raise InvalidRate(f"rate {shown(text)}: {error}; {ACCEPTED}") from None
        fault = rates_fault(rates)
        if fault:
            raise InvalidRate(f"rate {shown(text)}: {fault}")
        return tuple(rates)

    @property
    def interval_ticks(self) -> int:
        """What one cell costs when one host has the whole rate, rounded up to a tick."""
        return -(-TICKS_PER_NS * self.period_ns // self.count)

    def surplus_after(self, before: Rate) -> int:
        """What a key that owes its whole burst under `before` may take at once when this rate takes
        its place, in cells, rounded up: debts are kept as time, and that may be worth fewer cells.
        """
        speed = Fraction(self.count * before.period_ns, before.count * self.period_ns)
        return max(0, math.ceil(self.burst - before.burst * speed))

    def __str__(self) -> str:
        """The canonical spelling: `Rate.parse(str(rate)) == rate`."""
        burst = "" if self.burst == self.count else f" burst {self.burst}"
        return f"{self.count}/{period_text(self.period_ns)}{burst}"


def rates_fault(rates: Sequence[Rate]) -> str | None:
    """What is wrong with these as the rates of one limit, or None."""
    if not 1 <= len(rates) <= RATES_MAX:
        return f"there are {len(rates)} rates; accepted: 1 to {RATES_MAX} in one limit"
    for rate in rates:
        if rates.count(rate) > 1:
            return f"{rate} is there twice; accepted: each rate once"
    return None


def parse_quantity(text: str) -> int | None:
    """A whole number as people write it ("1M", "250k", "1_000_000"), or None when it is not one."""
    matched = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_MAX else None
    value = _number(matched[1], matched[2]) if matched else Fraction(1, 2)
    return value.numerator if value.denominator == 1 else None


def shown(value: object) -> str:
    """`repr(value)` for a message: on one line, short, and never an exception of its own."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits has no repr
        return f"(a huge {type(value).__name__})"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _TEXT_MAX + 2  # and the quotes


class _RateTextError(Exception):
    """What is wrong with a text: the middle part of an InvalidRate."""


def _out_of_bounds(count: int, period_ns: int, burst: int) -> str | None:
    """What is wrong with these numbers, or None. One cell a tick is where T would round to 0."""
    if count < 1:
        return "the count must be more than 0"
    if period_ns < 1:
        return "the period must be longer than 0"
    if burst < 1:
        return "the burst must be at least 1"
    if count >= _WORD_MAX or period_ns >= _WORD_MAX:
        return "too large or too finely divided: count and period (in ns) must be below 2**63"
    if count > TICKS_PER_NS * period_ns:
        return "too fast: at most 16 a nanosecond can be told apart"
    interval_ticks = -(-TICKS_PER_NS * period_ns // count)
    if burst * interval_ticks >= REFILL_TICKS_MAX:
        return "too slow: to refill the burst would take 4.5 years or more"
    return None


def _parts(text: str) -> list[str]:
    """The rates in a text, stripped. Empty parts are no rates: throttled-py reads "5/s;"."""
    if len(text) > _TEXT_MAX:
        raise _RateTextError(f"{len(text)} characters are too long, at most {_TEXT_MAX} are read")
    for character in text:
        if not (" " <= character <= "~" or character in "\t\n\v\f\r"):
            raise _RateTextError(f"the character {character!a} is not plain ASCII text")
    rates = [part.strip() for part in re.split("[,;|]", text) if part.strip()]
    if not rates:
        raise _RateTextError("it is empty")
    if len(rates) == 1:
        return rates
    if re.fullmatch(NUMBER, rates[0]):  # 1,000/s or 0,5/s
        raise _RateTextError("',' separates rates; write 1_000 for thousands and 0.5 for decimals")
    if any(re.match("burst", rate, re.IGNORECASE) for rate in rates[1:]):
        raise _RateTextError("the burst follows the period without a comma: '100/s burst 500'")
    return rates


def _read(rate: str) -> tuple[int, int, int]:
    """(count, period_ns, burst) of a stripped text, exact; bounds are not checked here."""
    count_part = _COUNT.match(rate)
    if not count_part:
        raise _RateTextError("it must begin with a count, a number such as 100, 1_000, 0.5 or 10k")
    per_part = _PER.match(rate, count_part.end())
    if not per_part:
        rest = rate[count_part.end() :]
        lower_m = " (a million is M)" if re.match(r"m\s*(/|(?i:per))", rest) else ""
        after = f"not {rest.strip()!r}" if rest else "but nothing follows"
        raise _RateTextError(f"after the count comes '/' or 'per', {after}{lower_m}")
    period_part = _PERIOD.match(rate, per_part.end())
    if not period_part or not period_part[0].strip():
        rest = rate[per_part.end() :]
        found = f"not {rest!r}" if rest else "but nothing follows"
        after = f"after {per_part[0].strip()!r} comes a period such as s or 5min"
        raise _RateTextError(f"{after}, {found}")
    count = _number(count_part[1], count_part[2])
    period_ns = _number(period_part[1] or "1") * _unit_ns(period_part[2] or "s")
    burst = _burst(rate[period_part.end() :], default=math.ceil(count))
    scale = math.lcm(count.denominator, period_ns.denominator)
    return int(count * scale), int(period_ns * scale), burst


def _burst(rest: str, default: int) -> int:
    """The burst in cells, from what follows the period."""
    if not rest.strip():
        return default
    matched = _BURST.fullmatch(rest)
    if not matched:
        raise _RateTextError(f"after the period comes 'burst N' or nothing, not {rest.strip()!r}")
    burst = _number(matched[1], matched[2])
    if burst.denominator != 1:
        raise _RateTextError(f"the burst must be a whole number, not {matched[1] + matched[2]}")
    return burst.numerator


def _number(digits: str, suffix: str = "") -> Fraction:
    return Fraction(digits.replace("_", "")) * _SUFFIX[suffix]


def _unit_ns(word: str) -> int:
    found = SPELLED_NS.get(word.lower())
    if found is not None:
        return found
    if word.lower() in ("us", "usec", "ns", "nsec", "microsecond", "nanosecond"):
        hint = "; write parts of a millisecond, such as 0.25ms"
    else:
        close = difflib.get_close_matches(word.lower(), SPELLED_NS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
    raise _RateTextError(f"{word!r} is not a unit of time{hint}")


def period_text(period_ns: int) -> str:
    """The largest unit that fits a whole number of times; shorter than 1 ms and odd: decimals."""
    for unit, unit_ns in reversed(UNITS_NS.items()):
        multiple, rest_ns = divmod(period_ns, unit_ns)
        if not rest_ns:
            return unit if multiple == 1 else f"{multiple}{unit}"
    decimals = f"{rest_ns:06d}".rstrip("0")
    return f"{multiple}.{decimals}ms"
