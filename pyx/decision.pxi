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
    - wait, wait_ns: until a reserved request may go ahead; 0 for all others
    - reset_after, reset_after_ns: until the bucket is full again

    Nanoseconds are exact and rounded up: whoever waits for them is not early.
    """

    cdef readonly bint allowed
    cdef readonly bint shadow
    cdef readonly int64_t limit
    cdef readonly str name
    cdef uint64_t retry_ticks
    cdef uint64_t wait_ticks
    cdef uint64_t ahead_ticks  # of now, by the bucket's state
    cdef uint64_t tolerance_ticks
    cdef uint64_t interval_ticks

    def __init__(self):
        raise TypeError("a Decision is what Limit.hit returns; it is not made by hand")

    def __reduce__(self):
        return _decision_again, (
            self.name, self.limit, self.allowed, self.shadow, self.retry_ticks, self.ahead_ticks,
            self.tolerance_ticks, self.interval_ticks, self.wait_ticks,
        )

    def __bool__(self):
        return self.allowed

    # Worked out when asked for: a division would cost a hit more than the rest of the answer.

    @property
    def remaining(self):
        return gcra_remaining(self.ahead_ticks, 0, self.interval_ticks, self.tolerance_ticks)

    @property
    def retry_after_ns(self):
        return ticks_to_ns(self.retry_ticks)

    @property
    def retry_after(self):
        return self.retry_after_ns / 1e9

    @property
    def wait_ns(self):
        return ticks_to_ns(self.wait_ticks)

    @property
    def wait(self):
        return self.wait_ns / 1e9

    @property
    def reset_after_ns(self):
        return ticks_to_ns(self.ahead_ticks)

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


def _decision_again(str name not None, int64_t limit, bint allowed, bint shadow,
                    uint64_t retry_ticks, uint64_t ahead_ticks, uint64_t tolerance_ticks,
                    uint64_t interval_ticks, uint64_t wait_ticks):
    """A Decision of the values in its pickle. ValueError: no limit decides so."""
    cdef Decision d
    if limit < 1 or interval_ticks == 0 or (shadow and not allowed):
        raise ValueError(
            "these are no Decision's values: they come from another version of shmlimit, or not "
            "from shmlimit"
        )
    d = Decision.__new__(Decision)
    d.name, d.limit, d.allowed, d.shadow = name, limit, allowed, shadow
    d.retry_ticks, d.wait_ticks, d.ahead_ticks = retry_ticks, wait_ticks, ahead_ticks
    d.tolerance_ticks, d.interval_ticks = tolerance_ticks, interval_ticks
    return d


cdef inline Decision decision_of(str name, const limit_numbers *n, const slots_outcome *out,
                                 bint passes):
    cdef Decision d = Decision.__new__(Decision)
    d.allowed = passes
    d.shadow = passes and not out.allowed
    d.name = name
    d.limit = n.burst_cells
    d.retry_ticks = out.retry_ticks
    d.ahead_ticks = out.state - out.now if out.state > out.now else 0
    d.interval_ticks = n.interval_ticks
    # a full set has no bucket to tell of, and contention none that can be told
    d.tolerance_ticks = n.tolerance_ticks if out.allowed or out.decided_by == BY_STEP else 0
    return d


cdef Decision aside_decision_of(str name, const limit_numbers *n, const slots_outcome *out,
                                bint passes):
    """The same where it may be a call: with few callers the compiler spares hit that call."""
    return decision_of(name, n, out, passes)
