// What every kernel is given: where the state of a run lies on the device, and its sizes. `state.rs` has the same
// structures; a field added here is added there.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// A table with its first and second moments, rows padded to whole cache lines. Compact moments are two first ones to a
// word, and one second for each row: see `optim/halves.rs`.
struct Table {
    float *values, *first, *second;
};

// The rows of a table that a step touches. A row's gradient is summed in whole numbers, so that the sum does not
// depend on the order in which threads come: results repeat, bit for bit.
struct Touched {
    u32 *stamp;     // by row: the step that touched it last, counted from 1
    u32 *slot;      // by row: where its gradient is summed
    u32 *before;    // by slot: the step that touched the row before this one; 0 for none
    u32 *rows;      // by slot
    i64 *gradient;  // by slot, in units of 2^-38; zero between steps
    u32 *count;
};

struct Alias {
    u32 keep, other;
};

struct Span {
    u32 start, len;
};

// Where the run stands; only `begin_step` writes it.
struct Clock {
    u64 step;
    u32 epoch;
    u32 first;    // of the batch, in the order of the epoch
    u32 n_users;  // in the batch
    u32 next;     // first of the next batch
    float learning_rate;  // of the epoch
    float rate;           // over the first moment's bias correction
    float second_scale;   // one over the root of the second moment's
    float decoupled_decay;
    float anneal;
    u32 padding;
    double likelihood_loss, kl, weighted_kl;  // summed since they were last taken
};

struct Run {
    // The interactions by user, and the users in the order of the epoch.
    const u64 *offsets;
    const u32 *positives;
    const float *weights;      // none where all are 1
    const float *input_scale;  // by user: one over the norm of the weights
    const u32 *order;
    // What is learned.
    Table encoder, hidden_bias, head, head_bias, items;
    // The batch, a row for each user (latent, hidden) or each query.
    float *hidden, *d_hidden, *latent, *d_latent, *noise, *queries, *d_queries;
    // The draws of each query, and their corrections, which the loss turns into corrected logits.
    u32 *drawn;
    float *logits;
    // Of the user's positives, beside `positives`, once for each latent draw.
    float *positive_gradient;
    // By query: what turns logits into gradients.
    float *log_sum, *pull;
    // By user: likelihood loss, KL and weighted KL.
    double *losses;
    Touched touched_items, touched_encoder;
    // The proposal.
    float *codebooks[2];        // transposed: codewords are the columns, `score_stride` apart
    u8 *codes;                  // by codebook and item
    u32 *list;                  // items by place
    Alias *alias;               // by place
    float *log_weights;         // by place
    float *item_log_weights;    // by item; none where all items of a cell are alike
    float *mass, *log_mass;     // by slot
    Span *spans;                // by slot
    float *shares;              // of the partitions (uniform, popularity)
    Clock *clock;
    u64 seed;
    u64 n_interactions;
    u64 anneal_steps;
    u32 n_items, n_order, batch, samples, negatives;
    u32 hidden_width, hidden_stride, latent_width, latent_stride, head_stride;
    u32 n_codewords, score_stride, n_slots, one_word;
    u32 columns_start[2], columns_end[2];
    u32 dropout_threshold;
    u32 tanh, stratified, dense_adam, compact, kl_per_interaction;
    float dropout_scale, kl_weight, coupled_decay;
    float log_probability;  // of every item (uniform)
};

const float GRADIENT_UNIT = 274877906944.0f;  // 2^38
const float EXCLUDED = 1e30f;
const float MAX_LOG_VARIANCE = 60.0f;
#define WARP 32
#define FULL 0xffffffffu
#define INFINITY_F __int_as_float(0x7f800000)

__device__ inline u32 user_at(const Run &r, u32 row) { return r.order[r.clock->first + row]; }

// Notes that `row` is touched by the step; gives it a slot if it has none yet.
__device__ inline void touch(const Touched &t, u32 row, u32 stamp) {
    if (t.stamp[row] == stamp) return;
    u32 before = atomicExch(&t.stamp[row], stamp);
    if (before != stamp) {
        u32 slot = atomicAdd(t.count, 1u);
        t.before[slot] = before;
        t.slot[row] = slot;
        t.rows[slot] = row;
    }
}

__device__ inline void add_gradient(i64 *sum, float value) {
    atomicAdd((u64 *)sum, (u64)__float2ll_rn(value * GRADIENT_UNIT));
}

__device__ inline float warp_sum(float v) {
    for (int o = WARP / 2; o > 0; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
    return v;
}

__device__ inline float warp_max(float v) {
    for (int o = WARP / 2; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL, v, o));
    return v;
}

// The sum (or largest) of a value over the block, in a fixed order; `buffer` holds one value for each warp.
template <typename T> __device__ inline T block_sum(T v, T *buffer) {
    for (int o = WARP / 2; o > 0; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
    __syncthreads();
    if (threadIdx.x % WARP == 0) buffer[threadIdx.x / WARP] = v;
    __syncthreads();
    T sum = 0;
    for (u32 w = 0; w < blockDim.x / WARP; w++) sum += buffer[w];
    return sum;
}

__device__ inline float block_max(float v, float *buffer) {
    v = warp_max(v);
    __syncthreads();
    if (threadIdx.x % WARP == 0) buffer[threadIdx.x / WARP] = v;
    __syncthreads();
    float top = buffer[0];
    for (u32 w = 1; w < blockDim.x / WARP; w++) top = fmaxf(top, buffer[w]);
    return top;
}

// Turns `n` counts into the sums of those before each, and the sum of all after the last.
__device__ inline void block_scan(u32 *values, u32 n, u32 *buffer) {
    u32 each = (n + blockDim.x - 1) / blockDim.x;
    u32 from = min(threadIdx.x * each, n), to = min(from + each, n);
    u32 mine = 0;
    for (u32 i = from; i < to; i++) mine += values[i];
    u32 lane = threadIdx.x % WARP, sum = mine;
    for (int o = 1; o < WARP; o <<= 1) {
        u32 below = __shfl_up_sync(FULL, sum, o);
        if (lane >= o) sum += below;
    }
    if (lane == WARP - 1) buffer[threadIdx.x / WARP] = sum;
    __syncthreads();
    u32 before = sum - mine;
    for (u32 w = 0; w < threadIdx.x / WARP; w++) before += buffer[w];
    for (u32 i = from; i < to; i++) {
        u32 count = values[i];
        values[i] = before;
        before += count;
    }
    if (to == n && from < to) values[n] = before;
    if (n == 0 && threadIdx.x == 0) values[0] = 0;
    __syncthreads();
}

// The last position of ascending `starts` that is not above `value`, of `n` of which the first is 0.
__device__ inline u32 last_not_above(const u32 *starts, u32 n, u32 value) {
    u32 low = 0, high = n;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (starts[middle] <= value) low = middle; else high = middle;
    }
    return low;
}

// Whether ascending `items` hold `item`.
__device__ inline bool holds(const u32 *items, u32 n, u32 item) {
    u32 low = 0, high = n;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (items[middle] < item) low = middle + 1; else high = middle;
    }
    return low < n && items[low] == item;
}
