"""A sample: all runs of one measurement, kept in the order in which they were made."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Sample:
    """Runs of one thing, in one unit. Nothing is left out: a disturbed run moves the dispersion."""

    runs: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def mad(self) -> float:
        """The median absolute deviation: half of the runs lie within it around the median."""
        middle = self.median
        return median(abs(run - middle) for run in self.runs)

    def minus(self, amount: float) -> Sample:
        """The same runs without a part that every one of them holds, such as a loop."""
        return Sample([run - amount for run in self.runs])

    def over(self, other: Sample) -> Sample:
        """Run by run, this over its neighbour in time in `other`: what disturbs both cancels."""
        if len(self.runs) != len(other.runs):
            raise ValueError(f"{len(self.runs)} runs have no pairs in {len(other.runs)}")
        return Sample([mine / its for mine, its in zip(self.runs, other.runs, strict=True)])

    def shown(self, digits: int) -> str:
        return f"{self.median:.{digits}f} ±{self.mad:.{digits}f}"
