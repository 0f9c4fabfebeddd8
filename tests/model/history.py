"""What was admitted when: the ghost that the window bound is checked on."""

from __future__ import annotations

from typing import NamedTuple

from .memory import Limit

Epoch = tuple[tuple[int, int], ...]
"""(decision time in ticks, cells admitted then), by time. Of a key, since it was last forgiven."""


class History(NamedTuple):
    epochs: tuple[Epoch, ...]  # one a key
    spent: int = 0  # ticks: cells * T over all keys and epochs


def with_cells(epoch: Epoch, now: int, cells: int) -> Epoch:
    if not cells:
        return epoch
    times = dict(epoch)
    times[now] = times.get(now, 0) + cells
    return tuple(sorted(times.items()))


def admitted(history: History, key: int, limit: Limit, now: int, cells: int) -> History:
    epoch = with_cells(history.epochs[key], now, cells)
    return History(replaced(history.epochs, key, epoch), history.spent + cells * limit.interval)


def forgotten(history: History, key: int) -> History:
    """A new epoch of the key."""
    return history._replace(epochs=replaced(history.epochs, key, ()))


def replaced(epochs: tuple[Epoch, ...], key: int, epoch: Epoch) -> tuple[Epoch, ...]:
    return (*epochs[:key], epoch, *epochs[key + 1 :])


def overdrawn(epoch: Epoch, limit: Limit) -> str | None:
    """The window that admitted more than burst + elapsed / T, if there is one.

    The windows that start and end at a decision suffice: any other contains the same cells as a
    shorter one of these. cells and burst are whole, so elapsed / T may be rounded down.
    """
    for start in range(len(epoch)):
        first, cells = epoch[start][0], 0
        for last, taken in epoch[start:]:
            cells += taken
            allowed = limit.burst + (last - first) // limit.interval
            if cells > allowed:
                return f"{cells} cells admitted from {first} to {last}, at most {allowed} allowed"
    return None


def owed(epoch: Epoch, limit: Limit, now: int) -> int:
    """Cells that must still be admitted now if no cell was charged twice.

    A step sets the state to max(state, reading) + cells * T, so in any order of the steps it is at
    most the latest reading + all cells * T.
    """
    if not epoch:
        return limit.burst
    state = epoch[-1][0] + sum(cells for _, cells in epoch) * limit.interval
    return max(0, now + limit.tolerance - max(state, now)) // limit.interval
