# The slot protocol and what it stands on: slots.h, siphash.h, atomics.h, counters.h.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from clock cimport ticker


cdef extern from "atomics.h" nogil:
    ctypedef struct slot_word:
        uint64_t fp
        uint64_t v

    bint cas128_supported()
    bint cas64(uint64_t *p, uint64_t expected, uint64_t desired)
    uint64_t load64_acquire(const uint64_t *p)
    uint64_t load64_relaxed(const uint64_t *p)
    void store64_release(uint64_t *p, uint64_t x)
    void add64_shared(uint64_t *p, uint64_t n)
    void prefetch_line(const void *p)


cdef extern from "siphash.h" nogil:
    ctypedef struct siphash_state:
        uint64_t v0

    siphash_state siphash_begin(uint64_t k0, uint64_t k1)
    siphash_state siphash_prefix(siphash_state s, uint64_t block)
    uint64_t siphash_finish(siphash_state s, const uint8_t *data, size_t n)


cdef extern from "layout.h" nogil:
    ctypedef struct slot_line:
        pass


cdef extern from "slots.h" nogil:
    ctypedef struct slot_table:
        slot_line *lines
        uint64_t count

    ctypedef struct slot_set:
        slot_line *line[2]

    ctypedef struct slots_outcome:
        bint allowed
        uint32_t decided_by
        uint32_t evicted
        uint32_t attempts
        uint64_t now
        uint64_t state
        uint64_t retry_ticks

    cdef enum decided_by:
        BY_STEP, BY_FULL_SET, BY_CONTENTION

    cdef enum cleared:
        CLEARED, SET_FULL, CLEAR_CONTENDED

    uint64_t slot_fingerprint(uint64_t hash)
    slot_set slots_of(const slot_table *t, uint64_t fp)


# Numbers and counters of a limit are declared in layout.pxd, which needs slot_word from here; the
# functions that take both are declared where they are used, at the top of _core.pyx.
