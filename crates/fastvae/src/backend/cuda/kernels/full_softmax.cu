// The full softmax over the catalogue (Mult-VAE), a tile of items at a time: no batch x items matrix.
//
// Two passes over the tiles. The first streams the log-sum-exp of each query; the second takes a tile's scores again,
// turns them into the gradients at its logits, and from these the queries' gradient and that of the tile's own rows.

struct Tile {
    float *scores;      // by query, `width` apart
    u32 first, n;       // the items
    u32 width;
    float *tops, *sums; // by query: the streaming log-sum-exp
    i64 *d_queries;     // by query, in units of 2^-38
};

__device__ inline u32 queries_of(const Run &r) { return r.clock->n_users * r.samples; }

extern "C" __global__ void full_begin(Run r, Tile t) {
    u32 query = blockIdx.x * blockDim.x + threadIdx.x;
    if (query >= r.batch * r.samples) return;
    t.tops[query] = -INFINITY_F;
    t.sums[query] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) full_scores(Run r, Tile t) {
    score_tile(r.queries, queries_of(r), r.items.values + (u64)t.first * r.latent_stride, t.n, r.latent_stride,
               r.latent_width, t.scores, t.width);
}

// A block for each query.
extern "C" __global__ void full_sum(Run r, Tile t) {
    __shared__ float buffer[WARP];
    u32 query = blockIdx.x;
    if (query >= queries_of(r)) return;
    const float *scores = t.scores + (u64)query * t.width;
    float top = -INFINITY_F, sum = 0.0f;
    for (u32 i = threadIdx.x; i < t.n; i += blockDim.x) top = fmaxf(top, scores[i]);
    top = fmaxf(block_max(top, buffer), t.tops[query]);
    for (u32 i = threadIdx.x; i < t.n; i += blockDim.x) sum += expf(scores[i] - top);
    sum = block_sum(sum, buffer);
    if (threadIdx.x == 0) {
        t.sums[query] = t.sums[query] * expf(t.tops[query] - top) + sum;
        t.tops[query] = top;
    }
}

// The gradients at the logits of a tile, in place of the scores, and the loss of the positives in it: a block for each
// query.
extern "C" __global__ void full_gradients(Run r, Tile t) {
    __shared__ float floats[WARP];
    __shared__ double doubles[WARP];
    u32 query = blockIdx.x;
    Query q;
    if (!query_of(r, query, q)) return;
    float *scores = t.scores + (u64)query * t.width;
    float log_sum = t.tops[query] + logf(t.sums[query]), share = 1.0f / r.samples, mass = 0.0f;
    const float *weights = r.weights ? r.weights + q.at : 0;
    const u32 *positives = r.positives + q.at;
    double loss = 0.0;
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x) {
        float weight = (weights ? weights[k] : 1.0f) * share;
        mass += weight;
        u32 item = positives[k] - t.first;
        if (positives[k] >= t.first && item < t.n) loss += (double)weight * (double)(log_sum - scores[item]);
    }
    mass = block_sum(mass, floats);
    loss = block_sum(loss, doubles);
    for (u32 i = threadIdx.x; i < t.n; i += blockDim.x) scores[i] = mass * expf(scores[i] - log_sum);
    __syncthreads();
    for (u32 k = threadIdx.x; k < q.n_positives; k += blockDim.x) {
        u32 item = positives[k] - t.first;
        if (positives[k] >= t.first && item < t.n) scores[item] -= (weights ? weights[k] : 1.0f) * share;
    }
    if (threadIdx.x == 0) {
        double *sum = r.samples == 1 ? &r.losses[3 * q.row] : &r.losses[3 * (u64)r.batch + query];
        *sum = t.first == 0 ? loss : *sum + loss;
    }
}

#define QUERY_GROUP 32
#define ITEM_CHUNK 512
#define COLUMNS 32

// The queries' gradient from a tile: a block for a group of queries, a chunk of items and a stretch of columns.
extern "C" __global__ void __launch_bounds__(256) full_to_queries(Run r, Tile t) {
    __shared__ float vectors[32][COLUMNS + 1];
    __shared__ float weights[QUERY_GROUP][33];
    u32 n_queries = queries_of(r), first_query = blockIdx.y * QUERY_GROUP, column = blockIdx.z * COLUMNS;
    if (first_query >= n_queries) return;
    u32 lane = threadIdx.x % 32, group = threadIdx.x / 32;
    float sums[QUERY_GROUP / 8] = {};
    u32 to = min(t.n, (blockIdx.x + 1) * ITEM_CHUNK);
    for (u32 first = blockIdx.x * ITEM_CHUNK; first < to; first += 32) {
        for (u32 i = group; i < 32; i += 8) {
            u64 row = (u64)(t.first + first + i) * r.latent_stride;
            bool present = first + i < to && column + lane < r.latent_stride;
            vectors[i][lane] = present ? r.items.values[row + column + lane] : 0.0f;
        }
        for (u32 q = group; q < QUERY_GROUP; q += 8) {
            bool present = first_query + q < n_queries && first + lane < to;
            weights[q][lane] = present ? t.scores[(u64)(first_query + q) * t.width + first + lane] : 0.0f;
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < 32; i++) {
            float v = vectors[i][lane];
            for (int k = 0; k < QUERY_GROUP / 8; k++) sums[k] = fmaf(weights[group + 8 * k][i], v, sums[k]);
        }
        __syncthreads();
    }
    for (int k = 0; k < QUERY_GROUP / 8; k++) {
        u32 query = first_query + group + 8 * k;
        if (query < n_queries && column + lane < r.latent_width)
            add_gradient(t.d_queries + (u64)query * r.latent_stride + column + lane, sums[k]);
    }
}

extern "C" __global__ void full_end(Run r, Tile t) {
    u32 n = queries_of(r) * r.latent_stride;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        r.d_queries[i] = (float)((double)t.d_queries[i] * (1.0 / (double)GRADIENT_UNIT));
        t.d_queries[i] = 0;
    }
}

#define ITEM_GROUP 64

// The gradient of a tile's own rows, applied at once: a block for a group of items and a stretch of columns.
extern "C" __global__ void __launch_bounds__(256) full_to_items(Run r, Tile t) {
    __shared__ float queries[32][COLUMNS];
    u32 n_queries = queries_of(r), column = blockIdx.y * COLUMNS;
    u32 item = threadIdx.x % ITEM_GROUP, part = threadIdx.x / ITEM_GROUP * 8;
    u32 at = blockIdx.x * ITEM_GROUP + item;
    float sums[8] = {};
    for (u32 first = 0; first < n_queries; first += 32) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < 32 * COLUMNS; i += 256) {
            u32 query = first + i / COLUMNS, d = column + i % COLUMNS;
            bool present = query < n_queries && d < r.latent_stride;
            queries[i / COLUMNS][i % COLUMNS] = present ? r.queries[(u64)query * r.latent_stride + d] : 0.0f;
        }
        __syncthreads();
        u32 here = min(32u, n_queries - first);
        if (at < t.n) {
#pragma unroll 4
            for (u32 q = 0; q < here; q++) {
                float weight = t.scores[(u64)(first + q) * t.width + at];
#pragma unroll
                for (int d = 0; d < 8; d++) sums[d] = fmaf(weight, queries[q][part + d], sums[d]);
            }
        }
    }
    if (at >= t.n) return;
    for (int d = 0; d < 8; d++) {
        u32 c = column + part + d;
        if (c < r.latent_width) adam(r, r.items, (u64)(t.first + at) * r.latent_stride + c, sums[d]);
    }
}
