# cython: auto_pickle=False
"""The compiled core: a table of buckets in shared memory, and the limits that decide on it.

Reads top to bottom: clock and key -> Decision -> header -> Table -> Limit. The protocol is in
slots.h, the algorithm in gcra.h, the layout in layout.h. Everything here runs with the GIL held: a
decision takes less time than giving it up and taking it again.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from clock cimport clock_monotonic_ns, ticker, ticker_now
from gcra cimport gcra_outcome, gcra_remaining, gcra_step, gcra_wait, ticks_to_ns
from layout cimport *
from slots cimport *

import operator
import asyncio
import os
import time
from typing import NamedTuple

from shmlimit.errors import (
    CostExceedsBurst, LimiterClosed, LimitNotFound, LimitRemoved, TableDamaged, TooManyLimits,
    WrongGeometry, WrongLayout, WrongMagic, WrongSize,
)
from shmlimit.limited import limited
from shmlimit.process import process_lives, process_start_ticks
from shmlimit.rate import Rate
from shmlimit.share import Share

cdef extern from "slots.h" nogil:
    cleared slots_clear(const slot_table *table, uint64_t fp, uint64_t now)

cdef extern from "counters.h" nogil:
    const int OWNER_PID_BITS
    uint32_t process_forks
    int counters_watch_forks()
    void counters_add(uint64_t *counter, uint64_t n, bint shared)

cdef extern from "limit.h" nogil:
    ctypedef struct limit_view:
        const limit_row *row
        uint64_t head
        siphash_state keyed
        limit_numbers numbers
        slot_table slots
        ticker clock
        limit_counters *counters
        bint counters_shared
        uint32_t forks

    bint limit_ready(const limit_view *v)
    uint64_t limit_fingerprint(const limit_view *v, const uint8_t *key, size_t bytes)
    uint64_t limit_fingerprint_joined(const limit_view *v, const uint8_t *key, size_t bytes)
    limit_view limit_reaching(const limit_view *v, uint64_t cost, uint64_t reach_ticks)
    uint64_t limit_charge(const limit_view *v, uint64_t fp, uint64_t cells, uint64_t now)
    void limit_prefetch(const limit_view *v, uint64_t fp)
    bint limit_decide(const limit_view *v, uint64_t fp, uint64_t cost, uint64_t now, bint peek,
                      slots_outcome *out)

cdef extern from "rates.h" nogil:
    ctypedef struct rates_outcome:
        slots_outcome of[8]
        uint32_t deciding
        uint32_t taken

    uint32_t rates_deciding(const limit_view *v, uint32_t rates, const slots_outcome *of)
    void rates_decide(const limit_view *v, uint32_t rates, const uint64_t *fp, uint64_t cost,
                      uint64_t now, bint peek, rates_outcome *out)
    bint rates_record(const limit_view *v, const rates_outcome *out, uint64_t cost)

cdef extern from "syncing.h":
    pass

cdef extern from *:
    object PyNumber_Index(object)
    bint PyLong_CheckExact(object)
    bint PyUnicode_Check(object)
    bint PyUnicode_CheckExact(object)
    bint PyBytes_Check(object)
    bint PyTuple_Check(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void *PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    PyObject **PySequence_Fast_ITEMS(object)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *size) except NULL
    unsigned long long PyLong_AsUnsignedLongLong(object) except? 0xffffffffffffffff
    long long PyLong_AsLongLong(object) except? -1

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
include "header.pxi"
include "table.pxi"
include "publication.pxi"
include "hosts.pxi"
include "limit.pxi"
include "waiting.pxi"
include "rates.pxi"
