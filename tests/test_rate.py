"""Rate strings: what is read, what is refused and how, and that no number loses a digit."""

from __future__ import annotations

import math
import pickle
import re
import sys
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shmlimit.errors import ConfigError, InvalidRate
from shmlimit.rate import REFILL_TICKS_MAX, Rate, parse_quantity, shown

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

MS, S = 10**6, 10**9  # ns
MIN, H, D = 60 * S, 3600 * S, 86_400 * S
MONTH, YEAR = 30 * D, 360 * D


@pytest.mark.parametrize(
    ("text", "count", "period_ns", "burst"),
    [
        ("10/s", 10, S, 10),
        ("100/s burst 500", 100, S, 500),
        ("100/s burst 7", 100, S, 7),
        ("100 per hour", 100, H, 100),
        ("10 per 5 minutes", 10, 5 * MIN, 10),
        ("5/10m", 5, 10 * MIN, 5),
        ("5/10 seconds", 5, 10 * S, 5),
        ("1/2days", 1, 2 * D, 1),
        ("100/1h", 100, H, 100),
        ("7/ms", 7, MS, 7),
        ("7/week", 7, 7 * D, 7),
        # limits: multiples, any case, no blanks needed, 30-day months, 360-day years
        ("1 per 1 minute", 1, MIN, 1),
        ("10PER5Minutes", 10, 5 * MIN, 10),
        ("3/2 months", 3, 2 * MONTH, 3),
        ("3/year", 3, YEAR, 3),
        ("010/day", 10, D, 10),
        # Django REST framework: any word of these
        ("10/sec", 10, S, 10),
        ("10/min", 10, MIN, 10),
        ("10/hour", 10, H, 10),
        ("10/day", 10, D, 10),
        # django-ratelimit: no unit means seconds
        ("100/5m", 100, 5 * MIN, 100),
        ("100/300s", 100, 5 * MIN, 100),
        ("100/300", 100, 5 * MIN, 100),
        ("100/300 burst 7", 100, 5 * MIN, 7),
        # throttled-py: abbreviations, burst, empty rules
        ("10/hr", 10, H, 10),
        ("10 per wks", 10, 7 * D, 10),
        ("10/S Burst 20", 10, S, 20),
        ("10/s;", 10, S, 10),
        (" , 10/s | ", 10, S, 10),
        # numbers
        ("1_000/s", 1000, S, 1000),
        ("10k/s", 10_000, S, 10_000),
        ("10K per min", 10_000, MIN, 10_000),
        ("1M/day", 1_000_000, D, 1_000_000),
        ("1.5kper2h", 1500, 2 * H, 1500),
        ("2.5M/day burst 1k", 2_500_000, D, 1000),
        ("5/s burst 1.5k", 5, S, 1500),
        # fractions: exact, and the default burst is the count as written, rounded up
        ("0.5/s", 1, 2 * S, 1),
        ("10/0.5s", 10, S // 2, 10),
        ("2.5/min", 5, 2 * MIN, 3),
        ("0.1/s", 1, 10 * S, 1),
        ("10.0/min", 10, MIN, 10),
        ("0.5/0.5 s", 1, S, 1),
        ("0.5/1.0000000005s", 1, 2 * S + 1, 1),
        ("1/0.0000003s", 1, 300, 1),
        ("1/0.1234567891s", 10, 1_234_567_891, 1),
        ("0.001/1.5 h", 1, 1500 * H, 1),
        # white space
        ("\t10 \n/\r s \v\f", 10, S, 10),
        ("10/s\t burst\t\t5\n", 10, S, 5),
    ],
)
def test_read(text: str, count: int, period_ns: int, burst: int) -> None:
    assert Rate.parse(text) == Rate(count, period_ns, burst)


UNITS = {
    MS: "ms msec msecs millisecond milliseconds",
    S: "s sec secs second seconds",
    MIN: "m min mins minute minutes",
    H: "h hr hrs hour hours",
    D: "d day days",
    7 * D: "w wk wks week weeks",
    MONTH: "month months",
    YEAR: "y yr yrs year years",
}


@pytest.mark.parametrize(
    ("unit", "unit_ns"), [(unit, ns) for ns, line in UNITS.items() for unit in line.split()]
)
def test_every_unit_in_every_form(unit: str, unit_ns: int) -> None:
    assert Rate.parse(f"6/{unit}") == Rate(6, unit_ns, 6)
    assert Rate.parse(f"6 per {unit.upper()}") == Rate(6, unit_ns, 6)
    assert Rate.parse(f"6/1{unit}") == Rate(6, unit_ns, 6)
    assert Rate.parse(f"6 per 2 {unit} burst 9") == Rate(6, 2 * unit_ns, 9)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10 per 1 second", "10/s"),
        ("100/s burst 500", "100/s burst 500"),
        ("100/s burst 100", "100/s"),
        ("10/90s", "10/90s"),
        ("10/120s", "10/2min"),
        ("10/24h", "10/d"),
        ("10/7d", "10/week"),
        ("10/14d", "10/2week"),
        ("10/30d", "10/month"),
        ("10/12months", "10/year"),
        ("0.5/s", "1/2s"),
        ("2.5/min", "5/2min burst 3"),
        ("10/0.5s", "10/500ms"),
        ("1/0.00125ms", "1/0.00125ms"),
        ("1/1.000001ms", "1/1.000001ms"),
        ("1k/s", "1000/s"),
    ],
)
def test_canonical_spelling(text: str, canonical: str) -> None:
    assert str(Rate.parse(text)) == canonical
    assert Rate.parse(canonical) == Rate.parse(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        (" \t\n", "it is empty"),
        (";,|", "it is empty"),
        ("fast", "must begin with a count"),
        ("/s", "must begin with a count"),
        ("per s", "must begin with a count"),
        ("-5/s", "must begin with a count"),
        ("+5/s", "must begin with a count"),
        (".5/s", "must begin with a count"),
        ("10", "after the count comes '/' or 'per', but nothing follows"),
        ("10 s", "after the count comes '/' or 'per', not 's'"),
        ("10k", "after the count comes '/' or 'per', not 'k'"),
        ("10kk/s", "after the count comes '/' or 'per', not 'kk/s'"),
        ("10m/s", "not 'm/s' (a million is M)"),
        ("10m per s", "not 'm per s' (a million is M)"),
        ("1e3/s", "after the count comes '/' or 'per', not 'e3/s'"),
        ("5./s", "after the count comes '/' or 'per', not './s'"),
        ("1_/s", "after the count comes '/' or 'per', not '_/s'"),
        ("1__0/s", "after the count comes '/' or 'per', not '__0/s'"),
        ("0x10/s", "after the count comes '/' or 'per', not 'x10/s'"),
        ("10/", "after '/' comes a period such as s or 5min, but nothing follows"),
        ("10 per", "after 'per' comes a period such as s or 5min, but nothing follows"),
        ("10//s", "after '/' comes a period such as s or 5min, not '/s'"),
        ("10/ burst 5", "after '/' comes a period such as s or 5min, not 'burst 5'"),
        ("10/-5s", "after '/' comes a period such as s or 5min, not '-5s'"),
        ("10/fortnight", "'fortnight' is not a unit of time"),
        ("10/secnd", "'secnd' is not a unit of time; did you mean 'second'?"),
        ("10/monthly", "'monthly' is not a unit of time; did you mean 'month'?"),
        ("10/us", "'us' is not a unit of time; write parts of a millisecond, such as 0.25ms"),
        ("10/ns", "'ns' is not a unit of time; write parts of a millisecond, such as 0.25ms"),
        ("10/5k", "'k' is not a unit of time"),
        ("10/s/s", "after the period comes 'burst N' or nothing, not '/s'"),
        ("10/s5", "after the period comes 'burst N' or nothing, not '5'"),
        ("10/s burst", "after the period comes 'burst N' or nothing, not 'burst'"),
        ("10/s burst5", "after the period comes 'burst N' or nothing, not 'burst5'"),
        ("10/s burst -5", "after the period comes 'burst N' or nothing, not 'burst -5'"),
        ("10/s burst 5m", "after the period comes 'burst N' or nothing, not 'burst 5m'"),
        ("10/s burst 5 burst 6", "after the period comes 'burst N' or nothing, not 'burst 5"),
        ("10/s burst 2.5", "the burst must be a whole number, not 2.5"),
        ("10/s burst 0.0001k", "the burst must be a whole number, not 0.0001k"),
        ("10/s burst 0", "the burst must be at least 1"),
        ("0/s", "the count must be more than 0"),
        ("0.000/s", "the count must be more than 0"),
        ("10/0 minutes", "the period must be longer than 0"),
        ("1,000/s", "write 1_000 for thousands and 0.5 for decimals"),
        ("0,5/s", "write 1_000 for thousands and 0.5 for decimals"),
        ("16000000001/s", "too fast"),
        ("17/0.000001ms", "too fast"),
        ("1/10years", "too slow"),
        ("1/d burst 1M", "too slow"),
        (f"{2**63}/{10**9}s", "below 2**63"),
        ("1." + "3" * 30 + "/s", "below 2**63"),
        ("1" + "0" * 190 + "/y", "below 2**63"),
        ("9" * 201, "201 characters are too long"),
        ("1\0/s", r"the character '\x00' is not plain ASCII"),
        ("1/s\x1b[31m", r"the character '\x1b' is not plain ASCII"),
        ("1\u0663/s", r"the character '\u0663' is not plain ASCII"),  # an Arabic digit
        ("\uff11/s", r"the character '\uff11' is not plain ASCII"),  # a full-width digit
        ("1\u00a0/s", r"the character '\xa0' is not plain ASCII"),  # a no-break space
        ("1/\ud800", r"the character '\ud800' is not plain ASCII"),  # a lone surrogate
        ("1/\u017f", r"the character '\u017f' is not plain ASCII"),  # lower() of it is "s"
    ],
)
def test_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidRate) as refusal:
        Rate.parse(text)
    message = str(refusal.value)
    assert fault in message
    assert message.startswith(f"rate {text!r}: " if len(text) <= 200 else "rate '9999999999")
    assert "; accepted: COUNT/PERIOD" in message
    assert message.isprintable(), "one line, nothing that a terminal would obey"


@pytest.mark.parametrize(
    "value", [10, 0.5, None, b"10/s", ("10/s",), Fraction(1, 2), Rate(1, S, 1)], ids=repr
)
def test_only_text_is_a_rate(value: object) -> None:
    with pytest.raises(TypeError, match="a rate is a string such as '100/s', not "):
        Rate.parse(value)  # type: ignore[arg-type]


WORDS = re.findall(r"\S+", "0 1 10 1_000 0.5 . _ k K M m / per s min ms burst BURST ; , | - + e")
CHARACTERS = [" ", "\t", "\n", "\0", "\u0663", "\ud800", "9" * 60, "0." + "0" * 40 + "1"]
PIECES = st.sampled_from([*WORDS, *CHARACTERS])


@UNHURRIED
@given(st.one_of(st.text(max_size=250), st.lists(PIECES, max_size=12).map("".join)))
@example("9" * 200)
@example("1/" + "9" * 198)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        rate = Rate.parse(text)
    except InvalidRate as error:
        message = str(error)
    else:
        assert Rate.parse(str(rate)) == rate
        return
    assert "accepted" in message
    assert message.isprintable()


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    """Rates all over what is accepted, the bounds included."""
    period_ns = draw(
        st.one_of(
            st.integers(1, 2**63 - 1),
            st.builds(
                lambda unit, multiple: unit * multiple,
                st.sampled_from(sorted(UNITS)),
                st.integers(1, 100),
            ),
        )
    )
    fewest = 16 * period_ns // (REFILL_TICKS_MAX - 1) + 1
    count = draw(st.integers(fewest, min(16 * period_ns, 2**63 - 1)))
    most = (REFILL_TICKS_MAX - 1) // -(-16 * period_ns // count)
    burst = draw(st.one_of(st.integers(1, most), st.just(most), st.just(min(most, count))))
    return Rate(count, period_ns, burst)


@UNHURRIED
@given(rates())
def test_every_rate_survives_its_spelling_and_pickling(rate: Rate) -> None:
    assert Rate.parse(str(rate)) == rate
    assert pickle.loads(pickle.dumps(rate)) == rate
    assert hash(pickle.loads(pickle.dumps(rate))) == hash(rate)


@UNHURRIED
@given(rates())
def test_interval_is_rounded_up(rate: Rate) -> None:
    exact = Fraction(16 * rate.period_ns, rate.count)
    assert exact <= rate.interval_ticks < exact + 1
    assert rate.interval_ticks >= 1


DIGITS = st.text("0123456789", min_size=1, max_size=4)
DECIMALS = st.builds(lambda whole, part: f"{whole}.{part}", DIGITS, DIGITS)


@UNHURRIED
@given(DECIMALS, DECIMALS, st.sampled_from(sorted(UNITS)))
def test_decimals_are_exact(count: str, multiple: str, unit_ns: int) -> None:
    cells, period_ns = Fraction(count), Fraction(multiple) * unit_ns
    burst = max(1, math.ceil(cells))
    try:
        rate = Rate.parse(f"{count}/{multiple}{UNITS[unit_ns].split()[0]}")
    except InvalidRate:
        assert (
            not cells
            or not period_ns
            or burst * math.ceil(16 * period_ns / cells) >= 2**61
            or period_ns * cells.denominator >= 2**63
        )
    else:
        assert Fraction(rate.count, rate.period_ns) == cells / period_ns
        assert rate.burst == burst


def test_a_tick_for_a_cell_is_the_fastest() -> None:
    assert Rate(16, 1, 1).interval_ticks == 1
    assert Rate.parse("16/0.000001ms") == Rate(16, 1, 16)
    with pytest.raises(InvalidRate, match=r"Rate\(17, 1, 1\): too fast.*accepted"):
        Rate(17, 1, 1)


def test_the_slowest_refill() -> None:
    interval_ticks = 16 * S
    most = (2**61 - 1) // interval_ticks
    assert Rate.parse(f"1/s burst {most}").burst == most
    with pytest.raises(InvalidRate, match="too slow"):
        Rate.parse(f"1/s burst {most + 1}")
    assert Rate(1, 2**57 - 1, 1).interval_ticks == 2**61 - 16
    with pytest.raises(InvalidRate, match="too slow"):
        Rate(1, 2**57, 1)  # 2**61 ticks exactly
    assert Rate(16, 1, 2**61 - 1).burst == 2**61 - 1
    with pytest.raises(InvalidRate, match="too slow"):
        Rate(16, 1, 2**61)


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ((0, S, 1), "the count must be more than 0"),
        ((-1, S, 1), "the count must be more than 0"),
        ((1, 0, 1), "the period must be longer than 0"),
        ((1, -S, 1), "the period must be longer than 0"),
        ((1, S, 0), "the burst must be at least 1"),
        ((2**63, 2**60, 1), "below 2**63"),
        ((2**60, 2**63, 1), "below 2**63"),
        ((10**5000, 10**5000, 10**5000), "below 2**63"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_refused_numbers(numbers: tuple[int, int, int], fault: str) -> None:
    with pytest.raises(InvalidRate) as refusal:
        Rate(*numbers)
    assert fault in str(refusal.value)
    assert "accepted: count, period in ns, burst" in str(refusal.value)


@pytest.mark.parametrize("wrong", [True, False, 1.0, "1", None, Fraction(1)], ids=repr)
@pytest.mark.parametrize("field", ["count", "period_ns", "burst"])
def test_numbers_are_ints(field: str, wrong: object) -> None:
    numbers: dict[str, object] = {"count": 1, "period_ns": S, "burst": 1, field: wrong}
    with pytest.raises(
        TypeError, match=f"Rate: {field} must be an int, not {type(wrong).__name__}"
    ):
        Rate(**numbers)  # type: ignore[arg-type]


def test_a_rate_is_a_value() -> None:
    rate = Rate.parse("10/s")
    assert rate == Rate(10, S, 10)
    assert {rate: 1}[Rate(10, S, 10)] == 1
    with pytest.raises(FrozenInstanceError):
        rate.count = 11  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        rate.colour = 1  # type: ignore[attr-defined]
    assert issubclass(InvalidRate, ConfigError)
    assert issubclass(InvalidRate, ValueError)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("0", 0),
        ("1_000_000", 1_000_000),
        ("250k", 250_000),
        ("1M", 1_000_000),
        ("1.5M", 1_500_000),
        ("0.0001k", None),
        ("1.5", None),
        ("", None),
        ("M", None),
        ("1m", None),
        ("1G", None),
        ("-1", None),
        (" 1", None),
        ("1 M", None),
        ("1\n", None),
        ("\u0663", None),
        ("9" * 5000, None),
    ],
)
def test_quantities(text: str, number: int | None) -> None:
    assert parse_quantity(text) == number


def test_what_is_shown_is_short_and_safe() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 10**6)) < 250
    assert len(shown([["x" * 100] * 100] * 100)) < 5000
    assert shown(10 ** (sys.get_int_max_str_digits() + 1)) == "(a huge int)"
    nested: list[object] = []
    for _ in range(10**5):
        nested = [nested]
    assert len(shown(nested)) < 250


@pytest.mark.parametrize(
    "text",
    ["5 per second; 100/day burst 200", "5/s,100/d burst 200", "5/s | 100 per day burst 200;"],
)
def test_several_rates_in_one_text(text: str) -> None:
    several = Rate.parse_several(text)
    assert several == (Rate.parse("5/s"), Rate.parse("100/d burst 200"))
    assert Rate.parse_several("; ".join(map(str, several))) == several


def test_one_rate_is_one_of_several() -> None:
    assert Rate.parse_several("5/s") == (Rate.parse("5/s"),)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("5/s; 100/day", "these are 2 rates; accepted: one"),
        ("5/s; 5 per second", "5/s is there twice; accepted: each rate once"),
        ("; ".join(f"{count}/s" for count in range(1, 10)), "there are 9 rates; accepted: 1 to 8"),
    ],
)
def test_several_rates_that_are_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidRate, match=fault):
        Rate.parse(text)


def test_the_fault_of_one_of_several_is_told() -> None:
    with pytest.raises(InvalidRate, match=r"'0/day; 5/s': the count must be more than 0"):
        Rate.parse_several("0/day; 5/s")


@pytest.mark.parametrize(
    ("before", "after", "cells"),
    [
        ("100/s burst 500", "25/s burst 500", 375),
        ("25/s burst 500", "100/s burst 500", 0),
        ("100/s", "200/s", 0),
        ("100/s", "10/s", 0),
        ("7/s burst 10", "3/s burst 10", 6),  # 5.71 and rounded up
        ("1/h", "1/h burst 10000", 9999),
    ],
)
def test_what_a_change_of_rate_lets_pass(before: str, after: str, cells: int) -> None:
    assert Rate.parse(after).surplus_after(Rate.parse(before)) == cells
