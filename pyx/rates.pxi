# A limit with several rates: the same requests, put to all of them (rates.h).

cdef struct rated:
    limit_view views[8]  # copies: a decision keeps those it began with
    uint64_t fps[8]
    int count


cdef void rated_views(Limit limit, rated *r) noexcept:
    cdef int i
    r.count = limit.rates_count
    for i in range(r.count):
        r.views[i] = limit.rate_view(i)[0]


cdef int rated_key(object key, rated *r) except -1:
    """The key's fingerprint under each view."""
    cdef int i
    for i in range(r.count):
        r.fps[i] = fingerprint_of(&r.views[i], key)
    return 0


cdef Decision decide_rated(Limit limit, const rated *r, uint64_t cells, uint64_t now, bint peek):
    cdef rates_outcome out
    cdef const slots_outcome *decided
    cdef bint passes
    rates_decide(r.views, r.count, r.fps, cells, now, peek, &out)
    decided = &out.of[out.deciding]
    if peek:
        passes = decided.allowed or r.views[0].numbers.mode == MODE_SHADOW
    else:
        passes = rates_record(r.views, &out, cells)
    raise_clock_error(limit.table.injected)
    return aside_decision_of(limit.name, &r.views[out.deciding].numbers, decided, passes)


cdef Decision decide_rates(Limit limit, object key, uint64_t cells, bint peek):
    cdef rated r
    rated_views(limit, &r)
    rated_key(key, &r)
    return decide_rated(limit, &r, cells, limit.table.now(), peek)


cdef list decide_rates_many(Limit limit, batch, uint64_t cells):
    """Keys are checked before anything is taken, and the clock is read once. An injected clock may
    run other threads: the batch is decided by the keys and numbers that it began with."""
    cdef rated r
    cdef uint64_t now
    cdef list keys = list(batch)
    rated_views(limit, &r)
    for key in keys:
        rated_key(key, &r)
    now = limit.table.now()
    decisions = []
    for key in keys:
        rated_key(key, &r)
        decisions.append(decide_rated(limit, &r, cells, now, cells == 0))
    return decisions


cdef Decision reserve_rates(Limit limit, object key, uint64_t cells, uint64_t reach):
    """The wait is the longest of all; a refusal by one takes nothing from any."""
    cdef rated r, further
    cdef rates_outcome out
    cdef slots_outcome *answer
    cdef const limit_numbers *n
    cdef Decision decision
    cdef bint passes
    cdef uint64_t wait, longest = 0
    cdef int i
    rated_views(limit, &r)
    rated_key(key, &r)
    further = r
    for i in range(r.count):
        further.views[i] = limit_reaching(&r.views[i], cells, reach)
    rates_decide(further.views, r.count, r.fps, cells, limit.table.now(), False, &out)
    passes = rates_record(r.views, &out, cells)
    raise_clock_error(limit.table.injected)
    for i in range(r.count):
        if not out.of[i].allowed:
            out.of[i].retry_ticks += reach_of(&out.of[i], &r.views[i].numbers, reach)
    out.deciding = rates_deciding(r.views, r.count, out.of)
    for i in range(r.count if passes else 0):
        answer, n = &out.of[i], &r.views[i].numbers
        if answer.decided_by == BY_STEP:
            wait = gcra_wait(answer.state, answer.now, n.interval_ticks, n.tolerance_ticks, cells)
            if wait > longest:
                longest = wait
                out.deciding = i
    decision = aside_decision_of(limit.name, &r.views[out.deciding].numbers, &out.of[out.deciding],
                                 passes)
    decision.wait_ticks = longest
    return decision


cdef uint64_t charge_rates(Limit limit, object key, uint64_t cells) except? 0:
    """Each rate takes what it can; the least of that is what was taken from all."""
    cdef rated r
    cdef limit_view view
    cdef limit_counters counted
    cdef uint64_t now, least = cells
    cdef int i
    rated_views(limit, &r)
    rated_key(key, &r)
    now = limit.table.now()
    memset(&counted, 0, sizeof(counted))
    for i in range(r.count):
        r.views[i].counters, r.views[i].counters_shared = &counted, False
        view = owing_view(&r.views[i])
        least = min(least, charge_view(&view, r.fps[i], cells, now))
    counters_add(&limit.view.counters.cells, least, limit.view.counters_shared)
    counters_add(&limit.view.counters.evicted, counted.evicted, limit.view.counters_shared)
    raise_clock_error(limit.table.injected)
    return least
