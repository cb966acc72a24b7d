// The sampled softmax: loss, the gradient at the query, and what the gradients at the items need.

#define LOSS_THREADS 512
#define LOSS_WARPS (LOSS_THREADS / WARP)

// The columns of a row that a lane holds: `lane`, `lane + 32`, ...
template <int V> __device__ inline void load_row(const Run &r, u32 item, u32 lane, float (&row)[V]) {
    const float *values = r.items.values + (u64)item * r.latent_stride;
    for (int v = 0; v < V; v++) row[v] = lane + v * WARP < r.latent_stride ? values[lane + v * WARP] : 0.0f;
}

template <int V> __device__ inline float partial_dot(const float (&a)[V], const float (&b)[V]) {
    float sum = 0.0f;
    for (int v = 0; v < V; v++) sum += a[v] * b[v];
    return sum;
}

// Adds up the warps' vectors, in order; `vectors` is WARPS x V x WARP.
template <int V> __device__ inline void merge(float *vectors, const float (&mine)[V], u32 warp, u32 lane) {
    __syncthreads();
    for (int v = 0; v < V; v++) vectors[(warp * V + v) * WARP + lane] = mine[v];
    __syncthreads();
}

// A block for each query.
template <int V> __device__ inline void loss_of(const Run &r) {
    // Rows that a warp has on their way at a time.
    const int AHEAD = V <= 2 ? 8 : 4;
    __shared__ float vectors[LOSS_WARPS * V * WARP];
    __shared__ float tops[LOSS_WARPS], totals[LOSS_WARPS];
    __shared__ double doubles[LOSS_WARPS];
    Query q;
    if (!query_of(r, blockIdx.x, q)) return;
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float *query = r.queries + (u64)q.query * r.latent_stride;
    float z[V];
    for (int v = 0; v < V; v++) z[v] = lane + v * WARP < r.latent_stride ? query[lane + v * WARP] : 0.0f;

    // Negatives: a streaming softmax for each warp.
    float top = -INFINITY_F, total = 0.0f, sum[V] = {0.0f};
    const u32 *drawn = r.drawn + (u64)q.query * r.negatives;
    float *logits = r.logits + (u64)q.query * r.negatives;
    for (u32 s = warp * AHEAD; s < r.negatives; s += LOSS_WARPS * AHEAD) {
        float rows[AHEAD][V], logit[AHEAD];
        for (int a = 0; a < AHEAD; a++) load_row<V>(r, drawn[min(s + a, r.negatives - 1)], lane, rows[a]);
        for (int a = 0; a < AHEAD; a++) logit[a] = partial_dot<V>(z, rows[a]);
        for (int a = 0; a < AHEAD; a++) logit[a] = warp_sum(logit[a]);
        float above = top;
        for (int a = 0; a < AHEAD; a++) {
            logit[a] = s + a < r.negatives ? logit[a] - logits[s + a] : -INFINITY_F;
            above = fmaxf(above, logit[a]);
        }
        __syncwarp();
        for (int a = 0; a < AHEAD; a++)
            if (lane == a && s + a < r.negatives) logits[s + a] = logit[a];
        float scale = expf(top - above);
        total *= scale;
        for (int v = 0; v < V; v++) sum[v] *= scale;
        for (int a = 0; a < AHEAD; a++) {
            float weight = expf(logit[a] - above);
            total += weight;
            for (int v = 0; v < V; v++) sum[v] += weight * rows[a][v];
        }
        top = above;
    }
    if (lane == 0) tops[warp] = top;
    __syncthreads();
    float largest = tops[0];
    for (int w = 1; w < LOSS_WARPS; w++) largest = fmaxf(largest, tops[w]);
    float scale = total > 0.0f ? expf(top - largest) : 0.0f;
    for (int v = 0; v < V; v++) sum[v] *= scale;
    if (lane == 0) totals[warp] = total * scale;
    __syncthreads();
    float negatives = 0.0f;
    for (int w = 0; w < LOSS_WARPS; w++) negatives += totals[w];
    float log_sum = largest + logf(negatives);

    // Positives: their logits, then the loss and the gradient at each.
    float *gradient = r.positive_gradient + q.gradient;
    const u32 *positives = r.positives + q.at;
    const float *weights = r.weights ? r.weights + q.at : 0;
    for (u32 k = warp; k < q.n_positives; k += LOSS_WARPS) {
        float row[V];
        u32 item = positives[k];
        load_row<V>(r, item, lane, row);
        float logit = warp_sum(partial_dot<V>(z, row));
        if (lane == 0) {
            gradient[k] = r.stratified ? logit : logit - gradient[k];
            touch(r.touched_items, item, (u32)r.clock->step);
        }
    }
    __syncthreads();
    double loss = 0.0;
    float pull = 0.0f;
    if (r.stratified) {
        float log_rest = log_sum - logf((float)r.negatives), peak = log_rest, mass = 0.0f, exponentials = 0.0f;
        for (u32 k = threadIdx.x; k < q.n_positives; k += LOSS_THREADS) {
            peak = fmaxf(peak, gradient[k]);
            mass += weights ? weights[k] : 1.0f;
        }
        peak = block_max(peak, tops);
        mass = block_sum(mass, totals);
        for (u32 k = threadIdx.x; k < q.n_positives; k += LOSS_THREADS) exponentials += expf(gradient[k] - peak);
        exponentials = block_sum(exponentials, totals) + expf(log_rest - peak);
        float log_z = peak + logf(exponentials);
        for (u32 k = threadIdx.x; k < q.n_positives; k += LOSS_THREADS) {
            float weight = weights ? weights[k] : 1.0f;
            loss += (double)weight * (double)(log_z - gradient[k]);
            gradient[k] = mass * expf(gradient[k] - log_z) - weight;
        }
        pull = mass * expf(log_rest - log_z);
    } else {
        for (u32 k = threadIdx.x; k < q.n_positives; k += LOSS_THREADS) {
            float margin = log_sum - gradient[k], weight = weights ? weights[k] : 1.0f;
            float e = expf(-fabsf(margin));
            loss += (double)weight * (double)(fmaxf(margin, 0.0f) + log1pf(e));
            float slope = weight * (margin > 0.0f ? 1.0f / (1.0f + e) : e / (1.0f + e));
            gradient[k] = -slope;
            pull += slope;
        }
        pull = block_sum(pull, totals);
    }
    loss = block_sum(loss, doubles);
    __syncthreads();

    // The gradient at the query.
    float share = 1.0f / r.samples, factor = pull / negatives;
    for (int v = 0; v < V; v++) sum[v] *= factor;
    for (u32 k = warp; k < q.n_positives; k += LOSS_WARPS) {
        float row[V], g = gradient[k];
        load_row<V>(r, positives[k], lane, row);
        for (int v = 0; v < V; v++) sum[v] += g * row[v];
    }
    merge<V>(vectors, sum, warp, lane);
    for (u32 d = threadIdx.x; d < r.latent_stride; d += LOSS_THREADS) {
        float g = 0.0f;
        for (int w = 0; w < LOSS_WARPS; w++) g += vectors[w * V * WARP + d];
        r.d_queries[(u64)q.query * r.latent_stride + d] = g * share;
    }
    if (threadIdx.x == 0) {
        r.log_sum[q.query] = log_sum;
        r.pull[q.query] = pull * share;
        if (r.samples == 1) r.losses[3 * q.row] = loss;
        else r.losses[3 * (u64)r.batch + q.query] = loss * (double)share;
    }
}

extern "C" __global__ void __launch_bounds__(LOSS_THREADS) sampled_loss_1(Run r) { loss_of<1>(r); }
extern "C" __global__ void __launch_bounds__(LOSS_THREADS) sampled_loss_2(Run r) { loss_of<2>(r); }
extern "C" __global__ void __launch_bounds__(LOSS_THREADS) sampled_loss_4(Run r) { loss_of<4>(r); }
extern "C" __global__ void __launch_bounds__(LOSS_THREADS) sampled_loss_8(Run r) { loss_of<8>(r); }
extern "C" __global__ void __launch_bounds__(LOSS_THREADS) sampled_loss_16(Run r) { loss_of<16>(r); }

// With several latent draws: a user's loss is the sum of its queries'.
extern "C" __global__ void sum_samples(Run r) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= r.clock->n_users) return;
    double sum = 0.0;
    for (u32 s = 0; s < r.samples; s++) sum += r.losses[3 * (u64)r.batch + (u64)row * r.samples + s];
    r.losses[3 * row] = sum;
}
