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

    cdef Table table
    cdef limit_row *row
    cdef uint64_t head            # generation of what follows; 0 = read it anew
    cdef limit_numbers numbers
    cdef siphash_state keyed      # the hash after secret and salt: each key goes on from here
    cdef limit_counters *counters
    cdef bint counters_shared
    cdef uint32_t forks
    cdef uint64_t index
    cdef readonly str name
    cdef public object key

    def __cinit__(self, Table table not None, uint64_t index, str name):
        self.table = table
        self.row = layout_limit_row(table.base, &table.geometry, index)
        self.index = index
        self.name = name
        self.head = 0
        self.key = None

    cdef int refresh(self) except -1:
        """Reads the row anew, after a publication, after a fork, or for the first time."""
        cdef limit_numbers n
        cdef uint64_t head
        cdef const segment_header *h = <const segment_header *>self.table.base
        if self.table.closed:
            raise LimiterClosed(
                f"limiter {self.table.name} was closed in this process; open it again"
            )
        head = row_read(self.row, &n)
        if head != 0:
            if not numbers_valid(&n):
                raise TableDamaged(
                    f"segment {self.table.name}: limit {self.name!r} has numbers that cannot be "
                    f"used; stop the servers that use the segment and start them again"
                )
            self.numbers = n
            self.keyed = siphash_prefix(siphash_begin(h.secret[0], h.secret[1]), n.salt)
            self.head = head
        elif self.head == 0:
            raise TableDamaged(
                f"segment {self.table.name}: the row of limit {self.name!r} cannot be read"
            )
        self.table.claim_worker_row()
        self.counters = layout_counters(self.table.worker_row, self.index)
        self.counters_shared = self.table.worker_row_shared
        self.forks = process_forks
        return 0

    cdef inline int ready(self) except -1:
        if row_head(self.row) != self.head or self.forks != process_forks:
            self.refresh()
        return 0

    cdef inline uint64_t fingerprint(self, object key) except 0:
        cdef Py_ssize_t size = 0
        cdef const uint8_t *data = key_bytes(key, &size)
        return slot_fingerprint(siphash_finish(self.keyed, data, size))

    cdef inline int decide(self, uint64_t fp, uint64_t cost, uint64_t now, bint peek,
                           slots_outcome *out) except -1:
        """Line A from the fingerprint on. With an injected clock other threads may run meanwhile,
        so the numbers are taken as they are now."""
        cdef limit_numbers n
        if self.table.injected is None:
            out[0] = slots_decide(&self.table.slots, &self.numbers, fp, cost, now,
                                  &self.table.ticker, peek)
        else:
            n = self.numbers
            out[0] = slots_decide(&self.table.slots, &n, fp, cost, now, &self.table.ticker, peek)
            raise_clock_error(self.table.injected)
        if not peek:
            counters_record(self.counters, out, cost, self.numbers.mode, self.counters_shared)
        return 0

    cdef inline int answer(self, object key, object cost, bint peek,
                           slots_outcome *out) except -1:
        cdef uint64_t cells = 1, fp, now
        self.ready()
        if cost is not _ONE:
            cells = cost_cells(cost, self.numbers.burst_cells, self.name)
        fp = self.fingerprint(key)
        if self.numbers.mode == MODE_OFF:
            memset(out, 0, sizeof(slots_outcome))
            out.allowed = True
            return 0
        now = ticker_now(&self.table.ticker)
        raise_clock_error(self.table.injected)
        return self.decide(fp, cells, now, peek or cells == 0, out)

    def hit(self, key, cost=1):
        """Decides one request, and takes `cost` cells when it is allowed."""
        cdef slots_outcome out
        self.answer(key, cost, False, &out)
        return decision_of(self.name, &self.numbers, &out)

    def allow(self, key, cost=1):
        """Like hit, but answers only True or False."""
        cdef slots_outcome out
        self.answer(key, cost, False, &out)
        return bool(out.allowed) or self.numbers.mode == MODE_SHADOW

    def peek(self, key, cost=1):
        """What hit would answer now. Takes nothing and writes nothing."""
        cdef slots_outcome out
        self.answer(key, cost, True, &out)
        return decision_of(self.name, &self.numbers, &out)

    def hit_many(self, keys, cost=1):
        """Decides a batch in order, each key at `cost`: a list with a Decision for each key.

        The clock is read once for the batch. Keys and cost are checked before anything is taken:
        when this raises for one of them, nothing was taken for any.
        """
        cdef list batch = list(keys)
        cdef Py_ssize_t i, n = len(batch)
        cdef slots_outcome out
        cdef uint64_t now, cells
        cdef uint64_t *fps
        cdef Decision decision
        cdef list decisions
        self.ready()
        cells = cost_cells(cost, self.numbers.burst_cells, self.name)
        if self.numbers.mode == MODE_OFF:
            return [self.hit(key, cost) for key in batch]
        fps = <uint64_t *>PyMem_Malloc(max(n, 1) * sizeof(uint64_t))
        if fps == NULL:
            raise MemoryError()
        try:
            self._fingerprints(batch, fps)
            now = self.table.now()
            decisions = PyList_New(n)
            for i in range(n):
                if i + PREFETCH_KEYS < n:
                    self._prefetch(fps[i + PREFETCH_KEYS])
                self.decide(fps[i], cells, now, cells == 0, &out)
                decision = decision_of(self.name, &self.numbers, &out)
                Py_INCREF(decision)
                PyList_SET_ITEM(decisions, i, decision)
            return decisions
        finally:
            PyMem_Free(fps)

    cdef int _fingerprints(self, list batch, uint64_t *fps) except -1:
        cdef Py_ssize_t i, n = len(batch)
        for i in range(n):
            if i + PREFETCH_KEYS < n:
                prefetch_line(<const char *><void *>batch[i + PREFETCH_KEYS])
            fps[i] = self.fingerprint(batch[i])
            if i >= n - PREFETCH_KEYS or i < PREFETCH_KEYS:
                self._prefetch(fps[i])
        return 0

    cdef inline void _prefetch(self, uint64_t fp) noexcept:
        cdef slot_set lines = slots_of(&self.table.slots, fp)
        prefetch_line(lines.line[0])
        prefetch_line(lines.line[1])

    def clear(self, key):
        """Forgets a key: its next request meets a full bucket.

        Returns "cleared" (also when there was nothing to forget); "set_full" when too many
        neighbours of the key were cleared lately, and then nothing has changed; "contended" when
        other processes wrote to the key all the time.
        """
        cdef cleared outcome
        self.ready()
        outcome = slots_clear(&self.table.slots, self.fingerprint(key), self.table.now())
        return ("cleared", "set_full", "contended")[outcome]

    def reset(self):
        """Forgets every key of this limit at once. The slots they held free themselves in time."""
        cdef limit_numbers n
        with self.table.publisher():
            self.ready()
            n = self.numbers
            n.salt = int.from_bytes(os.urandom(8), "little")
            row_publish(self.row, &n)
        return Reset(self.table.check().live, ticks_to_ns(n.tolerance_ticks))

    @property
    def rate(self):
        """The limit's Rate: over all hosts together."""
        self.ready()
        return Rate(self.numbers.rate_count, self.numbers.rate_period_ns,
                    self.numbers.burst_cells)

    @property
    def mode(self):
        """"enforce", "shadow" (refuses nothing, counts what it would refuse) or "off"."""
        self.ready()
        return MODES[self.numbers.mode]

    @property
    def when_full(self):
        """"evict", "deny" or "allow": what happens to a new key whose candidates are all live."""
        self.ready()
        return WHEN_FULL[self.numbers.when_full]

    def __repr__(self):
        return f"<Limit {self.name!r} {self.rate} of {self.table.name}>"
