"""A segment's file as the tests read and damage it, by the offsets of pyx/layout.h."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEADER_BYTES = 4096
SLOT_BYTES = 16
SLOTS_PER_LINE = 4
LIMIT_ROWS = 256
LIMIT_ROW_BYTES = 192
LIMIT_BUFFER_BYTES = 64  # two of them follow 64 bytes of head and name
SECTION_BYTES = 24  # kind u32, item bytes u32, offset u64, items u64
LIMITS, HOSTS, COUNTERS, SLOTS = range(4)  # positions in the directory

# Offset in bytes and struct format of each field of the header.
HEADER_FIELDS = {
    "magic": (0, "Q"),
    "layout_version": (8, "I"),
    "header_bytes": (12, "I"),
    "segment_bytes": (16, "Q"),
    "secret": (24, "16s"),
    "epoch_ns": (40, "Q"),
    "wall_offset_ns": (48, "q"),
    "time_ns_inode": (56, "Q"),
    "pid_ns_inode": (64, "Q"),
    "boot_id": (72, "16s"),
    "clock_id": (88, "I"),
    "worker_rows": (92, "I"),
    "lines": (96, "Q"),
    "name": (488, "208s"),
}
SECTIONS_OFFSET = 104  # bytes
SECTIONS_MAX = 16
# The same within one of a limit row's buffers.
NUMBERS_FIELDS = {
    "interval_ticks": (0, "Q"),
    "tolerance_ticks": (8, "Q"),
    "burst_cells": (16, "Q"),
    "rate_count": (24, "Q"),
    "rate_period_ns": (32, "Q"),
    "salt": (40, "Q"),
    "mode": (48, "H"),
    "when_full": (50, "H"),
    "algorithm": (52, "H"),
    "flags": (54, "H"),
}


class SegmentFile:
    """The bytes of a segment, mapped beside those who use it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory

    @classmethod
    @contextmanager
    def of(cls, path: Path) -> Iterator[SegmentFile]:
        descriptor = os.open(path, os.O_RDWR)
        try:
            memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        try:
            yield cls(memory)
        finally:
            memory.close()

    def header(self, field: str) -> int | bytes:
        offset, form = HEADER_FIELDS[field]
        value: int | bytes = struct.unpack_from("<" + form, self.memory, offset)[0]
        return value

    def set_header(self, field: str, value: int | bytes) -> None:
        offset, form = HEADER_FIELDS[field]
        struct.pack_into("<" + form, self.memory, offset, value)

    def section(self, which: int) -> tuple[int, int, int, int]:
        """(kind, item bytes, offset bytes, items)."""
        at = SECTIONS_OFFSET + which * SECTION_BYTES
        kind, item_bytes, offset, items = struct.unpack_from("<IIQQ", self.memory, at)
        return kind, item_bytes, offset, items

    def set_section(self, which: int, kind: int, item_bytes: int, offset: int, items: int) -> None:
        at = SECTIONS_OFFSET + which * SECTION_BYTES
        struct.pack_into("<IIQQ", self.memory, at, kind, item_bytes, offset, items)

    def slots(self) -> int:
        return self.section(SLOTS)[3] * SLOTS_PER_LINE

    def slot_offset(self, index: int) -> int:
        return self.section(SLOTS)[2] + index * SLOT_BYTES

    def slot(self, index: int) -> tuple[int, int]:
        """(fp, v)"""
        fp, v = struct.unpack_from("<QQ", self.memory, self.slot_offset(index))
        return fp, v

    def set_slot(self, index: int, fp: int, v: int) -> None:
        struct.pack_into("<QQ", self.memory, self.slot_offset(index), fp, v)

    def used_slots(self) -> list[int]:
        return [i for i in range(self.slots()) if self.slot(i) != (0, 0)]

    def row_offset(self, row: int) -> int:
        return self.section(LIMITS)[2] + row * LIMIT_ROW_BYTES

    def set_row_name(self, row: int, name: bytes) -> None:
        struct.pack_into("<52s", self.memory, self.row_offset(row) + 8, name)

    def set_number(self, row: int, field: str, value: int) -> None:
        """In the buffer of the row that is valid now."""
        at = self.row_offset(row)
        (head,) = struct.unpack_from("<Q", self.memory, at)
        offset, form = NUMBERS_FIELDS[field]
        buffer = at + 64 + (head & 1) * LIMIT_BUFFER_BYTES
        struct.pack_into("<" + form, self.memory, buffer + offset, value)
