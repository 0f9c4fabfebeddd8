# Keys and costs: from Python objects to bytes and integers.


cdef const uint8_t *key_bytes(object key, Py_ssize_t *size) except NULL:
    """The bytes that stand for a key: a str's UTF-8, or the bytes themselves. Borrowed."""
    if PyUnicode_Check(key):
        try:
            return <const uint8_t *>PyUnicode_AsUTF8AndSize(key, size)
        except UnicodeEncodeError as error:
            raise ValueError(
                "the key holds a lone surrogate, which UTF-8 cannot express: pass bytes, "
                "for example os.fsencode(key)"
            ) from error
    if PyBytes_Check(key):
        size[0] = PyBytes_GET_SIZE(key)
        return <const uint8_t *>PyBytes_AS_STRING(key)
    raise TypeError(
        f"a key is a str, bytes or a tuple, not {type(key).__name__}: convert it, for example "
        f"str(key)"
    )


cdef enum:
    ITEM_TEXT = 1  # str and bytes: equal bytes are one item, as they are one key
    ITEM_INT = 2
    ITEM_HEAD_BYTES = 9  # its kind and, in 8 bytes, its length


cdef uint8_t *joined_bytes(tuple key, Py_ssize_t *size) except NULL:
    """The bytes that stand for a tuple: of each item its kind, its length and its bytes, so that
    tuples of other items have other bytes. The caller frees them.

    Makes no Python object, so that nobody else runs meanwhile: hit_many relies on that.
    """
    cdef Py_ssize_t total = 0, n = 0
    cdef int64_t number = 0
    cdef uint8_t kind = 0
    cdef uint8_t *joined
    cdef uint8_t *end
    cdef const uint8_t *data
    for item in key:
        item_bytes(item, &kind, &number, &n)
        total += ITEM_HEAD_BYTES + n
    if total == 0:
        raise ValueError("a tuple that is a key has at least one item")
    joined = end = <uint8_t *>PyMem_Malloc(total)
    if joined == NULL:
        raise MemoryError()
    for item in key:
        data = item_bytes(item, &kind, &number, &n)
        end[0] = kind
        memcpy(end + 1, &n, 8)
        memcpy(end + ITEM_HEAD_BYTES, data, n)
        end += ITEM_HEAD_BYTES + n
    size[0] = total
    return joined


cdef const uint8_t *item_bytes(object item, uint8_t *kind, int64_t *number,
                               Py_ssize_t *size) except NULL:
    """One item of a tuple. Borrowed: an int's bytes lie in `number`."""
    if PyUnicode_Check(item) or PyBytes_Check(item):
        kind[0] = ITEM_TEXT
        return key_bytes(item, size)
    if not isinstance(item, int) or isinstance(item, bool):
        raise TypeError(
            f"an item of a tuple that is a key is a str, bytes or int, not "
            f"{type(item).__name__}: convert it, for example str(item)"
        )
    try:
        number[0] = PyLong_AsLongLong(item)
    except OverflowError:
        raise ValueError(
            "an int in a tuple that is a key has at most 64 bits, with its sign: convert a larger "
            "one, for example str(item)"
        ) from None
    kind[0] = ITEM_INT
    size[0] = sizeof(int64_t)
    return <const uint8_t *>number


cdef uint64_t cost_cells(object cost, uint64_t burst_cells, str name) except? 0:
    """A cost as cells; refuses what is not an int >= 0, and what could never be admitted."""
    cdef uint64_t cells
    if not PyLong_CheckExact(cost):
        if isinstance(cost, bool) or not isinstance(cost, int):
            raise TypeError(f"a cost is a whole number of cells (int >= 0), not {cost!r}")
    try:
        cells = PyLong_AsUnsignedLongLong(cost)
    except OverflowError:
        if cost < 0:
            raise ValueError(
                f"a cost is a whole number of cells >= 0, not {shown_int(cost)}"
            ) from None
        cells = 0xffffffffffffffff
    if cells > burst_cells:
        raise CostExceedsBurst(
            f"limit {name!r}: cost {shown_int(cost)} is more than the burst of {burst_cells}, so "
            f"it can never be admitted; raise the burst or split the request"
        )
    return cells


cdef str shown_int(cost):
    """Python refuses to write out an int of thousands of digits."""
    return str(cost) if cost.bit_length() <= 1024 else f"of {cost.bit_length()} bits"


def siphash13(bytes secret, bytes message):
    """SipHash-1-3 of a message under a 16-byte secret, for tests against published values."""
    cdef uint64_t k[2]
    if len(secret) != 16:
        raise ValueError("the secret has 16 bytes")
    memcpy(k, PyBytes_AS_STRING(secret), 16)
    return siphash_finish(siphash_begin(k[0], k[1]), <const uint8_t *>PyBytes_AS_STRING(message),
                          len(message))


cdef inline void prefetch_object(PyObject *key) noexcept:
    """Asks for a key's header and its first bytes, which may begin in the next cache line."""
    prefetch_line(key)
    prefetch_line(<const char *>key + 64)


cdef inline uint64_t fingerprint_of(const limit_view *v, object key) except? 0:
    if PyUnicode_CheckExact(key) and PyUnicode_IS_COMPACT_ASCII(key):
        return limit_fingerprint(v, <const uint8_t *>PyUnicode_DATA(key),
                                 PyUnicode_GET_LENGTH(key))
    return other_fingerprint_of(v, key)


cdef uint64_t other_fingerprint_of(const limit_view *v, object key) except? 0:
    cdef Py_ssize_t size = 0
    cdef uint64_t fp
    cdef const uint8_t *data
    cdef uint8_t *joined
    if not PyTuple_Check(key):
        data = key_bytes(key, &size)
        return limit_fingerprint(v, data, size)
    joined = joined_bytes(<tuple>key, &size)  # or a subclass: its items all the same
    fp = limit_fingerprint_joined(v, joined, size)
    PyMem_Free(joined)
    return fp
