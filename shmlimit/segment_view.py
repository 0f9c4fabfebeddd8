"""A segment as a monitor sees it: looked at, never used.

A view takes no lock and no row of counters, and its mapping is a private copy: whatever is written
there stays in this process. So a monitor that exits is never the last user, who removes the name,
and one that stays keeps no segment alive.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from shmlimit import _core
from shmlimit.errors import ConfigError, SegmentError
from shmlimit.process import namespace_inode, process_lives
from shmlimit.refusal import refuse_header
from shmlimit.segment import EPOCH_MARGIN_NS, KEYS_PER_LINE
from shmlimit.segment_file import opened_file
from shmlimit.segment_name import DIRECTORY, segment_name


class SegmentView:
    """An open view. `table` is for reading only: a Limit that decides would not be seen by others.

    - name: the limiter's
    - keys: the live keys that the table was made for
    - age_s: seconds since the segment was made, by the segment's clock
    - made_at_s: the same as seconds since 1970, by the wall clock as it stood then
    - same_pids: whether the pids in the segment mean anything to this process
    """

    def __init__(self, path: str, owner: int, table: _core.Table) -> None:
        self.path = path
        self.owner = owner
        self.table = table
        self.header = table.header
        self.name = self.header.name
        self.keys = self.header.lines * KEYS_PER_LINE
        made_ns = self.header.epoch_ns + EPOCH_MARGIN_NS
        self.age_s = (time.monotonic_ns() - made_ns) / 1e9
        self.made_at_s = (made_ns + self.header.wall_offset_ns) / 1e9
        inode = self.header.pid_ns_inode
        self.same_pids = inode != 0 and inode == namespace_inode("pid")

    def worker_lives(self, row: _core.WorkerRow) -> bool | None:
        """Whether the process that a row belongs to still runs; None when that cannot be told from
        here, and for the shared row."""
        if not self.same_pids or row.pid == 0:
            return None
        return process_lives(row.pid, row.start_ticks)


@contextmanager
def viewed(name: str, owner: int) -> Iterator[SegmentView]:
    """Opens a view. Raises what attaching raises, and nothing else for whatever bears the name."""
    with viewed_file(segment_name(name, owner), owner) as view:
        yield view


@contextmanager
def viewed_file(posix_name: str, owner: int) -> Iterator[SegmentView]:
    """The same for a segment's POSIX name."""
    path = DIRECTORY + posix_name
    with opened_file(path, owner, os.O_RDONLY) as descriptor:
        try:
            mapping = mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:  # ValueError: it was emptied just now
            raise SegmentError(
                f"segment {path} cannot be mapped: {error}; raise the limit of address space "
                f"(ulimit -v)"
            ) from error
        mapping.madvise(mmap.MADV_DONTDUMP)  # a core dump would tell the secret of the hash
        header = _core.read_header(mapping, posix_name)
        refuse_header(header, path, _name(header, posix_name, owner), header.epoch_ns)
        yield SegmentView(path, owner, _core.Table(mapping, posix_name, _refuse_to_publish))


def _name(header: _core.Header, posix_name: str, owner: int) -> str:
    """The one that the segment should have been made under: of a shortened name only it tells."""
    with suppress(ConfigError):
        if segment_name(header.name, owner) == posix_name:
            return header.name
    return posix_name.partition(f".{owner}.")[2]


def _refuse_to_publish() -> NoReturn:
    raise SegmentError("a view of a segment publishes nothing: open it with shmlimit.Limiter")
