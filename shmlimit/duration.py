"""A length of time as people write it: "200ms", "10s", "5 min".

    duration  =  number [unit], no unit means seconds
    number    =  digits, may be grouped by "_" and have decimals: 1_000, 0.5
    unit      =  ms, s, min, h, d, week, month or year, and the other spellings in _SPELLINGS

Upper and lower case are the same. The units are those of the periods of rates.
"""

from __future__ import annotations

import re
from fractions import Fraction

NUMBER = r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?"

_SECOND = 10**9
UNITS_NS = {  # canonical spelling -> ns, shortest first
    "ms": 10**6,
    "s": _SECOND,
    "min": 60 * _SECOND,
    "h": 3_600 * _SECOND,
    "d": 86_400 * _SECOND,
    "week": 7 * 86_400 * _SECOND,
    "month": 30 * 86_400 * _SECOND,
    "year": 360 * 86_400 * _SECOND,
}
_SPELLINGS = {
    "ms": "ms msec msecs millisecond milliseconds",
    "s": "s sec secs second seconds",
    "min": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
    "week": "w wk wks week weeks",
    "month": "month months",
    "year": "y yr yrs year years",
}
SPELLED_NS = {
    spelling: UNITS_NS[unit] for unit, line in _SPELLINGS.items() for spelling in line.split()
}

_DURATION = re.compile(rf"({NUMBER})\s*([A-Za-z]*)")
_TEXT_MAX = 100  # characters


def parse_duration_s(text: str) -> float | None:
    """Seconds, or None when the text is no duration."""
    matched = _DURATION.fullmatch(text.strip()) if len(text) <= _TEXT_MAX else None
    unit_ns = SPELLED_NS.get(matched[2].lower() or "s") if matched else None
    if matched is None or unit_ns is None:
        return None
    return float(Fraction(matched[1].replace("_", "")) * unit_ns / _SECOND)
