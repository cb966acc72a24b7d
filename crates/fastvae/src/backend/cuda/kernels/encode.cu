// From histories to queries: dropout, the embedding bag, the dense layer, and the latent draw.

extern "C" __global__ void begin_step(Run r) {
    Clock &c = *r.clock;
    c.first = c.next;
    c.n_users = min(r.batch, r.n_order - c.first);
    c.next = c.first + c.n_users;
    double t = (double)(c.step + 1);
    c.rate = (float)((double)c.learning_rate / (1.0 - pow((double)0.9f, t)));
    c.second_scale = (float)(1.0 / sqrt(1.0 - pow((double)0.999f, t)));
    c.anneal = r.anneal_steps == 0 ? 1.0f : fminf((float)c.step / (float)r.anneal_steps, 1.0f);
    c.step += 1;
    *r.touched_items.count = 0;
    *r.touched_encoder.count = 0;
}

// Adds up what the batch saw, in the order of its users.
extern "C" __global__ void end_step(Run r) {
    __shared__ double buffer[3][WARP];
    for (int k = 0; k < 3; k++) {
        double sum = 0.0;
        for (u32 row = threadIdx.x; row < r.clock->n_users; row += blockDim.x) sum += r.losses[3 * row + k];
        sum = block_sum(sum, buffer[k]);
        if (threadIdx.x == 0) (&r.clock->likelihood_loss)[k] += sum;
    }
}

// Lanes that share a row of the encoder, four columns each.
__device__ inline u32 encode_lanes(u32 stride) {
    u32 lanes = WARP;
    while (lanes < 256 && lanes * 4 < stride) lanes *= 2;
    return lanes;
}

// The weight of input `k` of a user: zero if it is dropped.
__device__ inline float input_weight(const Run &r, const Stream &s, u64 at, u32 k, float scale) {
    if (r.dropout_threshold > 0 && random_word(s, 0, k) < r.dropout_threshold) return 0.0f;
    return (r.weights ? r.weights[at + k] : 1.0f) * scale * r.dropout_scale;
}

// Threads that encode a user.
#define ENCODE_THREADS 512

// A block for each user. The kept inputs are gathered first, in order; groups of threads then take every so-many-th of
// their rows, four columns a thread, so that the longest history is not what the step waits for. Shared memory: a row
// for each group.
extern "C" __global__ void __launch_bounds__(ENCODE_THREADS) encode(Run r) {
    extern __shared__ float4 partial[];
    __shared__ float weights[ENCODE_THREADS];
    __shared__ u32 items[ENCODE_THREADS];
    __shared__ u32 counts[ENCODE_THREADS / WARP];
    u32 row = blockIdx.x;
    if (row >= r.clock->n_users) return;
    u32 user = user_at(r, row);
    u64 at = r.offsets[user];
    u32 n = (u32)(r.offsets[user + 1] - at);
    Stream s = stream_of(r, DROPOUT, 0, user);
    u32 stamp = (u32)r.clock->step;
    float scale = r.input_scale[user];
    u32 thread_lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u32 quads = r.hidden_stride / 4, lanes = encode_lanes(r.hidden_stride), groups = ENCODE_THREADS / lanes;
    u32 lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
    const float4 *table = (const float4 *)r.encoder.values;
    for (u32 start = 0; start < quads; start += lanes) {
        u32 quad = start + lane;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (u32 k = 0; k < n; k += ENCODE_THREADS) {
            u32 j = k + threadIdx.x;
            float weight = j < n ? input_weight(r, s, at, j, scale) : 0.0f;
            u32 kept = __ballot_sync(FULL, weight != 0.0f);
            __syncthreads();
            if (thread_lane == 0) counts[warp] = __popc(kept);
            __syncthreads();
            u32 before = 0, here = 0;
            for (u32 w = 0; w < ENCODE_THREADS / WARP; w++) {
                if (w < warp) before += counts[w];
                here += counts[w];
            }
            if (weight != 0.0f) {
                u32 place = before + __popc(kept & ((1u << thread_lane) - 1)), item = r.positives[at + j];
                weights[place] = weight;
                items[place] = item;
                if (start == 0 && r.touched_encoder.stamp) touch(r.touched_encoder, item, stamp);
            }
            __syncthreads();
            if (quad < quads) {
#pragma unroll 4
                for (u32 i = group; i < here; i += groups) {
                    float w = weights[i];
                    float4 x = table[(u64)items[i] * quads + quad];
                    sum.x = fmaf(w, x.x, sum.x);
                    sum.y = fmaf(w, x.y, sum.y);
                    sum.z = fmaf(w, x.z, sum.z);
                    sum.w = fmaf(w, x.w, sum.w);
                }
            }
        }
        __syncthreads();
        partial[group * lanes + lane] = sum;
        __syncthreads();
        for (u32 i = threadIdx.x; i < lanes * 4; i += ENCODE_THREADS) {
            u32 h = start * 4 + i;
            if (h >= r.hidden_stride) break;
            float state = h < r.hidden_width ? r.hidden_bias.values[h] : 0.0f;
            for (u32 g = 0; g < groups; g++) state += ((const float *)partial)[g * lanes * 4 + i];
            state = r.tanh ? tanhf(state) : fmaxf(state, 0.0f);
            r.hidden[(u64)row * r.hidden_stride + h] = h < r.hidden_width ? state : 0.0f;
        }
    }
}

// Users that share each load of the dense layer's weights.
#define TOGETHER 4
// Columns of the dense layer that a block computes, and parts that the sum over the hidden layer is cut into.
#define HEAD_COLUMNS 64
#define PARTS 4

// Mean and log-variance: a block for `TOGETHER` users and `HEAD_COLUMNS` columns.
extern "C" __global__ void __launch_bounds__(HEAD_COLUMNS *PARTS) dense_forward(Run r) {
    extern __shared__ float states[];  // TOGETHER x hidden_stride
    __shared__ float partial[PARTS][TOGETHER][HEAD_COLUMNS];
    u32 first = blockIdx.x * TOGETHER;
    if (first >= r.clock->n_users) return;
    u32 users = min(TOGETHER, r.clock->n_users - first);
    for (u32 i = threadIdx.x; i < TOGETHER * r.hidden_stride; i += blockDim.x)
        states[i] = i < users * r.hidden_stride ? r.hidden[(u64)first * r.hidden_stride + i] : 0.0f;
    __syncthreads();
    u32 column = threadIdx.x % HEAD_COLUMNS, part = threadIdx.x / HEAD_COLUMNS;
    u32 c = blockIdx.y * HEAD_COLUMNS + column, width = 2 * r.latent_width;
    float sums[TOGETHER] = {0.0f};
    if (c < width) {
#pragma unroll 8
        for (u32 h = part; h < r.hidden_width; h += PARTS) {
            float w = r.head.values[(u64)h * r.head_stride + c];
            for (int u = 0; u < TOGETHER; u++) sums[u] = fmaf(w, states[u * r.hidden_stride + h], sums[u]);
        }
    }
    for (int u = 0; u < TOGETHER; u++) partial[part][u][column] = sums[u];
    __syncthreads();
    // Each part of the block adds up one user.
    if (part < users && c < width) {
        float sum = r.head_bias.values[c];
        for (int p = 0; p < PARTS; p++) sum += partial[p][part][column];
        r.latent[(u64)(first + part) * r.head_stride + c] = sum;
    }
}

__device__ inline float deviation(float log_variance) {
    return expf(0.5f * fminf(log_variance, MAX_LOG_VARIANCE));
}

// A thread for each latent value of each query.
extern "C" __global__ void draw_latent(Run r) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 query = i / r.latent_stride, d = i % r.latent_stride;
    u32 row = query / r.samples;
    if (row >= r.clock->n_users || d >= r.latent_width) return;
    const float *latent = r.latent + (u64)row * r.head_stride;
    Stream s = stream_of(r, LATENT, query % r.samples, user_at(r, row));
    float noise = random_normal(s, d);
    r.noise[(u64)query * r.latent_stride + d] = noise;
    r.queries[(u64)query * r.latent_stride + d] = latent[d] + noise * deviation(latent[r.latent_width + d]);
}

// From the queries' gradients to those of mean and log-variance, with the KL divergence: a block for each user.
extern "C" __global__ void latent_gradients(Run r) {
    __shared__ double buffer[WARP];
    u32 row = blockIdx.x;
    if (row >= r.clock->n_users) return;
    u32 user = user_at(r, row);
    const float *latent = r.latent + (u64)row * r.head_stride;
    float *gradients = r.d_latent + (u64)row * r.head_stride;
    u32 n = (u32)(r.offsets[user + 1] - r.offsets[user]);
    float weight = (r.kl_per_interaction ? r.kl_weight * n : r.kl_weight) * r.clock->anneal;
    double divergence = 0.0;
    for (u32 d = threadIdx.x; d < r.latent_width; d += blockDim.x) {
        float mean = latent[d], log_variance = latent[r.latent_width + d];
        float dev = deviation(log_variance), variance = dev * dev;
        float to_mean = 0.0f, to_variance = 0.0f;
        for (u32 k = 0; k < r.samples; k++) {
            u64 at = ((u64)row * r.samples + k) * r.latent_stride + d;
            float g = r.d_queries[at];
            to_mean += g;
            to_variance += g * r.noise[at] * 0.5f * dev;
        }
        divergence += (double)(1.0f + log_variance - mean * mean - variance);
        gradients[d] = to_mean + weight * mean;
        gradients[r.latent_width + d] = to_variance + weight * 0.5f * (variance - 1.0f);
    }
    divergence = -0.5 * block_sum(divergence, buffer);
    if (threadIdx.x == 0) {
        r.losses[3 * row + 1] = divergence;
        r.losses[3 * row + 2] = divergence * (double)weight;
    }
}

// Rows of the dense layer that a block goes back through.
#define HIDDEN_ROWS 32

// On to the hidden layer: a block for `TOGETHER` users and some of the hidden values, a warp for each of these.
extern "C" __global__ void hidden_gradients(Run r) {
    extern __shared__ float gradients[];  // TOGETHER x head_stride
    u32 first = blockIdx.x * TOGETHER;
    if (first >= r.clock->n_users) return;
    u32 users = min(TOGETHER, r.clock->n_users - first);
    for (u32 i = threadIdx.x; i < TOGETHER * r.head_stride; i += blockDim.x)
        gradients[i] = i < users * r.head_stride ? r.d_latent[(u64)first * r.head_stride + i] : 0.0f;
    __syncthreads();
    u32 lane = threadIdx.x % WARP, to = min((blockIdx.y + 1) * HIDDEN_ROWS, r.hidden_width);
    for (u32 h = blockIdx.y * HIDDEN_ROWS + threadIdx.x / WARP; h < to; h += blockDim.x / WARP) {
        float sums[TOGETHER] = {0.0f};
        for (u32 c = lane; c < 2 * r.latent_width; c += WARP) {
            float w = r.head.values[(u64)h * r.head_stride + c];
            for (int u = 0; u < TOGETHER; u++) sums[u] = fmaf(w, gradients[u * r.head_stride + c], sums[u]);
        }
        for (int u = 0; u < TOGETHER; u++) sums[u] = warp_sum(sums[u]);
        if (lane < users) {
            float sum = 0.0f;
            for (int u = 0; u < TOGETHER; u++) if (lane == u) sum = sums[u];
            u64 at = (u64)(first + lane) * r.hidden_stride + h;
            float state = r.hidden[at];
            r.d_hidden[at] = r.tanh ? sum * (1.0f - state * state) : (state > 0.0f ? sum : 0.0f);
        }
    }
}
