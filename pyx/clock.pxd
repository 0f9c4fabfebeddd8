# The clock and its scale: clock.h.

from libc.stdint cimport uint64_t


cdef extern from "clock.h" nogil:
    ctypedef uint64_t (*read_ns_function)(void *context) noexcept

    ctypedef struct ticker:
        uint64_t epoch_ns
        read_ns_function read_ns
        void *context

    uint64_t clock_monotonic_ns()
    uint64_t clock_ticks(uint64_t ns, uint64_t epoch_ns)
    uint64_t ticker_now(const ticker *t)
