// Gradients of touched rows, summed in whole numbers, and Adam.

// One value's update; `p`, `m` and `v` are the parameter and its moments.
__device__ inline void adam_step(const Run &r, const Clock &c, float &p, float &m, float &v, float g) {
    g = fmaf(p, r.coupled_decay, g);
    m = fmaf(g - m, 1.0f - 0.9f, m);
    v = fmaf(g * g, 1.0f - 0.999f, v * 0.999f);
    p = fmaf(p, -c.decoupled_decay, p);
    p -= m * c.rate / fmaf(sqrtf(v), c.second_scale, 1e-8f);
}

// What dense Adam would have done in the `gap` steps that did not touch the row.
__device__ inline void catch_up(const Run &r, const Clock &c, u32 gap, float &p, float &m, float &v) {
    float root = fmaf(sqrtf(v), c.second_scale, 1e-8f);
    const float ratio = 0.9f / 0.99949987f;
    float steps = ratio * (1.0f - powf(ratio, (float)gap)) / (1.0f - ratio);
    // Decay takes no more than there is, however small the root.
    float decay = c.rate * r.coupled_decay * (float)gap;
    p -= fmaf(p, decay, m * (c.rate * steps)) / fmaxf(root, decay);
    p *= powf(1.0f - c.decoupled_decay, (float)gap);
    m *= powf(0.9f, (float)gap);
    v *= powf(0.999f, (float)gap);
}

__device__ inline void adam(const Run &r, Table t, u64 at, float g) {
    float p = t.values[at], m = t.first[at], v = t.second[at];
    adam_step(r, *r.clock, p, m, v, g);
    t.values[at] = p;
    t.first[at] = m;
    t.second[at] = v;
}

// The item vectors' gradients: a group of lanes for each draw or positive, a block for a stretch of a query's draws, and
// the last one for its positives.
extern "C" __global__ void item_gradients(Run r) {
    Query q;
    if (!query_of(r, blockIdx.y, q)) return;
    const float *z = r.queries + (u64)q.query * r.latent_stride;
    u32 lanes = min(r.latent_stride, (u32)WARP), lane = threadIdx.x % lanes;
    u32 groups = blockDim.x / lanes, group = threadIdx.x / lanes, stretches = gridDim.x - 1;
    if (blockIdx.x == stretches) {
        float share = 1.0f / r.samples;
        for (u32 k = group; k < q.n_positives; k += groups) {
            float weight = r.positive_gradient[q.gradient + k] * share;
            u32 slot = r.touched_items.slot[r.positives[q.at + k]];
            i64 *sum = r.touched_items.gradient + (u64)slot * r.latent_stride;
            for (u32 d = lane; d < r.latent_width; d += lanes) add_gradient(sum + d, weight * z[d]);
        }
        return;
    }
    float pull = r.pull[q.query], log_sum = r.log_sum[q.query];
    for (u32 s = blockIdx.x * groups + group; s < r.negatives; s += stretches * groups) {
        u64 at = (u64)q.query * r.negatives + s;
        float weight = pull * expf(r.logits[at] - log_sum);
        if (weight == 0.0f) continue;
        i64 *sum = r.touched_items.gradient + (u64)r.touched_items.slot[r.drawn[at]] * r.latent_stride;
        for (u32 d = lane; d < r.latent_width; d += lanes) add_gradient(sum + d, weight * z[d]);
    }
}

// The encoder rows' gradients: a block for each user.
extern "C" __global__ void encoder_gradients(Run r) {
    u32 row = blockIdx.x;
    if (row >= r.clock->n_users) return;
    u32 user = user_at(r, row);
    u64 at = r.offsets[user];
    u32 n = (u32)(r.offsets[user + 1] - at);
    Stream s = stream_of(r, DROPOUT, 0, user);
    float scale = r.input_scale[user];
    const float *gradient = r.d_hidden + (u64)row * r.hidden_stride;
    u32 lane = threadIdx.x % WARP;
    for (u32 k = blockIdx.y * (blockDim.x / WARP) + threadIdx.x / WARP; k < n; k += gridDim.y * (blockDim.x / WARP)) {
        float weight = input_weight(r, s, at, k, scale);
        if (weight == 0.0f) continue;
        i64 *sum = r.touched_encoder.gradient + (u64)r.touched_encoder.slot[r.positives[at + k]] * r.hidden_stride;
        for (u32 h = lane; h < r.hidden_width; h += WARP) add_gradient(sum + h, weight * gradient[h]);
    }
}

__device__ inline float in_floats(i64 sum) { return (float)((double)sum * (1.0 / (double)GRADIENT_UNIT)); }

// A row to be updated: the `i`-th that the step touched, or with dense Adam row `i`.
struct Visit {
    u32 row, gap;   // and the steps that passed over it
    i64 *gradient;  // none where the step did not touch it
};

__device__ inline Visit visit(const Run &r, const Touched &t, u32 stamp, u32 stride, u32 i) {
    if (r.dense_adam) return {i, 0, t.stamp[i] == stamp ? t.gradient + (u64)t.slot[i] * stride : 0};
    u32 before = t.before[i];
    return {t.rows[i], before > 0 ? stamp - before - 1 : 0, t.gradient + (u64)i * stride};
}

// Four numbers of a gradient, which is set to zero; zeros where there is none.
__device__ inline float4 take_four(i64 *gradient) {
    if (!gradient) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    longlong2 *sums = (longlong2 *)gradient, zero = {0, 0};
    longlong2 a = sums[0], b = sums[1];
    sums[0] = zero;
    sums[1] = zero;
    return make_float4(in_floats(a.x), in_floats(a.y), in_floats(b.x), in_floats(b.y));
}

// Updates the touched rows of a table, or with dense Adam all of them: a group of lanes for each row, four values a
// lane. Padding has no gradient and stays zero.
__device__ inline void update_rows(const Run &r, Table table, const Touched &t, u32 stride) {
    u32 lanes = 4;
    while (lanes < WARP && lanes * 4 < stride) lanes *= 2;
    u32 rows = r.dense_adam ? r.n_items : *t.count, stamp = (u32)r.clock->step;
    Clock c = *r.clock;
    u32 lane = threadIdx.x % lanes, each = blockDim.x / lanes;
    for (u32 i = blockIdx.x * each + threadIdx.x / lanes; i < rows; i += gridDim.x * each) {
        auto [row, gap, gradient] = visit(r, t, stamp, stride, i);
        for (u32 column = lane * 4; column < stride; column += lanes * 4) {
            u64 at = (u64)row * stride + column;
            float4 g = take_four(gradient ? gradient + column : 0);
            float4 p = *(float4 *)(table.values + at), m = *(float4 *)(table.first + at);
            float4 v = *(float4 *)(table.second + at);
            if (gap > 0) {
                catch_up(r, c, gap, p.x, m.x, v.x);
                catch_up(r, c, gap, p.y, m.y, v.y);
                catch_up(r, c, gap, p.z, m.z, v.z);
                catch_up(r, c, gap, p.w, m.w, v.w);
            }
            adam_step(r, c, p.x, m.x, v.x, g.x);
            adam_step(r, c, p.y, m.y, v.y, g.y);
            adam_step(r, c, p.z, m.z, v.z, g.z);
            adam_step(r, c, p.w, m.w, v.w, g.w);
            *(float4 *)(table.values + at) = p;
            *(float4 *)(table.first + at) = m;
            *(float4 *)(table.second + at) = v;
        }
    }
}

// A float whose upper half is the nearest to `x`, or of two as near the even one.
__device__ inline u32 rounded(float x) {
    u32 bits = __float_as_uint(x);
    return bits + 0x7fffu + ((bits >> 16) & 1u);
}

__device__ inline float upper(u32 word) { return __uint_as_float(word & 0xffff0000u); }
__device__ inline float lower(u32 word) { return __uint_as_float(word << 16); }
__device__ inline u32 pack(float high, float low) { return (rounded(high) & 0xffff0000u) | (rounded(low) >> 16); }

// What a row with compact moments missed: as `catch_up`, over the root that is one for the whole row.
struct Missed {
    float momentum, decay, shrink, first, second;
};

__device__ inline Missed missed(const Run &r, const Clock &c, u32 gap, float second) {
    const float ratio = 0.9f / 0.99949987f;
    float steps = ratio * (1.0f - powf(ratio, (float)gap)) / (1.0f - ratio);
    float decay = c.rate * r.coupled_decay * (float)gap;
    float root = fmaxf(fmaf(sqrtf(second), c.second_scale, 1e-8f), decay);
    return {c.rate * steps / root, decay / root, powf(1.0f - c.decoupled_decay, (float)gap), powf(0.9f, (float)gap),
            powf(0.999f, (float)gap)};
}

// The first moment of one value of a row after a step, where it was `m`; `squares` grows by that of the gradient.
__device__ inline float mean(const Run &r, const Missed &missed, u32 gap, float &p, float m, float g, float &squares) {
    if (gap > 0) {
        p = (p - fmaf(p, missed.decay, m * missed.momentum)) * missed.shrink;
        m *= missed.first;
    }
    g = fmaf(p, r.coupled_decay, g);
    squares = fmaf(g, g, squares);
    return fmaf(g - m, 1.0f - 0.9f, m);
}

// The same for four values, with the sums of their gradient where there are some; these are set to zero.
__device__ inline void mean_of_four(const Run &r, const Missed &missed, u32 gap, float *values, i64 *gradient,
                                    float4 &means, float &squares) {
    float4 p = *(float4 *)values, g = take_four(gradient);
    means.x = mean(r, missed, gap, p.x, means.x, g.x, squares);
    means.y = mean(r, missed, gap, p.y, means.y, g.y, squares);
    means.z = mean(r, missed, gap, p.z, means.z, g.z, squares);
    means.w = mean(r, missed, gap, p.w, means.w, g.w, squares);
    if (gap > 0) *(float4 *)values = p;
}

__device__ inline void move_four(float *values, float4 means, float rate, float keep) {
    float4 p = *(float4 *)values;
    *(float4 *)values = make_float4(fmaf(means.x, rate, p.x * keep), fmaf(means.y, rate, p.y * keep),
                                    fmaf(means.z, rate, p.z * keep), fmaf(means.w, rate, p.w * keep));
}

// As `update_rows`, with compact moments: a group of lanes for each row, four words a lane, and a second time once the
// second moment of the row is known.
__device__ inline void update_compact_rows(const Run &r, Table table, const Touched &t, u32 stride, u32 width) {
    u32 words = (stride + 31) / 32 * 16, lanes = 4;
    while (lanes < WARP && lanes * 4 < words) lanes *= 2;
    u32 rows = r.dense_adam ? r.n_items : *t.count, stamp = (u32)r.clock->step;
    Clock c = *r.clock;
    u32 lane = threadIdx.x % lanes, each = blockDim.x / lanes;
    u32 group = lanes == WARP ? FULL : ((1u << lanes) - 1) << (threadIdx.x % WARP / lanes * lanes);
    for (u32 i = blockIdx.x * each + threadIdx.x / lanes; i < rows; i += gridDim.x * each) {
        auto [row, gap, gradient] = visit(r, t, stamp, stride, i);
        float *values = table.values + (u64)row * stride, second = table.second[row], squares = 0.0f;
        uint4 *first = (uint4 *)(table.first + (u64)row * words);
        Missed m = {};
        if (gap > 0) {
            m = missed(r, c, gap, second);
            second *= m.second;
        }
        for (u32 four = lane; four < words / 4; four += lanes) {
            u32 column = four / 4 * 32 + four % 4 * 4;
            uint4 w = first[four];
            float4 high = make_float4(upper(w.x), upper(w.y), upper(w.z), upper(w.w));
            float4 low = make_float4(lower(w.x), lower(w.y), lower(w.z), lower(w.w));
            mean_of_four(r, m, gap, values + column, gradient ? gradient + column : 0, high, squares);
            if (column + 16 < stride)
                mean_of_four(r, m, gap, values + column + 16, gradient ? gradient + column + 16 : 0, low, squares);
            first[four] = make_uint4(pack(high.x, low.x), pack(high.y, low.y), pack(high.z, low.z), pack(high.w, low.w));
        }
        for (u32 other = lanes / 2; other > 0; other /= 2) squares += __shfl_xor_sync(group, squares, other);
        second = fmaf(squares, (1.0f - 0.999f) / width, second * 0.999f);
        if (lane == 0) table.second[row] = second;
        float rate = -c.rate / fmaf(sqrtf(second), c.second_scale, 1e-8f), keep = 1.0f - c.decoupled_decay;
        for (u32 four = lane; four < words / 4; four += lanes) {
            u32 column = four / 4 * 32 + four % 4 * 4;
            uint4 w = first[four];
            move_four(values + column, make_float4(upper(w.x), upper(w.y), upper(w.z), upper(w.w)), rate, keep);
            if (column + 16 < stride)
                move_four(values + column + 16, make_float4(lower(w.x), lower(w.y), lower(w.z), lower(w.w)), rate, keep);
        }
    }
}

extern "C" __global__ void update_items(Run r) {
    if (r.compact) update_compact_rows(r, r.items, r.touched_items, r.latent_stride, r.latent_width);
    else update_rows(r, r.items, r.touched_items, r.latent_stride);
}

extern "C" __global__ void update_encoder(Run r) {
    if (r.compact) update_compact_rows(r, r.encoder, r.touched_encoder, r.hidden_stride, r.hidden_width);
    else update_rows(r, r.encoder, r.touched_encoder, r.hidden_stride);
}

// Values of a block of the dense layer's update, rows of the layer that it takes together, and parts that the users are
// cut into.
#define DENSE_COLUMNS 64
#define DENSE_ROWS 4
#define DENSE_PARTS 8

// The dense layer: a block for some columns of `DENSE_ROWS` rows; its threads share out the users.
extern "C" __global__ void __launch_bounds__(DENSE_COLUMNS *DENSE_PARTS) update_dense(Run r) {
    __shared__ float partial[DENSE_PARTS][DENSE_ROWS][DENSE_COLUMNS];
    u32 column = threadIdx.x % DENSE_COLUMNS, part = threadIdx.x / DENSE_COLUMNS, n = r.clock->n_users;
    u32 c = blockIdx.y * DENSE_COLUMNS + column, first = blockIdx.x * DENSE_ROWS;
    u32 width = 2 * r.latent_width;
    float sums[DENSE_ROWS] = {0.0f};
    if (c < width) {
#pragma unroll 8
        for (u32 u = part; u < n; u += DENSE_PARTS) {
            float g = r.d_latent[(u64)u * r.head_stride + c];
            float4 h = *(const float4 *)(r.hidden + (u64)u * r.hidden_stride + first);
            sums[0] = fmaf(h.x, g, sums[0]);
            sums[1] = fmaf(h.y, g, sums[1]);
            sums[2] = fmaf(h.z, g, sums[2]);
            sums[3] = fmaf(h.w, g, sums[3]);
        }
    }
    for (int k = 0; k < DENSE_ROWS; k++) partial[part][k][column] = sums[k];
    __syncthreads();
    if (part < DENSE_ROWS && first + part < r.hidden_width && c < width) {
        float g = 0.0f;
        for (int p = 0; p < DENSE_PARTS; p++) g += partial[p][part][column];
        adam(r, r.head, (u64)(first + part) * r.head_stride + c, g);
    }
}

// Both biases: a block for `DENSE_COLUMNS` values, those of the dense layer first.
extern "C" __global__ void __launch_bounds__(DENSE_COLUMNS *DENSE_PARTS) update_biases(Run r) {
    __shared__ float partial[DENSE_PARTS][DENSE_COLUMNS];
    u32 column = threadIdx.x % DENSE_COLUMNS, part = threadIdx.x / DENSE_COLUMNS, n = r.clock->n_users;
    u32 i = blockIdx.x * DENSE_COLUMNS + column, width = 2 * r.latent_width;
    bool of_head = i < width, of_hidden = !of_head && i - width < r.hidden_width;
    const float *gradients = of_head ? r.d_latent + i : r.d_hidden + (i - width);
    u32 stride = of_head ? r.head_stride : r.hidden_stride;
    float sum = 0.0f;
    if (of_head || of_hidden) {
#pragma unroll 8
        for (u32 u = part; u < n; u += DENSE_PARTS) sum += gradients[(u64)u * stride];
    }
    partial[part][column] = sum;
    __syncthreads();
    if (part > 0 || !(of_head || of_hidden)) return;
    float g = 0.0f;
    for (int p = 0; p < DENSE_PARTS; p++) g += partial[p][column];
    if (of_head) adam(r, r.head_bias, i, g);
    else adam(r, r.hidden_bias, i - width, g);
}
