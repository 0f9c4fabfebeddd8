"""Every failure shmlimit reports, each with its remedy in the message.

A refused request is a value (`Decision`), a failure is an exception. RateLimitExceeded is for where
no value can be handed out: a decorated function returns what is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmlimit._core import Decision


class ShmlimitError(Exception):
    """Base of every exception that shmlimit raises on its own account."""


class ConfigError(ShmlimitError, ValueError):
    """A configuration is wrong: the message names the place, the value and what is accepted."""


class InvalidRate(ConfigError):
    """A rate string or a rate's numbers cannot be used."""


class CostExceedsBurst(ShmlimitError, ValueError):
    """The cost is larger than the limit's burst, so that no wait would ever make it fit."""


class RateLimitExceeded(ShmlimitError):
    """A limit refused the call of a function that `Limit.limited` decorates."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    @property
    def retry_after(self) -> float:
        """Seconds until the same call would pass, if no other does before; exact in
        decision.retry_after_ns."""
        return self.decision.retry_after

    def __str__(self) -> str:
        decision = self.decision
        return f"limit {decision.name!r} refused: try again in {decision.retry_after:.6g} s"


class LimitNotFound(ShmlimitError, KeyError):
    """The limiter has no limit of that name."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class LimitRemoved(ShmlimitError):
    """The limit was removed from the configuration while it was in use. `name` is the limit's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"limit {self.name!r} was removed from the configuration: put it back there, or do not "
            f"use it"
        )


class TooManyLimits(ShmlimitError):
    """The segment has no row left for another limit."""


class LimiterClosed(ShmlimitError):
    """The limiter was closed in this process."""


class SourceFailed(ShmlimitError):
    """A source of the host count has no answer to rely on: the message says what was found, where,
    and what is accepted. The last good count stands."""


class AgentNotStarted(ShmlimitError):
    """The agent cannot be started: the count of hosts and the limits stay as they are."""


class TableDamaged(ShmlimitError):
    """`check()` found a structural invariant broken: the message lists the evidence."""


class SegmentError(ShmlimitError, OSError):
    """A shared-memory segment cannot be made, attached or trusted. Nothing was modified."""


class SegmentNotFound(SegmentError):
    """No segment of that name exists."""


class SegmentInUse(SegmentError):
    """The segment is the table of another server, which runs."""


class NotEnoughMemory(SegmentError):
    """/dev/shm cannot hold the segment: names the size needed, the size free and the remedy."""


class ForeignOwner(SegmentError):
    """The segment belongs to another user."""


class UnsafePermissions(SegmentError):
    """Group or others may read or write the segment."""


class NotRegularFile(SegmentError):
    """What bears the segment's name is a link, a directory, a FIFO or a device."""


class WrongMagic(SegmentError):
    """The file is not a shmlimit segment."""


class WrongLayout(SegmentError):
    """The segment was made by a version of shmlimit with another layout."""


class WrongSize(SegmentError):
    """The file's size is not the size that its header states."""


class WrongGeometry(SegmentError):
    """The header's sections do not fit together."""


class WrongKeys(SegmentError):
    """The segment was made for another number of keys, and runs."""


class WrongName(SegmentError):
    """The segment was made under another name: the file was renamed, or two long names have the
    same short one."""


class ForeignBoot(SegmentError):
    """The segment was made before the last boot: its clock readings mean nothing now."""


class ForeignClock(SegmentError):
    """The segment runs on another clock."""


class ForeignTimeNamespace(SegmentError):
    """The segment was made in another time namespace, whose clock has another origin."""
