// Random numbers by address, the same as on the CPU: Philox4x32-10 of (seed, purpose, part, epoch, entity, index).

#define DROPOUT 3u
#define LATENT 4u
#define NEGATIVES 5u

struct Stream {
    u32 entity, epoch, tag;
    u64 seed;
};

__device__ inline Stream stream_of(const Run &r, u32 purpose, u32 part, u32 user) {
    Stream s = {user, r.clock->epoch, (part << 16) | purpose, r.seed};
    return s;
}

__device__ inline uint4 random_block(const Stream &s, u32 index) {
    u32 c0 = index, c1 = s.entity, c2 = s.epoch, c3 = s.tag;
    u32 k0 = (u32)s.seed, k1 = (u32)(s.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 low_a = 0xD2511F53u * c0, high_a = __umulhi(0xD2511F53u, c0);
        u32 low_b = 0xCD9E8D57u * c2, high_b = __umulhi(0xCD9E8D57u, c2);
        c0 = high_b ^ c1 ^ k0;
        c1 = low_b;
        c2 = high_a ^ c3 ^ k1;
        c3 = low_a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ inline u32 pick(uint4 b, u32 i) { return i == 0 ? b.x : i == 1 ? b.y : i == 2 ? b.z : b.w; }

// Word `index` of the stream, counted from block `block`.
__device__ inline u32 random_word(const Stream &s, u32 block, u32 index) {
    return pick(random_block(s, block + index / 4), index % 4);
}

__device__ inline u32 mix(u32 word) {
    word = (word ^ (word >> 16)) * 0x85EBCA6Bu;
    word = (word ^ (word >> 13)) * 0xC2B2AE35u;
    return word ^ (word >> 16);
}

// Standard normal number `index`, by Box and Muller's transform.
__device__ inline float random_normal(const Stream &s, u32 index) {
    u32 first = index & ~1u;
    uint4 b = random_block(s, first / 4);
    u32 a = pick(b, first % 4), c = pick(b, first % 4 + 1);
    const float unit = 1.0f / 16777216.0f;
    float radius = sqrtf(fmaxf(-2.0f * logf(((a >> 8) + 1) * unit), 0.0f));
    float turn = (c >> 8) * unit - 0.5f;
    return radius * ((index & 1) ? sinpif(2.0f * turn) : cospif(2.0f * turn));
}
