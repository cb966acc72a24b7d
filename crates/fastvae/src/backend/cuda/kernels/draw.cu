// Negatives: for each query a block draws items from the proposal, leaves what the loss subtracts from their logits
// (ln Q), and the same for the user's positives.

// The query of a block, and whose it is.
struct Query {
    u32 query, row, user, n_positives;
    u64 at;       // of the positives
    u64 gradient; // of the positives' gradients
    Stream stream;
};

__device__ inline bool query_of(const Run &r, u32 query, Query &q) {
    q.query = query;
    q.row = query / r.samples;
    if (q.row >= r.clock->n_users) return false;
    q.user = user_at(r, q.row);
    q.at = r.offsets[q.user];
    q.n_positives = (u32)(r.offsets[q.user + 1] - q.at);
    q.gradient = (u64)(query % r.samples) * r.n_interactions + q.at;
    q.stream = stream_of(r, NEGATIVES, query % r.samples, q.user);
    return true;
}

// Puts down draw `s`; the stratified estimator leaves draws of positives out.
__device__ inline void put(const Run &r, const Query &q, u32 s, u32 item, float log_q) {
    u64 at = (u64)q.query * r.negatives + s;
    if (r.stratified && holds(r.positives + q.at, q.n_positives, item)) log_q = EXCLUDED;
    r.drawn[at] = item;
    r.logits[at] = log_q;
    touch(r.touched_items, item, (u32)r.clock->step);
}

__device__ inline u32 below(u32 word, u32 n) { return __umulhi(word, n); }

// A place of a span by its alias table.
__device__ inline u32 choose(const Run &r, const Stream &s, u32 block, u32 index, Span span) {
    u32 place, coin;
    if (r.one_word) {
        u64 product = (u64)random_word(s, block, index) * span.len;
        place = span.start + (u32)(product >> 32);
        coin = (u32)product;
    } else {
        place = span.start + below(random_word(s, block, 2 * index), span.len);
        coin = random_word(s, block, 2 * index + 1);
    }
    Alias slot = r.alias[place];
    return coin < slot.keep ? place : slot.other;
}

// How many of sixteen cumulated weights are not above the target that a random word makes of their total.
__device__ inline u32 child_of(const float *sums, u32 word) {
    float total = sums[15];
    float target = (word >> 8) * (1.0f / 16777216.0f) * total;
    if (target >= total) target = __int_as_float(max(__float_as_int(total) - 1, 0));
    u32 child = 0;
#pragma unroll
    for (u32 step = 8; step > 0; step /= 2)
        if (sums[child + step - 1] <= target) child += step;
    return child;
}

// Weights, a multiple of sixteen of them, become cumulated sums, level by level, the root last. Returns its total.
__device__ inline float build_tree(u32 n, float *tree) {
    u64 from = 0;
    while (true) {
        u32 nodes = (n + 15) / 16;
        u64 above = from + (u64)nodes * 16;
        for (u32 node = threadIdx.x; node < nodes; node += blockDim.x) {
            float sum = 0.0f;
            for (u32 k = 0; k < 16; k++) {
                sum += tree[from + node * 16 + k];
                tree[from + node * 16 + k] = sum;
            }
            if (nodes > 1) tree[above + node] = sum;
        }
        if (nodes > 1 && threadIdx.x < 16 && nodes + threadIdx.x < (nodes + 15) / 16 * 16)
            tree[above + nodes + threadIdx.x] = 0.0f;
        __syncthreads();
        if (nodes == 1) return tree[from + 15];
        from = above;
        n = nodes;
    }
}

// Where level `level` of the tree starts (0: the root) and how many nodes it has.
__device__ inline void level_of(const Run &r, u32 level, u32 &from, u32 &nodes) {
    from = 0;
    nodes = (r.n_slots + 15) / 16;
    for (u32 up = r.n_levels - 1; up > level; up--) {
        from += nodes * 16;
        nodes = (nodes + 15) / 16;
    }
}

// Spreads the draws over the tree: `starts` is left with the first draw of each slot.
__device__ inline void spread(const Run &r, const Query &q, const float *tree, u32 *starts, u32 *counts, u32 *buffer) {
    u32 pad = (r.negatives + STREAM_RUN - 1) / STREAM_RUN * STREAM_RUN;
    u32 above = 1;
    if (threadIdx.x == 0) { starts[0] = 0; starts[1] = r.negatives; }
    for (u32 level = 0; level < r.n_levels; level++) {
        u32 from, nodes;
        level_of(r, level, from, nodes);
        for (u32 i = threadIdx.x; i < nodes * 16; i += blockDim.x) counts[i] = 0;
        __syncthreads();
        for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
            u32 node = last_not_above(starts, above, s);
            u32 child = child_of(tree + from + node * 16, random_word(q.stream, 0, level * pad + s));
            atomicAdd(&counts[node * 16 + child], 1u);
        }
        __syncthreads();
        block_scan(counts, nodes * 16, buffer);
        for (u32 i = threadIdx.x; i <= nodes * 16; i += blockDim.x) starts[i] = counts[i];
        __syncthreads();
        above = nodes * 16;
    }
}

// The inner products of the query with all codewords: both codebooks, `score_stride` apart.
__device__ inline void codeword_scores(const Run &r, const Query &q, float *scores, float *partial) {
    u32 width = 2 * r.score_stride;
    const float *z = r.queries + (u64)q.query * r.latent_stride;
    u32 parts = max(blockDim.x / width, 1u);
    for (u32 i = threadIdx.x; i < parts * width; i += blockDim.x) {
        u32 part = i / width, c = i % width, book = c / r.score_stride, k = c % r.score_stride;
        u32 n = r.columns_end[book] - r.columns_start[book];
        float sum = 0.0f;
        for (u32 d = part; d < n; d += parts)
            sum += z[r.columns_start[book] + d] * r.codebooks[book][d * r.score_stride + k];
        partial[i] = sum;
    }
    __syncthreads();
    for (u32 c = threadIdx.x; c < width; c += blockDim.x) {
        float sum = 0.0f;
        for (u32 part = 0; part < parts; part++) sum += partial[part * width + c];
        scores[c] = sum;
    }
    __syncthreads();
}

// Partitions, at most, and the mark after the last.
#define MOST_PARTITIONS 128

// Below this total the products of exponentials may have underflowed: they are then taken anew, each as one.
#define SAFE_TOTAL 1e-12f

// midx-uniform and midx-popularity. Shared memory: scores and factors (4 strides), partial sums (at least a block or
// two strides), the tree, and twice the counts.
extern "C" __global__ void draw_midx(Run r, u32 partial_len, u32 tree_len) {
    extern __shared__ float shared[];
    __shared__ u32 buffer[WARP];
    __shared__ u32 ends[MOST_PARTITIONS];
    __shared__ float tops[WARP];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    float *scores = shared, *factors = scores + 2 * r.score_stride;
    float *partial = factors + 2 * r.score_stride, *tree = partial + partial_len;
    u32 *starts = (u32 *)(tree + tree_len), *counts = starts + r.n_slots + 1;
    codeword_scores(r, q, scores, partial);
    float shift = 0.0f;
    for (u32 book = 0; book < 2; book++) {
        const float *mine = scores + book * r.score_stride;
        float top = -INFINITY_F;
        for (u32 k = threadIdx.x; k < r.n_codewords; k += blockDim.x) top = fmaxf(top, mine[k]);
        top = block_max(top, tops);
        for (u32 k = threadIdx.x; k < r.score_stride; k += blockDim.x)
            factors[book * r.score_stride + k] = expf(mine[k] - top);
        shift += top;
        __syncthreads();
    }
    for (u32 slot = threadIdx.x; slot < r.n_slots; slot += blockDim.x) {
        u32 first = slot / r.score_stride, second = slot % r.score_stride;
        tree[slot] = r.mass[slot] * factors[r.score_stride + second] * factors[first];
    }
    __syncthreads();
    float total = build_tree(r.n_slots, tree);
    if (!(total > SAFE_TOTAL)) {
        float top = -INFINITY_F;
        for (u32 slot = threadIdx.x; slot < r.n_slots; slot += blockDim.x) {
            u32 first = slot / r.score_stride, second = slot % r.score_stride;
            top = fmaxf(top, scores[first] + scores[r.score_stride + second] + r.log_mass[slot]);
        }
        shift = block_max(top, tops);
        for (u32 slot = threadIdx.x; slot < r.n_slots; slot += blockDim.x) {
            u32 first = slot / r.score_stride, second = slot % r.score_stride;
            float logit = scores[first] + scores[r.score_stride + second] + r.log_mass[slot];
            tree[slot] = r.mass[slot] > 0.0f ? expf(logit - shift) : 0.0f;
        }
        __syncthreads();
        total = build_tree(r.n_slots, tree);
    }
    float log_z = shift + logf(total);
    if (threadIdx.x < MOST_PARTITIONS) ends[threadIdx.x] = r.slot_ends[threadIdx.x];
    spread(r, q, tree, starts, counts, buffer);
    for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
        u32 slot = last_not_above(starts, r.n_slots, s);
        u32 part = 0;
        while (ends[part] <= slot) part++;
        u32 rank = s - starts[part == 0 ? 0 : ends[part - 1]];
        u32 block = CHOICES + (part << 20);
        Span span = r.spans[slot];
        float log_q = scores[slot / r.score_stride] + scores[r.score_stride + slot % r.score_stride] - log_z;
        u32 place;
        if (r.item_log_weights) {
            place = choose(r, q.stream, block, rank, span);
            log_q += r.log_weights[place];
        } else {
            place = span.start + below(random_word(q.stream, block, rank), span.len);
        }
        put(r, q, s, r.list[place], log_q);
    }
    if (r.stratified) return;
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x) {
        u32 item = r.positives[q.at + k];
        float log_q = scores[r.codes[item]] + scores[r.score_stride + r.codes[r.n_items + item]] - log_z;
        if (r.item_log_weights) log_q += r.item_log_weights[item];
        r.positive_gradient[q.gradient + k] = log_q;
    }
}

// uniform and popularity: the parts of the catalogue by their shares, the items of a part all alike or by its alias
// table. Shared memory: the tree, and twice the counts.
extern "C" __global__ void draw_fixed(Run r, u32 tree_len) {
    extern __shared__ float shared[];
    __shared__ u32 buffer[WARP];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    float *tree = shared;
    u32 *starts = (u32 *)(tree + tree_len), *counts = starts + r.n_slots + 1;
    for (u32 slot = threadIdx.x; slot < r.n_slots; slot += blockDim.x) tree[slot] = r.shares[slot];
    __syncthreads();
    build_tree(r.n_slots, tree);
    spread(r, q, tree, starts, counts, buffer);
    for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
        u32 part = last_not_above(starts, r.n_slots, s), rank = s - starts[part], block = CHOICES + (part << 20);
        Span span = r.spans[part];
        if (r.item_log_weights) {
            u32 item = choose(r, q.stream, block, rank, span);
            put(r, q, s, item, r.item_log_weights[item] + r.log_probability);
        } else {
            put(r, q, s, span.start + below(random_word(q.stream, block, rank), span.len), r.log_probability);
        }
    }
    if (r.stratified) return;
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x) {
        float log_weight = r.item_log_weights ? r.item_log_weights[r.positives[q.at + k]] : 0.0f;
        r.positive_gradient[q.gradient + k] = log_weight + r.log_probability;
    }
}

// softmax and midx-exact, linear in the catalogue: a tree over the weights of all items in the device's memory, by item
// or by place. `scores` has the logits of each query, `trees` room for a tree of each. Shared memory: two numbers for
// each draw, rounded up to a power of two (`padded`).
extern "C" __global__ void draw_softmax(Run r, const float *scores, float *trees, u64 tree_len, u32 n_levels, u32 padded) {
    extern __shared__ u32 nodes[];
    __shared__ float tops[WARP];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    const float *logits = scores + (u64)q.query * r.n_items;
    float *tree = trees + (u64)q.query * tree_len, top = -INFINITY_F;
    for (u32 i = threadIdx.x; i < r.n_items; i += blockDim.x) top = fmaxf(top, logits[i]);
    top = block_max(top, tops);
    u32 n = (r.n_items + 15) / 16 * 16;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x)
        tree[i] = i < r.n_items ? expf(logits[r.list ? r.list[i] : i] - top) : 0.0f;
    __syncthreads();
    float log_z = top + logf(build_tree(n, tree));
    // Down the tree: `nodes` ascend, so that draw s of a level is the s-th in the order of the nodes.
    u32 pad = (r.negatives + STREAM_RUN - 1) / STREAM_RUN * STREAM_RUN;
    for (u32 s = threadIdx.x; s < padded; s += blockDim.x) nodes[s] = s < r.negatives ? 0 : 0xffffffffu;
    __syncthreads();
    for (u32 level = 0; level < n_levels; level++) {
        u64 from = 0;
        u32 width = n / 16;
        for (u32 up = n_levels - 1; up > level; up--) {
            from += (u64)width * 16;
            width = (width + 15) / 16;
        }
        for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
            u32 node = nodes[s];
            nodes[s] = node * 16 + child_of(tree + from + (u64)node * 16, random_word(q.stream, 0, level * pad + s));
        }
        for (u32 size = 2; size <= padded; size *= 2)
            for (u32 step = size / 2; step > 0; step /= 2) {
                __syncthreads();
                for (u32 i = threadIdx.x; i < padded; i += blockDim.x) {
                    u32 j = i ^ step;
                    if (j <= i) continue;
                    u32 a = nodes[i], b = nodes[j];
                    if (((i & size) == 0) == (a > b)) { nodes[i] = b; nodes[j] = a; }
                }
            }
        __syncthreads();
    }
    for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
        u32 item = r.list ? r.list[nodes[s]] : nodes[s];
        put(r, q, s, item, logits[item] - log_z);
    }
    if (r.stratified) return;
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x)
        r.positive_gradient[q.gradient + k] = logits[r.positives[q.at + k]] - log_z;
}
