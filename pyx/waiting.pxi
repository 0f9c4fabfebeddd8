# Requests that are let in beyond what fits at once: they wait, or their key owes.
#
# A reservation is one step like any other. It moves the bucket past now + tau, by no more than the
# caller would wait, and tells how long that is. So waiters of all processes are served in the order
# of their steps; nobody is woken and nobody polls.

cdef enum:
    DEBT_BURSTS_MAX = 10  # what a charge may let a key owe, in bursts beyond its own

# The longest wait: 2.3 years. With the longest burst and a clock at its end it stays in 63 bits.
cdef uint64_t REACH_TICKS_MAX = <uint64_t>1 << 60


cdef uint64_t reach_ticks(timeout) except? 0:
    """A timeout in seconds as ticks; rounded down, so that nobody waits longer."""
    if timeout is None:
        return REACH_TICKS_MAX
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"a timeout is a number of seconds or None, not {timeout!r}")
    if not timeout >= 0:  # a NaN is not either
        raise ValueError(f"a timeout is a number of seconds >= 0, not {timeout}")
    if timeout >= (REACH_TICKS_MAX >> 4) / 1e9:
        return REACH_TICKS_MAX
    return <uint64_t>int(timeout * 1_000_000_000) << 4


cdef Decision reserve(Limit limit, object key, object cost, object timeout):
    cdef limit_view view, further
    cdef slots_outcome out
    cdef Decision decision
    cdef bint passes
    cdef uint64_t reach = reach_ticks(timeout), cells, fp, now
    limit.ready()
    limit.ready_further()
    cells = limit.cells_of(cost)
    fp = limit.fingerprint(key)
    if limit.view.numbers.mode != MODE_ENFORCE or cells == 0:
        return limit.hit(key, cost)
    if limit.rates_count > 1:
        return reserve_rates(limit, key, cells, reach)
    now = limit.table.now()
    view = limit.view
    further = limit_reaching(&view, cells, reach)
    passes = limit_decide(&further, fp, cells, now, False, &out)
    raise_clock_error(limit.table.injected)
    decision = aside_decision_of(limit.name, &view.numbers, &out, passes)
    if passes and out.decided_by == BY_STEP:
        decision.wait_ticks = gcra_wait(out.state, out.now, view.numbers.interval_ticks,
                                        view.numbers.tolerance_ticks, cells)
    elif not passes:
        decision.retry_ticks += reach_of(&out, &view.numbers, reach)
    return decision


cdef uint64_t reach_of(const slots_outcome *out, const limit_numbers *n, uint64_t reach) noexcept:
    """What a refused reservation has to wait beyond what it was told: it was judged by numbers that
    reach further."""
    if out.decided_by == BY_STEP or (out.decided_by == BY_FULL_SET and n.when_full == FULL_EVICT):
        return reach
    return 0


cdef uint64_t charge(Limit limit, object key, object extra) except? 0:
    cdef limit_view view
    cdef uint64_t cells, fp, now, taken
    limit.ready()
    limit.ready_further()
    cells = cost_cells(extra, 0xffffffffffffffff, limit.name)
    fp = limit.fingerprint(key)
    if limit.view.numbers.mode == MODE_OFF or cells == 0:
        return 0
    if limit.rates_count > 1:
        return charge_rates(limit, key, cells)
    now = limit.table.now()
    view = owing_view(&limit.view)
    taken = charge_view(&view, fp, cells, now)
    raise_clock_error(limit.table.injected)
    return taken


cdef limit_view owing_view(const limit_view *v) noexcept:
    """The view of a limit whose keys may owe."""
    cdef uint64_t reach = v.numbers.tolerance_ticks * DEBT_BURSTS_MAX
    if v.numbers.tolerance_ticks > REACH_TICKS_MAX // DEBT_BURSTS_MAX:
        reach = REACH_TICKS_MAX
    return limit_reaching(v, 0, reach)


cdef uint64_t charge_view(const limit_view *v, uint64_t fp, uint64_t cells, uint64_t now) noexcept:
    cells = min(cells, v.numbers.tolerance_ticks // v.numbers.interval_ticks)
    return limit_charge(v, fp, cells, now)


cdef object waiting_clock(Limit limit):
    """The injected clock if it can sleep, so that tests need not wait; else None."""
    cdef object call = None
    if limit.table.injected is not None:
        call = limit.table.injected.call
    return call if hasattr(call, "sleep") else None
