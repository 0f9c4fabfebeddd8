"""The answer of several limits to one request, which is admitted only when all of them allow it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from shmlimit._core import Decision, Limit
from shmlimit.key import Key

if TYPE_CHECKING:
    from shmlimit.limiter import Limiter

Request = tuple[str, Key] | tuple[str, Key, int]  # a limit's name, a key, and a cost unless 1
Bucket = tuple[Limit, Key, int]


class Decisions(tuple[Decision, ...]):
    """The Decisions of several limits on one request, in the order asked. True when all allow it.

    When it is refused, those that refuse have `allowed` False; the others say what their limits
    would have answered.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return all(self)

    @property
    def allowed(self) -> bool:
        """Whether the request may pass: whether all limits allow it."""
        return all(self)

    @property
    def deciding(self) -> Decision:
        """The one that decided: of those that refuse the one with the longest wait; when all allow,
        the one with the fewest cells remaining."""
        refusing = [decision for decision in self if not decision]
        if refusing:
            return max(refusing, key=lambda decision: decision.retry_after_ns)
        return min(self, key=lambda decision: decision.remaining)

    @property
    def retry_after(self) -> float:
        """Seconds until every limit would allow the same request, if nothing else is taken."""
        return self.retry_after_ns / 1e9

    @property
    def retry_after_ns(self) -> int:
        """The same in nanoseconds, rounded up."""
        return max(decision.retry_after_ns for decision in self)


def hit_all(limiter: Limiter, requests: Iterable[Request]) -> Decisions:
    """Takes from all limits when all allow, else from none; `Limiter.hit_all` says the rest."""
    asked = [_bucket(limiter, request) for request in requests]
    if len(asked) == 1:
        limit, key, cost = asked[0]
        return Decisions((limit.hit(key, cost),))
    if not asked:
        raise ValueError("hit_all was asked for no limit: give at least one (limit, key)")
    if len({limit for limit, _, _ in asked}) == len(asked):
        return Decisions(_decide(asked))
    buckets, places = _without_twins(asked)
    decisions = _decide(buckets)
    return Decisions([decisions[place] for place in places])


def _decide(buckets: list[Bucket]) -> list[Decision]:
    decisions = [limit.peek(key, cost) for limit, key, cost in buckets]
    takers: Sequence[int] = range(len(buckets))
    refusing: list[int] = []
    if not all(decisions):
        # Those that would refuse are hit first, so that the refusal is counted while nothing has
        # been taken from the others.
        refusing = [i for i in takers if not decisions[i]]
        takers = [i for i in takers if decisions[i]]
        for i in refusing:
            limit, key, cost = buckets[i]
            decisions[i] = limit.hit(key, cost)
        if not all(decisions):
            _count_lost(buckets, decisions, refusing)
            return decisions
    for place, i in enumerate(takers):
        limit, key, cost = buckets[i]
        decisions[i] = limit.hit(key, cost)
        if not decisions[i]:
            _count_lost(buckets, decisions, [*refusing, *takers[:place]])
            break
    return decisions


def _count_lost(buckets: list[Bucket], decisions: list[Decision], hit: list[int]) -> None:
    """Of those that were hit, some may have taken: their answers changed since the look at them."""
    for i in hit:
        if decisions[i]:
            limit, _, cost = buckets[i]
            limit._count_lost(decisions[i], cost)


def _bucket(limiter: Limiter, request: Request) -> Bucket:
    if not isinstance(request, tuple) or not 2 <= len(request) <= 3:
        raise TypeError(f"hit_all takes tuples (limit, key) or (limit, key, cost), not {request!r}")
    return limiter[request[0]], request[1], request[2] if len(request) == 3 else 1


def _without_twins(asked: list[Bucket]) -> tuple[list[Bucket], list[int]]:
    """The same with each bucket once, at the sum of its costs, and which of them each was.

    A look at each alone would not see that together they are too much.
    """
    buckets: list[Bucket] = []
    places = []
    known: dict[tuple[str, int], int] = {}
    for limit, key, cost in asked:
        limit.peek(key, cost)  # refuses what is no cost, before it is lost in a sum
        place = known.setdefault((limit.name, limit._fingerprint(key)), len(buckets))
        if place == len(buckets):
            buckets.append((limit, key, cost))
        else:
            buckets[place] = (limit, key, buckets[place][2] + cost)
        places.append(place)
    return buckets, places
