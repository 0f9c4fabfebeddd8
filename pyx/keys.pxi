# Keys and costs: from Python objects to bytes and integers.


cdef inline const uint8_t *key_bytes(object key, Py_ssize_t *size) except NULL:
    """The bytes that stand for a key: a str's UTF-8, or the bytes themselves. Borrowed."""
    if PyUnicode_CheckExact(key) and PyUnicode_IS_COMPACT_ASCII(key):
        size[0] = PyUnicode_GET_LENGTH(key)
        return <const uint8_t *>PyUnicode_DATA(key)
    return other_key_bytes(key, size)


cdef const uint8_t *other_key_bytes(object key, Py_ssize_t *size) except NULL:
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
        f"a key is a str or bytes, not {type(key).__name__}: convert it, for example str(key)"
    )


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
