# The clock as the core reads it: the system's, or a callable that a test injects.


@cython.final
cdef class _InjectedClock:
    """A Python callable behind the core's ticker. An exception waits until the decision is over."""

    cdef object call
    cdef object error

    def __cinit__(self, call):
        self.call = call
        self.error = None


cdef uint64_t _read_injected(void *context) noexcept with gil:
    cdef _InjectedClock clock = <_InjectedClock>context
    cdef uint64_t now_ns = 0
    try:
        now_ns = PyNumber_Index(clock.call())
    except BaseException as error:
        clock.error = error
    return now_ns


cdef inline int raise_clock_error(_InjectedClock clock) except -1:
    cdef object error
    if clock is not None and clock.error is not None:
        error, clock.error = clock.error, None
        raise error
    return 0


def monotonic_ns():
    """The system's monotonic clock, in nanoseconds: what a limiter reads by default."""
    return clock_monotonic_ns()


def step(uint64_t state, uint64_t now, uint64_t interval_ticks, uint64_t tolerance_ticks,
         uint64_t cost):
    """One GCRA step, all in ticks: (allowed, state after, remaining cells, retry ticks).

    For tests of the algorithm against exact values. Raises ValueError for numbers that no limit
    has.
    """
    if not 0 < interval_ticks <= tolerance_ticks:
        raise ValueError(
            f"interval_ticks must be 1..tolerance_ticks, not {interval_ticks} of {tolerance_ticks}"
        )
    cdef gcra_outcome out = gcra_step(state, now, interval_ticks, tolerance_ticks, cost)
    return (bool(out.allowed), out.state,
            gcra_remaining(out.state, now, interval_ticks, tolerance_ticks), out.retry_ticks)
