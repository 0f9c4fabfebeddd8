/* SipHash-1-3: a keyed hash that an attacker who chooses keys cannot steer without the secret.
 *
 * The message is the limit's 8-byte salt followed by the key's bytes. The salt is one whole block,
 * so the state after it is computed once per limit (siphash_begin) and each key starts from there.
 */
#ifndef SHMLIMIT_SIPHASH_H
#define SHMLIMIT_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t v0, v1, v2, v3;
    uint64_t length; /* bytes absorbed so far, a multiple of 8 */
} siphash_state;

#define SIPHASH_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

static inline void siphash_round(siphash_state *s) {
    s->v0 += s->v1;
    s->v1 = SIPHASH_ROTL(s->v1, 13) ^ s->v0;
    s->v0 = SIPHASH_ROTL(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = SIPHASH_ROTL(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = SIPHASH_ROTL(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = SIPHASH_ROTL(s->v1, 17) ^ s->v2;
    s->v2 = SIPHASH_ROTL(s->v2, 32);
}

static inline void siphash_absorb(siphash_state *s, uint64_t block) {
    s->v3 ^= block;
    siphash_round(s);
    s->v0 ^= block;
}

static inline siphash_state siphash_begin(uint64_t k0, uint64_t k1) {
    siphash_state s = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
                       k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u, 0};
    return s;
}

/* Absorbs a whole block ahead of the message. */
static inline siphash_state siphash_prefix(siphash_state s, uint64_t block) {
    siphash_absorb(&s, block);
    s.length += 8;
    return s;
}

static inline uint64_t siphash_finish(siphash_state s, const uint8_t *bytes, size_t n) {
    uint64_t last = (uint64_t)(s.length + n) << 56;
    const uint8_t *end = bytes + (n & ~(size_t)7);
    for (; bytes != end; bytes += 8) {
        uint64_t block;
        memcpy(&block, bytes, 8); /* little-endian, as both supported machines are */
        siphash_absorb(&s, block);
    }
    switch (n & 7) {
    case 7: last |= (uint64_t)bytes[6] << 48; /* fall through */
    case 6: last |= (uint64_t)bytes[5] << 40; /* fall through */
    case 5: last |= (uint64_t)bytes[4] << 32; /* fall through */
    case 4: last |= (uint64_t)bytes[3] << 24; /* fall through */
    case 3: last |= (uint64_t)bytes[2] << 16; /* fall through */
    case 2: last |= (uint64_t)bytes[1] << 8;  /* fall through */
    case 1: last |= (uint64_t)bytes[0];       /* fall through */
    case 0: break;
    }
    siphash_absorb(&s, last);
    s.v2 ^= 0xff;
    siphash_round(&s);
    siphash_round(&s);
    siphash_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

#endif
