# GCRA as a pure step: gcra.h.

from libc.stdint cimport uint64_t


cdef extern from "gcra.h" nogil:
    ctypedef struct gcra_outcome:
        bint allowed
        uint64_t state
        uint64_t retry_ticks

    gcra_outcome gcra_step(uint64_t state, uint64_t now, uint64_t interval_ticks,
                           uint64_t tolerance_ticks, uint64_t cost)
    uint64_t gcra_remaining(uint64_t state, uint64_t now, uint64_t interval_ticks,
                            uint64_t tolerance_ticks)
    uint64_t gcra_wait(uint64_t state, uint64_t now, uint64_t interval_ticks,
                       uint64_t tolerance_ticks, uint64_t cost)
    uint64_t ticks_to_ns(uint64_t ticks)
