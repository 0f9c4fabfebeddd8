/* Every atomic operation of shmlimit, and the only file that names a memory order.
 *
 * The slot protocol (slots.h) needs of the machine:
 *
 *   1. cas128: one indivisible compare-and-swap of a slot's 16 bytes, sequentially consistent.
 *      A process claims a slot and then reads the other candidates; two such processes must not
 *      both miss the other's claim (Dekker's pattern), so the store of the claim has to be visible
 *      before the loads that follow. `lock cmpxchg16b` is a full fence on x86-64. On aarch64 the
 *      pair is ldaxp/stlxp, and the loads that follow are ldar, which the architecture keeps
 *      behind an earlier stlxp.
 *   2. load64_slot: loads of slot words stay in program order (v, fp, v again).
 *      x86-64 keeps loads in order; on aarch64 they are ldar.
 *   3. the generation word of a limit row: written after its buffer (release), read before and
 *      after it (acquire).
 *   4. counters: only their owner writes them, readers want no order: relaxed.
 *
 * cas128 never goes through libatomic, whose fallback is a lock: a worker killed inside it would
 * stop every other worker. SHMLIMIT_BUILTIN_ATOMICS builds on compiler builtins instead, which the
 * thread sanitizer understands and inline assembly hides.
 */
#ifndef SHMLIMIT_ATOMICS_H
#define SHMLIMIT_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

#if !defined(__linux__)
#error "shmlimit runs on Linux only: it needs /dev/shm and open-file-description locks"
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#error "shmlimit needs a 16-byte compare-and-swap: build on x86-64 or aarch64"
#endif

/* The two words of a slot, as one value. */
typedef struct {
    uint64_t fp; /* fingerprint of the key */
    uint64_t v;  /* state << 1 | committed */
} slot_word;

/* ---- 64-bit loads and stores ------------------------------------------------------------- */

static inline uint64_t load64_slot(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline uint64_t load64_acquire(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Keeps the loads before it before the loads after it: re-checking a generation. */
static inline void fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

/* Keeps the stores before it before the stores after it: reusing a buffer. */
static inline void fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }

static inline uint64_t load64_relaxed(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline void store64_relaxed(uint64_t *p, uint64_t x) {
    __atomic_store_n(p, x, __ATOMIC_RELAXED);
}

static inline void store64_release(uint64_t *p, uint64_t x) {
    __atomic_store_n(p, x, __ATOMIC_RELEASE);
}

static inline bool cas64(uint64_t *p, uint64_t expected, uint64_t desired) {
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

/* A counter that several processes write. */
static inline void add64_shared(uint64_t *p, uint64_t n) {
    (void)__atomic_fetch_add(p, n, __ATOMIC_RELAXED);
}

/* A counter that one process writes: no lock prefix, and no reader sees a torn word. */
static inline void add64_owned(uint64_t *p, uint64_t n) {
    store64_relaxed(p, load64_relaxed(p) + n);
}

/* ---- the 16-byte compare-and-swap -------------------------------------------------------- */

#if defined(SHMLIMIT_BUILTIN_ATOMICS)

static inline bool cas128(slot_word *p, slot_word expected, slot_word desired) {
    unsigned __int128 e = ((unsigned __int128)expected.v << 64) | expected.fp;
    unsigned __int128 d = ((unsigned __int128)desired.v << 64) | desired.fp;
#if defined(__SANITIZE_THREAD__)
    return __atomic_compare_exchange_n((unsigned __int128 *)p, &e, d, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
#else /* the __sync form is inlined with -mcx16, the __atomic form would call libatomic */
    return __sync_bool_compare_and_swap((unsigned __int128 *)p, e, d);
#endif
}

#elif defined(__x86_64__)

static inline bool cas128(slot_word *p, slot_word expected, slot_word desired) {
    bool done;
    __asm__ __volatile__("lock cmpxchg16b %1"
                         : "=@ccz"(done), "+m"(*p), "+a"(expected.fp), "+d"(expected.v)
                         : "b"(desired.fp), "c"(desired.v)
                         : "memory");
    return done;
}

#else /* aarch64 */

static inline bool cas128(slot_word *p, slot_word expected, slot_word desired) {
    uint64_t fp, v;
    uint32_t failed;
    /* A mismatch stores back what was read: without that store the pair is not known to have been
     * read in one piece. */
    do {
        bool same;
        __asm__ __volatile__("ldaxp %0, %1, %2" : "=&r"(fp), "=&r"(v) : "Q"(*p) : "memory");
        same = fp == expected.fp && v == expected.v;
        __asm__ __volatile__("stlxp %w0, %2, %3, %1"
                             : "=&r"(failed), "=Q"(*p)
                             : "r"(same ? desired.fp : fp), "r"(same ? desired.v : v)
                             : "memory");
    } while (failed);
    return fp == expected.fp && v == expected.v;
}

#endif

static inline void prefetch_line(const void *p) { __builtin_prefetch(p, 1, 3); }

/* Whether this processor has the instruction that cas128 is built on. */
static inline bool cas128_supported(void) {
#if defined(__x86_64__)
    uint32_t a = 1, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (c >> 13) & 1; /* CMPXCHG16B */
#else
    return true;
#endif
}

#endif
