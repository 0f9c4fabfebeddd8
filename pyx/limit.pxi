# A limit: the object that requests are put to.

cdef object _ONE = 1
cdef enum:
    PREFETCH_KEYS = 12  # how many keys ahead hit_many asks for memory


@cython.final
cdef class Limit:
    """One limit of a table. Shared by all processes that have the table.

    A key is a str, which counts as its UTF-8 bytes, or bytes; equal bytes are one key. A cost is a
    whole number of cells, 0 or more; 0 only looks. All methods raise LimiterClosed after the
    limiter was closed, TypeError for a key or cost of another type, ValueError for a negative cost
    and CostExceedsBurst for a cost that could never be admitted.
    """

    cdef limit_view view
    cdef Table table
    cdef uint64_t index
    cdef readonly str name
    cdef public object key

    def __cinit__(self, Table table not None, uint64_t index, str name):
        memset(&self.view, 0, sizeof(limit_view))
        self.view.row = layout_limit_row(table.base, &table.geometry, index)
        self.view.slots = table.slots
        self.view.clock = table.ticker
        self.table = table
        self.index = index
        self.name = name
        self.key = None

    cdef int refresh(self) except -1:
        """Makes the copies anew: after a publication, after a fork, for the first time."""
        cdef limit_numbers n
        cdef uint64_t head
        cdef const segment_header *h = <const segment_header *>self.table.base
        if self.table.closed:
            raise LimiterClosed(
                f"limiter {self.table.name} was closed in this process; open it again"
            )
        head = row_read(self.view.row, &n)
        if head != 0:
            if not numbers_valid(&n):
                raise TableDamaged(
                    f"segment {self.table.name}: limit {self.name!r} has numbers that cannot be "
                    f"used; stop the servers that use the segment and start them again"
                )
            self.view.numbers = n
            self.view.keyed = siphash_prefix(siphash_begin(h.secret[0], h.secret[1]), n.salt)
            self.view.head = head
        elif self.view.head == 0:
            raise TableDamaged(
                f"segment {self.table.name}: the row of limit {self.name!r} cannot be read"
            )
        self.table.claim_worker_row()
        self.view.counters = layout_counters(self.table.worker_row, self.index)
        self.view.counters_shared = self.table.worker_row_shared
        self.view.forks = process_forks
        return 0

    cdef inline int ready(self) except -1:
        if not limit_ready(&self.view):
            self.refresh()
        return 0

    cdef int answer(self, object key, object cost, bint peek, slots_outcome *out) except -1:
        """Line A: key, cost, clock, decision. 1 when the request passes, else 0."""
        cdef Py_ssize_t size = 0
        cdef const uint8_t *data
        cdef uint64_t cells = 1, fp
        self.ready()
        if cost is not _ONE:
            cells = cost_cells(cost, self.view.numbers.burst_cells, self.name)
        data = key_bytes(key, &size)
        fp = limit_fingerprint(&self.view, data, size)
        if self.view.numbers.mode == MODE_OFF:
            memset(out, 0, sizeof(slots_outcome))
            out.allowed = True
            return 1
        limit_prefetch(&self.view, fp)
        if self.view.clock.read_ns != NULL:
            return self.answer_injected(fp, cells, peek, out)
        return limit_decide(&self.view, fp, cells, ticker_now(&self.view.clock),
                            peek or cells == 0, out)

    cdef int answer_injected(self, uint64_t fp, uint64_t cells, bint peek,
                             slots_outcome *out) except -1:
        """The same by an injected clock. It runs Python, and so perhaps other threads, which may
        make this limit's copies anew: a decision keeps those it began with."""
        cdef limit_view view = self.view
        cdef uint64_t now = self.table.now()
        cdef int passes = limit_decide(&view, fp, cells, now, peek or cells == 0, out)
        raise_clock_error(self.table.injected)
        return passes

    def hit(self, key, cost=1):
        """Decides one request, and takes `cost` cells when it is allowed."""
        cdef slots_outcome out
        cdef bint passes = self.answer(key, cost, False, &out)
        return decision_of(self.name, &self.view.numbers, &out, passes)

    def allow(self, key, cost=1):
        """Like hit, but answers only True or False."""
        cdef slots_outcome out
        return True if self.answer(key, cost, False, &out) else False

    def peek(self, key, cost=1):
        """What hit would answer now. Takes nothing and writes nothing."""
        cdef slots_outcome out
        cdef bint passes = self.answer(key, cost, True, &out)
        return decision_of(self.name, &self.view.numbers, &out, passes)

    def hit_many(self, keys, cost=1):
        """Decides a batch in order, each key at `cost`: a list with a Decision for each key.

        The clock is read once for the batch. Keys and cost are checked before anything is taken:
        when this raises for one of them, nothing was taken for any.
        """
        cdef list batch = list(keys)
        cdef Py_ssize_t n = len(batch)
        cdef uint64_t cells
        cdef uint64_t *fps
        self.ready()
        cells = cost_cells(cost, self.view.numbers.burst_cells, self.name)
        if self.view.numbers.mode == MODE_OFF:
            return [self.hit(key, cost) for key in batch]
        fps = <uint64_t *>PyMem_Malloc(max(n, 1) * sizeof(uint64_t))
        if fps == NULL:
            raise MemoryError()
        try:
            self.fingerprints(batch, fps)
            return self.decide_many(fps, n, cells, self.table.now())
        finally:
            PyMem_Free(fps)

    cdef int fingerprints(self, list batch, uint64_t *fps) except -1:
        """Hashes a batch; key objects are fetched ahead, and the first keys' slots."""
        cdef Py_ssize_t i, n = len(batch), size = 0
        cdef const uint8_t *data
        for i in range(n):
            if i + PREFETCH_KEYS < n:
                prefetch_line(<const char *><void *>batch[i + PREFETCH_KEYS])
            data = key_bytes(batch[i], &size)
            fps[i] = limit_fingerprint(&self.view, data, size)
            if i < PREFETCH_KEYS:
                limit_prefetch(&self.view, fps[i])
        return 0

    cdef list decide_many(self, const uint64_t *fps, Py_ssize_t n, uint64_t cells, uint64_t now):
        cdef limit_view view = self.view
        cdef slots_outcome out
        cdef Py_ssize_t i
        cdef bint passes
        cdef list decisions = []
        for i in range(n):
            if i + PREFETCH_KEYS < n:
                limit_prefetch(&view, fps[i + PREFETCH_KEYS])
            passes = limit_decide(&view, fps[i], cells, now, cells == 0, &out)
            decisions.append(decision_of(self.name, &view.numbers, &out, passes))
        raise_clock_error(self.table.injected)
        return decisions

    def clear(self, key):
        """Forgets a key: its next request meets a full bucket.

        Returns "cleared" (also when there was nothing to forget); "set_full" when too many
        neighbours of the key were cleared lately, and then nothing has changed; "contended" when
        other processes wrote to the key all the time.
        """
        cdef cleared outcome
        cdef Py_ssize_t size = 0
        cdef const uint8_t *data
        self.ready()
        data = key_bytes(key, &size)
        outcome = slots_clear(&self.view.slots, limit_fingerprint(&self.view, data, size),
                              self.table.now())
        return ("cleared", "set_full", "contended")[outcome]

    def reset(self):
        """Forgets every key of this limit at once. The slots they held free themselves in time."""
        cdef limit_numbers n
        with self.table.publisher():
            self.ready()
            n = self.view.numbers
            n.salt = int.from_bytes(os.urandom(8), "little")
            row_publish(<limit_row *>self.view.row, &n)
        return Reset(self.table.check().live, ticks_to_ns(n.tolerance_ticks))

    @property
    def rate(self):
        """The limit's Rate: over all hosts together."""
        self.ready()
        return Rate(self.view.numbers.rate_count, self.view.numbers.rate_period_ns,
                    self.view.numbers.burst_cells)

    @property
    def mode(self):
        """"enforce", "shadow" (refuses nothing, counts what it would refuse) or "off"."""
        self.ready()
        return MODES[self.view.numbers.mode]

    @property
    def when_full(self):
        """"evict", "deny" or "allow": what happens to a new key whose candidates are all live."""
        self.ready()
        return WHEN_FULL[self.view.numbers.when_full]

    def __repr__(self):
        return f"<Limit {self.name!r} {self.rate} of {self.table.name}>"
