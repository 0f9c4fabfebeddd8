"""The compiled core: a table of buckets in shared memory, and the limits that decide on it.

Reads top to bottom: clock and key -> Decision -> Table -> Limit. The protocol is in slots.h, the
algorithm in gcra.h, the layout in layout.h. Everything here runs with the GIL held: a decision
takes less time than giving it up and taking it again.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from clock cimport clock_monotonic_ns, clock_ticks, ticker, ticker_now
from gcra cimport gcra_outcome, gcra_remaining, gcra_step, ticks_to_ns
from layout cimport *
from slots cimport *

import os
from typing import NamedTuple

from shmlimit.errors import (
    CostExceedsBurst, LimiterClosed, LimitNotFound, SegmentError, TableDamaged, TooManyLimits,
    WrongGeometry, WrongLayout, WrongMagic, WrongSize,
)
from shmlimit.process import process_start_ticks
from shmlimit.rate import Rate

cdef extern from "slots.h" nogil:
    slots_outcome slots_decide(const slot_table *table, const limit_numbers *n, uint64_t fp,
                               uint64_t cost, uint64_t clock_read, const ticker *clock, bint peek)
    cleared slots_clear(const slot_table *table, uint64_t fp, uint64_t now)

cdef extern from "counters.h" nogil:
    const int OWNER_PID_BITS
    uint32_t process_forks
    int counters_watch_forks()
    void counters_record(limit_counters *c, const slots_outcome *out, uint64_t cost,
                         uint32_t mode, bint shared)

cdef extern from "syncing.h":
    pass

cdef extern from *:
    bint PyLong_CheckExact(object)
    bint PyUnicode_Check(object)
    bint PyBytes_Check(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void *PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *size) except NULL
    unsigned long long PyLong_AsUnsignedLongLong(object) except? 0xffffffffffffffff

if not cas128_supported():
    raise ImportError(
        "shmlimit needs the cmpxchg16b instruction, which this processor (or the virtual "
        "machine's processor model) does not offer; choose a CPU model with 'cx16'"
    )
if counters_watch_forks() != 0:
    raise ImportError("shmlimit could not register a fork handler (pthread_atfork failed)")

include "clocks.pxi"
include "keys.pxi"
include "decision.pxi"
include "table.pxi"
include "limit.pxi"
