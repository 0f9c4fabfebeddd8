# Publication: new numbers for limits. All of it runs under the publisher lock.


cdef bint publish_limit(Table table, str name, rates, str mode, str when_full, str scope,
                        str initial, str replace, bint by_hand) except *:
    """What Table.publish does."""
    cdef uint64_t now = table.now()
    cdef int64_t first
    cdef bint anew, changed = False
    encoded = name.encode("ascii")
    if not 0 < len(encoded) < <int>LIMIT_NAME_BYTES:
        raise ValueError(f"a limit's name has 1 to {LIMIT_NAME_BYTES - 1} characters")
    if not 0 < len(rates) <= <int>RATES_MAX:
        raise ValueError(f"a limit has 1 to {RATES_MAX} rates")
    hosts = 1 if scope == "host" else shared_by(table)
    numbers = [new_numbers(rate, hosts, mode, when_full, scope, by_hand) for rate in rates]
    first = table._row_of(name, 0)
    anew = first < 0 or table._row_removed(first)
    if not anew and stays(table, first, replace):
        return False
    if table.rows_missing([(name, len(rates))]):
        raise TooManyLimits(
            f"segment {table.name} has no room for limit {name!r}: its {LIMIT_ROWS} rows, one for "
            f"each rate, are taken; limits that are no longer configured keep theirs until the "
            f"segment is made anew"
        )
    # The first row last, and whenever there are others: by its head readers see them.
    for i in reversed(range(1, len(rates))):
        publish_rate(table, encoded, i, numbers[i], now, initial, anew)
        changed = True
    changed |= remove_rates(table, name, len(rates))
    publish_rate(table, encoded, 0, numbers[0], now, initial, anew, changed)
    return True


cdef bint stays(Table table, int64_t row, str replace) except *:
    """Whether the numbers in a limit's first row do not give way."""
    cdef limit_numbers n
    if replace == "none":
        return True
    return (replace == "file" and row_read(layout_limit_row(table.base, &table.geometry, row), &n)
            and n.flags & LIMIT_BY_HAND != 0)


cdef publish_rate(Table table, bytes name, uint32_t rate_index, bytes numbers, uint64_t now,
                  str initial, bint anew, bint always=False):
    """`anew` forgets the keys that the rate had."""
    cdef limit_numbers n, old
    cdef limit_row *row
    cdef int64_t i = table._row_of(name.decode("ascii"), rate_index)
    memcpy(&n, PyBytes_AS_STRING(numbers), sizeof(n))
    memset(&old, 0, sizeof(old))
    if i < 0:
        i = 0
        while row_head(layout_limit_row(table.base, &table.geometry, i)):
            i += 1
        row = layout_limit_row(table.base, &table.geometry, i)
        memset(row.name, 0, LIMIT_NAME_BYTES)
        memcpy(row.name, PyBytes_AS_STRING(name), len(name))
        row.rate_index = rate_index
    else:
        row = layout_limit_row(table.base, &table.geometry, i)
        row_read(row, &old)
    if anew or old.mode == MODE_REMOVED or old.algorithm != n.algorithm:
        n.salt = int.from_bytes(os.urandom(8), "little")
        n.floor_ticks = now + n.tolerance_ticks if initial == "empty" else 0
    else:
        n.salt = old.salt
        # never more than a table made now would drain: a slow rate's floor goes with it
        n.floor_ticks = min(old.floor_ticks, now + n.tolerance_ticks)
    if always or memcmp(&n, &old, sizeof(n)) != 0:
        row_publish(row, &n)


cdef bint remove_rates(Table table, str name, uint32_t rate_index) except *:
    """Marks the rates from that one on as removed."""
    cdef limit_numbers n
    cdef limit_row *row
    cdef bint removed = False
    cdef int64_t i
    while rate_index < RATES_MAX:
        i = table._row_of(name, rate_index)
        rate_index += 1
        if i < 0:
            break
        row = layout_limit_row(table.base, &table.geometry, i)
        if row_read(row, &n) and n.mode != MODE_REMOVED:
            n.mode = MODE_REMOVED
            row_publish(row, &n)
            removed = True
    return removed


cdef share_rows(Table table, hosts):
    """Divides every rate by that many hosts anew, from the rates in the rows themselves. A limit's
    first row comes after its others, as always."""
    cdef uint64_t i
    cdef bint firsts
    for firsts in (False, True):
        for i in range(LIMIT_ROWS):
            if row_head(layout_limit_row(table.base, &table.geometry, i)) == 0:
                break
            if (layout_limit_row(table.base, &table.geometry, i).rate_index == 0) == firsts:
                share_row(layout_limit_row(table.base, &table.geometry, i), hosts)


cdef share_row(limit_row *row, hosts):
    cdef limit_numbers n
    if (row_read(row, &n) == 0 or n.mode == MODE_REMOVED or n.flags & LIMIT_OF_HOST
            or not numbers_valid(&n)):
        return
    share = Share.of_most(rate_of(&n), hosts)
    n.interval_ticks, n.tolerance_ticks = share.interval_ticks, share.tolerance_ticks
    row_publish(row, &n)


cdef bytes new_numbers(rate, hosts, str mode, str when_full, str scope, bint by_hand):
    """The numbers of a rate, without salt and floor."""
    cdef limit_numbers n
    share = Share.of_most(rate, hosts)
    memset(&n, 0, sizeof(n))
    n.interval_ticks, n.tolerance_ticks = share.interval_ticks, share.tolerance_ticks
    n.burst_cells = rate.burst
    n.rate_count, n.rate_period_ns = rate.count, rate.period_ns
    n.mode, n.when_full = MODES.index(mode), WHEN_FULL.index(when_full)
    n.algorithm = ALGORITHM_GCRA
    n.flags = (LIMIT_OF_HOST if SCOPES.index(scope) else 0) | (LIMIT_BY_HAND if by_hand else 0)
    if not numbers_valid(&n):
        raise ValueError(f"{rate} cannot be expressed in 63 bits of ticks")
    return (<char *>&n)[:sizeof(n)]
