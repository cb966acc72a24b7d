// Scores of many queries, and the best items of each: scores in tiles of users, then a selection.

extern "C" __global__ void __launch_bounds__(256) rank_scores(const float *queries, u32 n_queries, const float *items,
                                                              u32 n_items, u32 stride, u32 width, float *out) {
    score_tile(queries, n_queries, items, n_items, stride, width, out, n_items);
}

// The queries of the users: the mean of the latent distribution. A thread for each value.
extern "C" __global__ void rank_queries(Run r) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 row = i / r.latent_stride, d = i % r.latent_stride;
    if (row >= r.clock->n_users) return;
    r.queries[i] = d < r.latent_width ? r.latent[(u64)row * r.head_stride + d] : 0.0f;
}

// Larger is better; equal scores go to the smaller item. Items that must not be ranked come last.
__device__ inline u64 rank_key(float score, u32 item) {
    u32 bits = __float_as_uint(score + 0.0f);
    u32 ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ((u64)ordered << 32) | (u32)~item;
}

// Sorts `n` keys, a power of two, the largest first.
__device__ inline void sort_keys(u64 *keys, u32 n) {
    for (u32 size = 2; size <= n; size *= 2)
        for (u32 step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
                u32 j = i ^ step;
                if (j > i) {
                    u64 a = keys[i], b = keys[j];
                    bool falling = (i & size) == 0;
                    if (falling ? a < b : a > b) { keys[i] = b; keys[j] = a; }
                }
            }
        }
    __syncthreads();
}

#define RANK_THREADS 1024
#define CANDIDATES 4096

// A block for each user: the `k` best of its scores, best first; `none` after the last. Every thread's best score is
// found first: the k-th best of these bounds the k-th best of all from below, so that few are left to be sorted.
extern "C" __global__ void __launch_bounds__(RANK_THREADS) rank_best(Run r, float *scores, u32 k, u32 *best, float *best_scores) {
    __shared__ u64 keys[CANDIDATES];
    __shared__ u32 count;
    u32 row = blockIdx.x;
    if (row >= r.clock->n_users) return;
    u32 user = user_at(r, row);
    float *mine = scores + (u64)row * r.n_items;
    for (u64 at = r.offsets[user] + threadIdx.x; at < r.offsets[user + 1]; at += RANK_THREADS)
        mine[r.positives[at]] = -INFINITY_F;
    __syncthreads();
    // Scores that are no numbers are never ranked.
    u64 top = 0;
    for (u32 i = threadIdx.x; i < r.n_items; i += RANK_THREADS) {
        float score = mine[i];
        if (score > -INFINITY_F) top = max(top, rank_key(score, i));
    }
    keys[threadIdx.x] = top;
    sort_keys(keys, RANK_THREADS);
    u64 bound = keys[k - 1];
    __syncthreads();
    // With fewer scores than threads that have any, all of them are candidates; those beyond the room are not needed,
    // as no more than `CANDIDATES` scores can then be left.
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < r.n_items; i += RANK_THREADS) {
        float score = mine[i];
        if (!(score > -INFINITY_F)) continue;
        u64 key = rank_key(score, i);
        if (key >= bound) {
            u32 at = atomicAdd(&count, 1u);
            if (at < CANDIDATES) keys[at] = key;
        }
    }
    __syncthreads();
    u32 n = min(count, (u32)CANDIDATES), size = 1;
    while (size < n) size *= 2;
    for (u32 i = n + threadIdx.x; i < size; i += RANK_THREADS) keys[i] = 0;
    sort_keys(keys, size);
    for (u32 i = threadIdx.x; i < k; i += RANK_THREADS) {
        bool present = i < n;
        u32 ordered = present ? (u32)(keys[i] >> 32) : 0;
        best[(u64)row * k + i] = present ? ~(u32)keys[i] : 0xffffffffu;
        best_scores[(u64)row * k + i] =
            __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
    }
}
