"""A running segment as an operator changes it, from outside of the server.

Who changes one is no user of it: it keeps no segment alive, and is never the last to go, who
removes the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from shmlimit.errors import SegmentNotFound
from shmlimit.lock import USERS_BYTE, held
from shmlimit.segment import Segment
from shmlimit.segment_file import opened_file
from shmlimit.segment_name import DIRECTORY, segment_name
from shmlimit.segment_opening import borrow


@contextmanager
def changing(name: str, owner: int) -> Iterator[Segment]:
    """Opens a segment to publish in it.

    Raises what attaching raises, and SegmentNotFound for one that nobody uses: the next server
    would load its configuration all the same.
    """
    path = DIRECTORY + segment_name(name, owner)
    with opened_file(path, owner, os.O_RDWR) as descriptor:
        if not held(descriptor, USERS_BYTE):
            raise SegmentNotFound(
                f"segment {path} was left behind, nobody uses it: start the server first, which "
                f"begins with what its shmlimit.toml says"
            )
        with ExitStack() as stack:
            own = os.dup(descriptor)
            stack.callback(os.close, own)
            segment = borrow(own, name, owner)
            stack.pop_all()
    try:
        yield segment
    finally:
        segment.let_go()
