# A limit: the object that requests are put to.

cdef object _ONE = 1
cdef limit_counters _uncounted  # where the further rates of limits count what is counted already
cdef enum:
    PREFETCH_KEYS = 12  # how many keys ahead hit_many asks for memory


@cython.final
cdef class Limit:
    """One limit of a table. Shared by all processes that have the table.

    A key is a str, which counts as its UTF-8 bytes, or bytes: equal bytes are one key. Or it is a
    tuple of str, bytes and int (64 bits with its sign): two tuples are one key when they have as
    many items and each pair is equal, so ("a", "bc") is not ("ab", "c"), (1,) is not ("1",), and no
    tuple is a str or bytes. A cost is a whole number of cells, 0 or more; 0 only looks. All methods
    raise LimiterClosed after the limiter was closed, TypeError for a key or cost of another type,
    ValueError for a key without UTF-8, an empty tuple, a larger int or a negative cost, and
    CostExceedsBurst for a cost that could never be admitted.
    """

    cdef limit_view view
    cdef Table table
    cdef uint64_t index
    cdef bint aside  # off, with several rates, or on an injected clock
    cdef int rates_count
    cdef limit_view further[7]  # of the other rates, in their order
    cdef readonly str name
    cdef public object key

    def __cinit__(self, Table table not None, uint64_t index, str name):
        if index >= LIMIT_ROWS:
            raise ValueError(f"a table has limits 0..{LIMIT_ROWS - 1}, not {index}")
        memset(&self.view, 0, sizeof(limit_view))
        self.view.row = layout_limit_row(table.base, &table.geometry, index)
        self.view.slots = table.slots
        self.view.clock = table.ticker
        self.forget_copies()
        self.table = table
        self.index = index
        self.name = name
        self.rates_count = 1
        self.key = None

    cdef void forget_copies(self) noexcept:
        """The next call makes them anew, whatever the row's head is by then."""
        self.view.forks = ~process_forks

    cdef uint64_t read_row(self, const limit_view *v, limit_numbers *n) except 0:
        """A row's numbers and its head; the copies, while the row keeps changing."""
        cdef uint64_t head
        self.table.require_open()
        head = row_read(v.row, n)
        if head == 0:
            head, n[0] = v.head, v.numbers
        if head != 0 and n.algorithm != ALGORITHM_GCRA:
            raise WrongLayout(
                f"segment {self.table.name}: limit {self.name!r} runs by algorithm {n.algorithm}, "
                f"which this version of shmlimit does not know: upgrade it here as well"
            )
        if head == 0 or not numbers_valid(n):
            raise TableDamaged(
                f"segment {self.table.name}: limit {self.name!r} has numbers that cannot be "
                f"used; stop the servers that use the segment and start them again"
            )
        return head

    cdef uint64_t read(self, limit_numbers *n) except 0:
        """The same of the first row. Raises LimitRemoved."""
        cdef uint64_t head = self.read_row(&self.view, n)
        if n.mode == MODE_REMOVED:
            raise LimitRemoved(self.name)
        return head

    cdef int refresh(self) except -1:
        """Makes the copies anew: after a publication, after a fork, for the first time."""
        cdef limit_numbers n
        cdef uint64_t head = self.read(&n)
        self.table.claim_worker_row()
        self.table.require_open()  # that opened files, so that others may have run
        self.copy(&self.view, &n)
        self.view.counters = layout_counters(self.table.worker_row, self.index)
        self.view.counters_shared = self.table.worker_row_shared
        self.rates_count = 1 + self.refresh_further()
        self.aside = (n.mode == MODE_OFF or self.view.clock.read_ns != NULL
                      or self.rates_count > 1)
        self.view.forks = process_forks
        self.view.head = head
        return 0

    cdef int refresh_further(self) except -1:
        """The same for the limit's other rates. Returns how many there are."""
        cdef limit_numbers n
        cdef limit_view *v
        cdef uint64_t row
        cdef int i = 0
        for row in self.table._further_rows(self.name):
            v = &self.further[i]
            v[0] = self.view
            v.row = layout_limit_row(self.table.base, &self.table.geometry, row)
            v.counters = &_uncounted  # a request is counted once
            v.counters_shared = False
            v.head = 0
            v.head = self.read_row(v, &n)
            self.copy(v, &n)
            i += 1
        return i

    cdef void copy(self, limit_view *v, const limit_numbers *n) noexcept:
        cdef const segment_header *h = <const segment_header *>self.table.base
        v.numbers = n[0]
        v.keyed = siphash_prefix(siphash_begin(h.secret[0], h.secret[1]), n.salt)

    cdef inline int ready(self) except -1:
        if not limit_ready(&self.view):
            self.refresh()
        return 0

    cdef int ready_further(self) except -1:
        """After `ready`: the copies of the other rates too."""
        cdef int i
        for i in range(self.rates_count - 1):
            if row_head(self.further[i].row) != self.further[i].head:
                return self.refresh()
        return 0

    cdef inline uint64_t fingerprint(self, object key) except? 0:
        return fingerprint_of(&self.view, key)

    cdef inline uint64_t cells_of(self, object cost) except? 0:
        return 1 if cost is _ONE else self.cells_of_other(cost)

    cdef uint64_t cells_of_other(self, object cost) except? 0:
        """The rate with the smallest burst says what could never be admitted."""
        cdef const limit_numbers *least = &self.view.numbers
        cdef int i
        for i in range(self.rates_count - 1):
            if self.further[i].numbers.burst_cells < least.burst_cells:
                least = &self.further[i].numbers
        try:
            return cost_cells(cost, least.burst_cells, self.name)
        except CostExceedsBurst:
            if self.rates_count == 1:
                raise
            raise CostExceedsBurst(
                f"limit {self.name!r}: cost {shown_int(cost)} is more than the burst of "
                f"{least.burst_cells} of its rate {rate_of(least)}, so it can never be admitted; "
                f"raise that burst or split the request"
            ) from None

    cdef inline int answer(self, object key, object cost, bint peek, slots_outcome *out) except -1:
        """Line A: key, cost, clock, decision. 1 when the request passes, else 0."""
        cdef uint64_t cells = self.cells_of(cost), fp = self.fingerprint(key), now
        limit_prefetch(&self.view, fp)  # a cold key's memory comes while the clock is read
        now = ticker_now(&self.view.clock)
        return limit_decide(&self.view, fp, cells, now, peek or cells == 0, out)

    cdef Decision decide_aside(self, object key, object cost, bint peek):
        """The same when the limit is off, has several rates or an injected clock. That clock runs
        Python, and so perhaps other threads, which may make this limit's copies anew: a decision
        keeps those it began with."""
        cdef slots_outcome out
        cdef limit_view view
        cdef uint64_t cells, fp, now
        cdef bint passes
        self.ready_further()
        cells, fp = self.cells_of(cost), self.fingerprint(key)
        if self.view.numbers.mode == MODE_OFF:
            memset(&out, 0, sizeof(slots_outcome))
            out.allowed = True
            return aside_decision_of(self.name, &self.view.numbers, &out, True)
        if self.rates_count > 1:
            return decide_rates(self, key, cells, peek or cells == 0)
        now = self.table.now()
        view = self.view
        passes = limit_decide(&view, fp, cells, now, peek or cells == 0, &out)
        raise_clock_error(self.table.injected)
        return aside_decision_of(self.name, &view.numbers, &out, passes)

    def hit(self, key, cost=1):
        """Decides one request, and takes `cost` cells when it is allowed."""
        cdef slots_outcome out
        cdef bint passes
        self.ready()
        if self.aside:
            return self.decide_aside(key, cost, False)
        passes = self.answer(key, cost, False, &out)
        return decision_of(self.name, &self.view.numbers, &out, passes)

    def allow(self, key, cost=1):
        """Like hit, but answers only True or False."""
        cdef slots_outcome out
        self.ready()
        if self.aside:
            return self.decide_aside(key, cost, False).allowed
        return True if self.answer(key, cost, False, &out) else False

    def peek(self, key, cost=1):
        """What hit would answer now. Takes nothing and writes nothing."""
        cdef slots_outcome out
        cdef bint passes
        self.ready()
        if self.aside:
            return self.decide_aside(key, cost, True)
        passes = self.answer(key, cost, True, &out)
        return decision_of(self.name, &self.view.numbers, &out, passes)

    def reserve(self, key, cost=1, timeout=None):
        """Takes `cost` cells now or ahead of time: a Decision whose `wait` tells when to go ahead.

        `timeout` is the longest wait in seconds, None for any (up to two years). A request that
        would wait longer is refused at once and takes nothing; its `retry_after` is until it would
        pass without waiting. Whoever goes away instead of waiting forfeits the cells. In shadow
        mode nothing waits. Raises ValueError for a timeout that is negative or no number.
        """
        return reserve(self, key, cost, timeout)

    def acquire(self, key, cost=1, timeout=None):
        """Like reserve, and waits: returns when the request may go ahead, or at once if refused.

        A limiter with a clock of its own waits by that clock's `sleep`, if it has one.
        """
        cdef Decision decision = reserve(self, key, cost, timeout)
        if decision.wait_ticks:
            (waiting_clock(self) or time).sleep(decision.wait)
        return decision

    async def acquire_async(self, key, cost=1, timeout=None):
        """Like acquire, in an event loop: other tasks run while it waits."""
        cdef Decision decision = reserve(self, key, cost, timeout)
        if decision.wait_ticks:
            clock = waiting_clock(self)
            if clock is None:
                await asyncio.sleep(decision.wait)
            else:
                clock.sleep(decision.wait)
        return decision

    def charge(self, key, extra):
        """Takes cells that a request turned out to cost beyond what was asked for.

        They are taken whether they fit or not: the key then owes, and is refused until it has paid.
        It owes at most ten bursts beyond its own. Returns the cells taken, 0 to `extra`: fewer when
        the debt is at its end. A limit that is off, and a key that finds no slot, take none.
        """
        return charge(self, key, extra)

    def _fingerprint(self, key):
        """By what the table knows a key: equal when keys are one. It changes with a reset."""
        self.ready()
        return self.fingerprint(key)

    def hit_many(self, keys, cost=1):
        """Decides a batch in order, each key at `cost`: a list with a Decision for each key.

        The clock is read once for the batch. Keys and cost are checked before anything is taken:
        when this raises for one of them, nothing was taken for any.
        """
        cdef object batch
        cdef Py_ssize_t n
        cdef uint64_t cells
        cdef uint64_t *fps
        if PyUnicode_Check(keys) or PyBytes_Check(keys):
            raise TypeError(f"hit_many takes a collection of keys; for one key: [{keys!r}]")
        batch = keys if type(keys) is list or type(keys) is tuple else list(keys)
        self.ready()
        self.ready_further()
        cells = self.cells_of(cost)
        if self.view.numbers.mode == MODE_OFF:
            return [self.hit(key, cost) for key in batch]
        if self.rates_count > 1:
            return decide_rates_many(self, batch, cells)
        n = len(batch)  # from here to the last key's hash nobody else runs and shortens it
        fps = <uint64_t *>PyMem_Malloc(max(n, 1) * sizeof(uint64_t))
        if fps == NULL:
            raise MemoryError()
        try:
            self.fingerprints(PySequence_Fast_ITEMS(batch), n, fps)
            return self.decide_many(fps, n, cells, self.table.now())
        finally:
            PyMem_Free(fps)

    cdef int fingerprints(self, PyObject **keys, Py_ssize_t n, uint64_t *fps) except -1:
        """Hashes a batch; key objects are fetched ahead, and the first keys' slots."""
        cdef Py_ssize_t i
        for i in range(n):
            if i + PREFETCH_KEYS < n:
                prefetch_object(keys[i + PREFETCH_KEYS])
            fps[i] = self.fingerprint(<object>keys[i])
            if i < PREFETCH_KEYS:
                limit_prefetch(&self.view, fps[i])
        return 0

    cdef list decide_many(self, const uint64_t *fps, Py_ssize_t n, uint64_t cells, uint64_t now):
        cdef limit_view view = self.view
        cdef slots_outcome out
        cdef Py_ssize_t i
        cdef bint passes
        cdef Decision decision
        cdef list decisions = PyList_New(n)
        for i in range(n):
            if i + PREFETCH_KEYS < n:
                limit_prefetch(&view, fps[i + PREFETCH_KEYS])
            passes = limit_decide(&view, fps[i], cells, now, cells == 0, &out)
            decision = decision_of(self.name, &view.numbers, &out, passes)
            Py_INCREF(decision)  # the list takes it over
            PyList_SET_ITEM(decisions, i, decision)
        raise_clock_error(self.table.injected)
        return decisions

    def limited(self, *, key, cost=1):
        """A decorator: puts every call of a function, sync or async, to this limit.

        `key` is a key, or a callable that makes one of the arguments of the call, as they are given
        to it. A call that is refused raises RateLimitExceeded, and the function does not run. What
        was taken stays taken when the function raises. An async function is decided on when it is
        awaited, a generator function when it is called. Raises TypeError for another `key`; the
        rest, and what is wrong with a key or the cost, is raised by the calls, as by hit.
        """
        return limited(self, key, cost)

    def clear(self, key):
        """Forgets a key: its next request meets a full bucket.

        Returns "cleared" (also when there was nothing to forget); "set_full" when fewer than two
        free slots are left to the key, and then nothing has changed, try later; "contended" when
        other processes wrote to the key all the time. With several rates it is "cleared" when all
        have forgotten it; some may have when it is not.
        """
        cdef cleared outcome = CLEARED, worst = CLEARED
        cdef uint64_t now
        cdef int i
        self.ready()
        self.ready_further()
        now = self.table.now()
        for i in range(self.rates_count):
            view = self.rate_view(i)
            outcome = slots_clear(&view.slots, fingerprint_of(view, key), now)
            worst = max(worst, outcome)
        return ("cleared", "set_full", "contended")[worst]

    def reset(self):
        """Forgets every key of this limit at once. The slots they held free themselves in time."""
        cdef limit_numbers n
        cdef limit_view v
        cdef uint64_t row
        with self.table.published():
            self.read(&n)
            for row in [*self.table._further_rows(self.name), self.index]:
                memset(&v, 0, sizeof(v))
                v.row = layout_limit_row(self.table.base, &self.table.geometry, row)
                self.read_row(&v, &n)
                n.salt = int.from_bytes(os.urandom(8), "little")
                row_publish(<limit_row *>v.row, &n)
        told = self.table.check()
        return Reset(told.live, told.furthest_ahead_ns)

    cdef const limit_view *rate_view(self, int i) noexcept:
        return &self.view if i == 0 else &self.further[i - 1]

    def _count_lost(self, Decision decision not None, uint64_t cells):
        """Accounts for what this limit's last decision took for a request that another limit then
        refused: nothing when it was off, refused in shadow, or found no slot. Raises nothing when
        the limit was removed since: it has the counters that the decision was counted by."""
        if decision.allowed and not decision.shadow and decision.ahead_ticks != 0:
            counters_add(&self.view.counters.lost, cells * self.rates_count,
                         self.view.counters_shared)

    cdef list rated(self):
        """(Rate, Share) of each of the limit's rates."""
        cdef limit_numbers n
        cdef limit_view other
        cdef uint64_t row
        self.read(&n)
        told = [(rate_of(&n), Share(n.interval_ticks, n.tolerance_ticks))]
        for row in self.table._further_rows(self.name):
            memset(&other, 0, sizeof(other))
            other.row = layout_limit_row(self.table.base, &self.table.geometry, row)
            self.read_row(&other, &n)
            told.append((rate_of(&n), Share(n.interval_ticks, n.tolerance_ticks)))
        return told

    @property
    def rates(self):
        """The limit's Rates, over all hosts together: a request has to fit all of them."""
        return tuple(rate for rate, _ in self.rated())

    @property
    def shares(self):
        """This host's Share of each of them, as requests meet it."""
        return tuple(share for _, share in self.rated())

    @property
    def removed(self):
        """Whether the limit was removed from the configuration: then all else raises LimitRemoved.
        """
        return self.is_removed()

    cdef bint is_removed(self) except -1:
        cdef limit_numbers n
        if limit_ready(&self.view):  # its copies are of a limit that is there
            return False
        self.table.require_open()
        return row_read(self.view.row, &n) != 0 and n.mode == MODE_REMOVED

    @property
    def mode(self):
        """"enforce", "shadow" (refuses nothing, counts what it would refuse) or "off"."""
        cdef limit_numbers n
        self.read(&n)
        return MODES[n.mode]

    @property
    def when_full(self):
        """"evict", "deny" or "allow": what happens to a new key whose candidates are all live."""
        cdef limit_numbers n
        self.read(&n)
        return WHEN_FULL[n.when_full]

    @property
    def scope(self):
        """"global" (all hosts together have the rates) or "host" (each host has them)."""
        cdef limit_numbers n
        self.read(&n)
        return SCOPES[n.flags & LIMIT_OF_HOST != 0]

    @property
    def by_hand(self):
        """Whether an operator has set it, until the configuration is loaded again."""
        cdef limit_numbers n
        self.read(&n)
        return n.flags & LIMIT_BY_HAND != 0

    def __repr__(self):
        if self.table.closed or self.removed:
            told = "closed" if self.table.closed else "removed"
        else:
            told = "; ".join(map(str, self.rates))
        return f"<Limit {self.name!r} {told} of {self.table.name}>"

    # A copy would be the same limit, and where a limit is unpickled its limiter is opened by name.

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        self.table.require_open()
        limiter = self.table.limiter()
        if limiter is None:
            raise TypeError(
                f"limit {self.name!r} belongs to no Limiter, so it cannot be pickled: take it from "
                f"one, limiter[{self.name!r}]"
            )
        return operator.getitem, (limiter, self.name)


cdef rate_of(const limit_numbers *n):
    return Rate(n.rate_count, n.rate_period_ns, n.burst_cells)
