"""What every decision has to do at least, over the product's own headers.

Read the clock, hash the key, load one line of the table: a limiter that leaves one of them out is
not the same limiter. Whatever a decision costs above this is the product's.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport uint8_t, uint64_t

from clock cimport ticker, ticker_now
from gcra cimport gcra_outcome, gcra_step
from slots cimport (
    siphash_begin, siphash_finish, siphash_prefix, siphash_state, slot_fingerprint, slot_line,
    slot_set, slot_table, slot_word, slots_of,
)

cdef extern from "slots.h" nogil:
    slot_word *slots_at(slot_set set, int i)
    uint64_t load64_slot(const uint64_t *p)

cdef extern from *:
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void *PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)


@cython.final
cdef class Floor:
    """Over memory for slots, at least two lines of 64 bytes, which it only reads."""

    cdef Py_buffer view
    cdef slot_table slots
    cdef siphash_state keyed
    cdef ticker clock

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.slots.lines = <slot_line *>self.view.buf
        self.slots.count = self.view.len // 64
        if self.slots.count < 2:
            raise ValueError(f"the floor needs 128 bytes of memory, not {self.view.len}")
        self.keyed = siphash_prefix(siphash_begin(1, 2), 3)
        self.clock.epoch_ns = 0
        self.clock.read_ns = NULL

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def empty(self, key):
        """Nothing: what calling a method costs."""
        return True

    def empty_of_two(self, key, cost=1):
        """Nothing, with the arguments of a decision."""
        return True

    def touch(self, key):
        """Clock, hash and one load. True when the slot is dead, which depends on all three."""
        cdef uint64_t fp, now
        if not PyUnicode_CheckExact(key) or not PyUnicode_IS_COMPACT_ASCII(key):
            raise TypeError(f"the floor takes ASCII strings only, not {key!r}")
        fp = slot_fingerprint(siphash_finish(self.keyed, <const uint8_t *>PyUnicode_DATA(key),
                                             PyUnicode_GET_LENGTH(key)))
        now = ticker_now(&self.clock)
        return load64_slot(&slots_at(slots_of(&self.slots, fp), 0).v) >> 1 < now


@cython.final
cdef class Bucket:
    """One bucket in memory that others map, with nothing to keep them apart: for use under a lock.

    The step is compiled, so that a comparison with it shows what the lock costs, not Python.
    """

    cdef Py_buffer view
    cdef uint64_t interval_ticks, tolerance_ticks
    cdef ticker clock

    def __cinit__(self, memory, uint64_t interval_ticks, uint64_t tolerance_ticks):
        PyObject_GetBuffer(memory, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if self.view.len < 8:
            raise ValueError(f"a bucket takes 8 bytes, not {self.view.len}")
        self.interval_ticks = interval_ticks
        self.tolerance_ticks = tolerance_ticks
        self.clock.epoch_ns = 0
        self.clock.read_ns = NULL

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def take(self):
        """One decision of one cell. The caller holds the lock."""
        cdef uint64_t *state = <uint64_t *>self.view.buf
        cdef gcra_outcome out = gcra_step(state[0], ticker_now(&self.clock), self.interval_ticks,
                                          self.tolerance_ticks, 1)
        state[0] = out.state
        return out.allowed
