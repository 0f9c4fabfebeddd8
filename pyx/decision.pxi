# What a request is answered.


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Decision:
    """The answer to one request. True when it is allowed.

    Times are what is left at the moment of the decision, on this host, if nothing else is taken:

    - allowed: whether the request may pass
    - shadow: True when the limit is in shadow mode and would have refused it (allowed is True)
    - limit: the limit's burst, in cells: the most that can pass at once
    - name: the name of the limit that decided
    - remaining: whole cells that would still pass at once now
    - retry_after, retry_after_ns: seconds, nanoseconds until the same request would pass; 0 when
      it was allowed (in shadow mode, when it would have been)
    - reset_after, reset_after_ns: until the bucket is full again

    Nanoseconds are exact and rounded up: whoever waits for them is not early.
    """

    cdef readonly bint allowed
    cdef readonly bint shadow
    cdef readonly int64_t limit
    cdef readonly int64_t remaining
    cdef readonly int64_t retry_after_ns
    cdef readonly int64_t reset_after_ns
    cdef readonly str name

    def __init__(self):
        raise TypeError("a Decision is what Limit.hit returns; it is not made by hand")

    def __bool__(self):
        return self.allowed

    @property
    def retry_after(self):
        return self.retry_after_ns / 1e9

    @property
    def reset_after(self):
        return self.reset_after_ns / 1e9

    def __repr__(self):
        return (
            f"Decision({self.name!r}, {'allowed' if self.allowed else 'denied'}"
            f"{' (shadow)' if self.shadow else ''}, limit={self.limit}, "
            f"remaining={self.remaining}, retry_after={self.retry_after:.9f}, "
            f"reset_after={self.reset_after:.9f})"
        )


cdef inline Decision decision_of(str name, const limit_numbers *n, const slots_outcome *out,
                                 bint passes):
    cdef Decision d = Decision.__new__(Decision)
    d.allowed = passes
    d.shadow = passes and not out.allowed
    d.name = name
    d.limit = n.burst_cells
    d.remaining = 0
    if out.allowed or out.decided_by == BY_STEP:
        d.remaining = gcra_remaining(out.state, out.now, n.interval_ticks, n.tolerance_ticks)
    d.retry_after_ns = ticks_to_ns(out.retry_ticks)
    d.reset_after_ns = ticks_to_ns(out.state - out.now) if out.state > out.now else 0
    return d
