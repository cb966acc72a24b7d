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

// The word of draw `rank` of the `count` that fell on a slot, which chooses among its items: a comb again, moved by a
// word that the slot has of the query's first key.
__device__ inline u32 choice(uint4 words, u32 slot, u32 rank, u32 count) {
    return mix(words.y + slot * 0x9E3779B9u) + rank * (0xffffffffu / count);
}

// A place of a span, all alike.
__device__ inline u32 any_place(u32 word, Span span) { return span.start + __umulhi(word, span.len); }

// A place of a span by its alias table; the coin is the rest of the word, or a second one by the query's second key.
__device__ inline u32 choose(const Run &r, u32 word, uint4 words, Span span) {
    u32 place = any_place(word, span), coin = r.one_word ? word * span.len : mix(word ^ words.z);
    Alias slot = r.alias[place];
    return coin < slot.keep ? place : slot.other;
}

// Sixteen weights to draw from; after the last one more, for the end.
union Node {
    double below;  // the sum of all weights before them
    struct {
        u32 first;       // draws that fall before them
        float fraction;  // where the comb stands at their start, past tooth `first`
    } comb;
};

// Each sixteen of `n` weights become the sums of the first 1 to 16 of them, and the nodes get the sums of all before.
// Returns the sum of all.
__device__ inline double add_up(u32 n, float *sums, Node *nodes) {
    u32 n_nodes = n / 16;
    for (u32 node = threadIdx.x; node < n_nodes; node += blockDim.x) {
        float sum = 0.0f;
        for (u32 k = 0; k < 16; k++) {
            sum += sums[node * 16 + k];
            sums[node * 16 + k] = sum;
        }
        nodes[node + 1].below = sum;
    }
    __syncthreads();
    // One thread: the CPU adds in this order, and another rounds otherwise.
    if (threadIdx.x == 0) {
        double below = 0.0;
        nodes[0].below = below;
#pragma unroll 16
        for (u32 node = 1; node <= n_nodes; node++) {
            below += nodes[node].below;
            nodes[node].below = below;
        }
    }
    __syncthreads();
    double total = nodes[n_nodes].below;
    // The comb is laid into the same memory.
    __syncthreads();
    return total;
}

// Systematic draws: lays the comb over the weights, one tooth for each draw. Returns the teeth in a unit of weight.
// Without a sum that is positive and a number, all draws fall on the first. Steps are rounded one by one, as on the
// CPU: a product fused with a sum would move teeth.
__device__ inline float lay_comb(const Run &r, const Query &q, u32 n, double total, Node *nodes) {
    bool some = total > 0.0 && isfinite(total);
    double scale = some ? r.negatives / total : 0.0;
    double offset = random_word(q.stream, 0, 0) / 4294967296.0;
    for (u32 node = threadIdx.x; node <= n / 16; node += blockDim.x) {
        double below = nodes[node].below;
        u32 first = r.negatives;
        float fraction = 0.0f;
        // All teeth lie below the sum of all weights, whatever rounding says.
        if (some && below < total) {
            double start = __dadd_rn(__dmul_rn(below, scale), offset);
            first = min(__double2uint_rz(start), first);
            // Below one: rounded up to it, a tooth would fall on a first weight of zero.
            fraction = fminf((float)(start - first), 0x1.fffffep-1f);
        }
        nodes[node].comb.first = first;
        nodes[node].comb.fraction = fraction;
    }
    __syncthreads();
    return (float)scale;
}

// How many draws fall before the end of weight `slot`.
__device__ inline u32 end_of(const float *sums, const Node *nodes, float scale, u32 slot) {
    u32 first = nodes[slot / 16].comb.first, last = nodes[slot / 16 + 1].comb.first;
    float sum = sums[slot];
    if (sum >= sums[slot | 15]) return last;
    int teeth = __float2int_rz(__fadd_rn(__fmul_rn(sum, scale), nodes[slot / 16].comb.fraction));
    return first + min(teeth, (int)(last - first));
}

// Spreads the draws over the slots: `starts` is left with the first draw of each.
__device__ inline void
spread(const Run &r, const Query &q, const float *sums, double total, Node *nodes, u32 *starts) {
    float scale = lay_comb(r, q, r.n_slots, total, nodes);
    if (threadIdx.x == 0) starts[0] = 0;
    for (u32 slot = threadIdx.x; slot < r.n_slots; slot += blockDim.x)
        starts[slot + 1] = end_of(sums, nodes, scale, slot);
    __syncthreads();
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

// Below this total the products of exponentials may have underflowed: they are then taken anew, each as one.
#define SAFE_TOTAL 1e-12

// midx-uniform and midx-popularity. Shared memory: the nodes, scores and factors (4 strides), partial sums (at least a
// block or two strides), the slots' sums, and their first draws.
extern "C" __global__ void draw_midx(Run r, u32 partial_len) {
    extern __shared__ Node nodes[];
    __shared__ float tops[WARP];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    float *scores = (float *)(nodes + r.n_slots / 16 + 1), *factors = scores + 2 * r.score_stride;
    float *partial = factors + 2 * r.score_stride, *sums = partial + partial_len;
    u32 *starts = (u32 *)(sums + r.n_slots);
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
        sums[slot] = r.mass[slot] * factors[r.score_stride + second] * factors[first];
    }
    __syncthreads();
    double total = add_up(r.n_slots, sums, nodes);
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
            sums[slot] = r.mass[slot] > 0.0f ? expf(logit - shift) : 0.0f;
        }
        __syncthreads();
        total = add_up(r.n_slots, sums, nodes);
    }
    float log_z = shift + logf((float)total);
    spread(r, q, sums, total, nodes, starts);
    uint4 words = random_block(q.stream, 0);
    for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
        u32 slot = last_not_above(starts, r.n_slots, s);
        u32 word = choice(words, slot, s - starts[slot], starts[slot + 1] - starts[slot]);
        Span span = r.spans[slot];
        float log_q = scores[slot / r.score_stride] + scores[r.score_stride + slot % r.score_stride] - log_z;
        u32 place;
        if (r.item_log_weights) {
            place = choose(r, word, words, span);
            log_q += r.log_weights[place];
        } else {
            place = any_place(word, span);
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
// table. Shared memory: the nodes, the parts' sums, and their first draws.
extern "C" __global__ void draw_fixed(Run r) {
    extern __shared__ Node nodes[];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    float *sums = (float *)(nodes + r.n_slots / 16 + 1);
    u32 *starts = (u32 *)(sums + r.n_slots);
    for (u32 slot = threadIdx.x; slot < r.n_slots; slot += blockDim.x) sums[slot] = r.shares[slot];
    __syncthreads();
    double total = add_up(r.n_slots, sums, nodes);
    spread(r, q, sums, total, nodes, starts);
    uint4 words = random_block(q.stream, 0);
    for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
        u32 part = last_not_above(starts, r.n_slots, s);
        u32 word = choice(words, part, s - starts[part], starts[part + 1] - starts[part]);
        Span span = r.spans[part];
        if (r.item_log_weights) {
            u32 item = choose(r, word, words, span);
            put(r, q, s, item, r.item_log_weights[item] + r.log_probability);
        } else {
            put(r, q, s, any_place(word, span), r.log_probability);
        }
    }
    if (r.stratified) return;
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x) {
        float log_weight = r.item_log_weights ? r.item_log_weights[r.positives[q.at + k]] : 0.0f;
        r.positive_gradient[q.gradient + k] = log_weight + r.log_probability;
    }
}

// softmax and midx-exact, linear in the catalogue: over the weights of all items, by item or by place. `scores` has the
// logits of each query; `all_sums` and `all_nodes` have room for the sums and nodes of each in the device's memory.
extern "C" __global__ void draw_softmax(Run r, const float *scores, float *all_sums, Node *all_nodes) {
    __shared__ float tops[WARP];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    u32 n = (r.n_items + 15) / 16 * 16;
    const float *logits = scores + (u64)q.query * r.n_items;
    float *sums = all_sums + (u64)q.query * n, top = -INFINITY_F;
    Node *nodes = all_nodes + (u64)q.query * (n / 16 + 1);
    for (u32 i = threadIdx.x; i < r.n_items; i += blockDim.x) top = fmaxf(top, logits[i]);
    top = block_max(top, tops);
    for (u32 i = threadIdx.x; i < n; i += blockDim.x)
        sums[i] = i < r.n_items ? expf(logits[r.list ? r.list[i] : i] - top) : 0.0f;
    __syncthreads();
    double total = add_up(n, sums, nodes);
    float log_z = top + logf((float)total);
    float scale = lay_comb(r, q, n, total, nodes);
    for (u32 s = threadIdx.x; s < r.negatives; s += blockDim.x) {
        // The last node that starts with draw s or before, and the first of its slots that ends after it.
        u32 low = 0, high = n / 16;
        while (high - low > 1) {
            u32 middle = (low + high) / 2;
            if (nodes[middle].comb.first <= s) low = middle; else high = middle;
        }
        u32 slot = low * 16;
#pragma unroll
        for (u32 step = 8; step > 0; step /= 2)
            if (end_of(sums, nodes, scale, slot + step - 1) <= s) slot += step;
        u32 item = r.list ? r.list[slot] : slot;
        put(r, q, s, item, logits[item] - log_z);
    }
    if (r.stratified) return;
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x)
        r.positive_gradient[q.gradient + k] = logits[r.positives[q.at + k]] - log_z;
}
