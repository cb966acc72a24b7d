// The refresh of the inverted multi-index: k-means for each codebook, the items sorted by cell, and the tables that
// draws within cells need.

// One codebook's points: some columns of the item vectors, less the codewords of the codebook before it (residual).
struct Points {
    u32 book, residual;
    u32 n, of;    // `n` evenly spaced points of the `of` items
    u64 offset;
};

// What the iterations of one codebook work on.
struct Clustering {
    u8 *codes;        // of the points
    i64 *sums;        // by codeword and column, in units of 2^-38; zero between iterations, as the counts
    u32 *counts;      // by codeword
    u64 *farthest;    // squared distance (as bits) above the point's number
};

#define ASSIGN_THREADS 128

__device__ inline u32 point_at(const Points &p, u32 i) {
    return p.n == p.of ? i : (u32)(((u64)i * p.of + p.offset) / p.n);
}

// Column `d` of a point.
__device__ inline float coordinate(const Run &r, const Points &p, u32 item, u32 d) {
    float x = r.items.values[(u64)item * r.latent_stride + r.columns_start[p.book] + d];
    if (p.residual) x -= r.codebooks[0][d * r.score_stride + r.codes[item]];
    return x;
}

// The nearest codeword of each point. Shared memory: the codebook, and half the squared norms.
extern "C" __global__ void assign(Run r, Points p, u8 *codes, u64 *farthest) {
    extern __shared__ float book[];
    u32 width = r.columns_end[p.book] - r.columns_start[p.book];
    float *half_norms = book + width * r.score_stride;
    for (u32 i = threadIdx.x; i < width * r.score_stride; i += blockDim.x) book[i] = r.codebooks[p.book][i];
    __syncthreads();
    for (u32 k = threadIdx.x; k < r.score_stride; k += blockDim.x) {
        float norm = 0.0f;
        for (u32 d = 0; d < width; d++) norm += book[d * r.score_stride + k] * book[d * r.score_stride + k];
        half_norms[k] = k < r.n_codewords ? norm / 2.0f : INFINITY_F;
    }
    __syncthreads();
    u64 far = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += gridDim.x * blockDim.x) {
        u32 item = point_at(p, i), nearest = 0;
        float best = -INFINITY_F, square = 0.0f;
        for (u32 first = 0; first < r.score_stride; first += 16) {
            float scores[16];
#pragma unroll
            for (int k = 0; k < 16; k++) scores[k] = -half_norms[first + k];
            for (u32 d = 0; d < width; d++) {
                float x = coordinate(r, p, item, d);
                if (first == 0) square += x * x;
#pragma unroll
                for (int k = 0; k < 16; k++) scores[k] = fmaf(book[d * r.score_stride + first + k], x, scores[k]);
            }
#pragma unroll
            for (int k = 0; k < 16; k++)
                if (scores[k] > best) { best = scores[k]; nearest = first + k; }
        }
        codes[i] = (u8)nearest;
        float distance = fmaxf(square - 2.0f * best, 0.0f);
        far = max(far, ((u64)__float_as_uint(distance) << 32) | item);
    }
    if (!farthest) return;
    for (int o = WARP / 2; o > 0; o >>= 1) far = max(far, __shfl_xor_sync(FULL, far, o));
    if (threadIdx.x % WARP == 0) atomicMax(farthest, far);
}

// The sum of each codeword's points, in whole numbers: a group of lanes for each point. Shared memory: the sums of the
// block, where they fit (`room`).
extern "C" __global__ void sum_points(Run r, Points p, Clustering c, u32 room) {
    extern __shared__ i64 point_sums[];
    __shared__ u32 counts[256];
    u32 width = r.columns_end[p.book] - r.columns_start[p.book], n = r.n_codewords * width;
    if (room) for (u32 i = threadIdx.x; i < n; i += blockDim.x) point_sums[i] = 0;
    for (u32 k = threadIdx.x; k < r.n_codewords; k += blockDim.x) counts[k] = 0;
    __syncthreads();
    u32 lanes = 1;
    while (lanes < WARP && lanes < width) lanes *= 2;
    u32 lane = threadIdx.x % lanes, groups = blockDim.x / lanes;
    i64 *target = room ? point_sums : c.sums;
    for (u32 i = blockIdx.x * groups + threadIdx.x / lanes; i < p.n; i += gridDim.x * groups) {
        u32 item = point_at(p, i), k = c.codes[i];
        for (u32 d = lane; d < width; d += lanes) add_gradient(target + k * width + d, coordinate(r, p, item, d));
        if (lane == 0) atomicAdd(&counts[k], 1u);
    }
    __syncthreads();
    if (room)
        for (u32 i = threadIdx.x; i < n; i += blockDim.x)
            if (point_sums[i]) atomicAdd((u64 *)&c.sums[i], (u64)point_sums[i]);
    for (u32 k = threadIdx.x; k < r.n_codewords; k += blockDim.x)
        if (counts[k]) atomicAdd(&c.counts[k], counts[k]);
}

// The codewords move to the mean of their points; the first that has none, to the farthest point. One block.
extern "C" __global__ void move_codewords(Run r, Points p, Clustering c) {
    u32 width = r.columns_end[p.book] - r.columns_start[p.book];
    __shared__ u32 first_empty;
    if (threadIdx.x == 0) {
        first_empty = r.n_codewords;
        for (u32 k = r.n_codewords; k > 0; k--) if (c.counts[k - 1] == 0) first_empty = k - 1;
    }
    __syncthreads();
    u32 far = (u32)*c.farthest;
    for (u32 i = threadIdx.x; i < r.n_codewords * width; i += blockDim.x) {
        u32 k = i / width, d = i % width, count = c.counts[k];
        float *word = &r.codebooks[p.book][d * r.score_stride + k];
        if (count > 0) *word = (float)((double)c.sums[i] * (1.0 / (double)GRADIENT_UNIT) / (double)count);
        else if (k == first_empty) *word = coordinate(r, p, far, d);
        c.sums[i] = 0;
    }
    __syncthreads();
    for (u32 k = threadIdx.x; k < r.n_codewords; k += blockDim.x) c.counts[k] = 0;
    if (threadIdx.x == 0) *c.farthest = 0;
}

// A stable sort of the items by one code: tiles of items are counted, the counts summed up, and each item put into
// its place. A warp for each tile.
#define TILE 1024

extern "C" __global__ void count_codes(Run r, const u8 *codes, const u32 *items, u32 *counts, u32 n_tiles) {
    __shared__ u32 mine[256];
    for (u32 k = threadIdx.x; k < r.n_codewords; k += WARP) mine[k] = 0;
    __syncwarp();
    u32 from = blockIdx.x * TILE, to = min(from + TILE, r.n_items);
    for (u32 i = from + threadIdx.x; i < to; i += WARP) atomicAdd(&mine[codes[items ? items[i] : i]], 1u);
    __syncwarp();
    for (u32 k = threadIdx.x; k < r.n_codewords; k += WARP) counts[(u64)k * n_tiles + blockIdx.x] = mine[k];
}

// One block.
extern "C" __global__ void scan_counts(u32 *counts, u32 n) {
    __shared__ u32 buffer[WARP];
    block_scan(counts, n, buffer);
}

extern "C" __global__ void place_codes(Run r, const u8 *codes, const u32 *items, const u32 *counts, u32 n_tiles, u32 *out) {
    __shared__ u32 next[256];
    for (u32 k = threadIdx.x; k < r.n_codewords; k += WARP) next[k] = counts[(u64)k * n_tiles + blockIdx.x];
    __syncwarp();
    u32 from = blockIdx.x * TILE, to = min(from + TILE, r.n_items);
    for (u32 start = from; start < to; start += WARP) {
        u32 i = start + threadIdx.x;
        bool present = i < to;
        u32 item = present ? (items ? items[i] : i) : 0;
        u32 code = present ? codes[item] : 256;
        u32 alike = __match_any_sync(FULL, code);
        u32 rank = __popc(alike & ((1u << threadIdx.x) - 1));
        if (present) out[next[code] + rank] = item;
        __syncwarp();
        if (present && rank == 0) next[code] += __popc(alike);
        __syncwarp();
    }
}

__device__ inline u32 slot_at(const Run &r, u32 place) {
    u32 item = r.list[place];
    return r.codes[item] * r.score_stride + r.codes[r.n_items + item];
}

extern "C" __global__ void clear_spans(Run r) {
    for (u32 slot = blockIdx.x * blockDim.x + threadIdx.x; slot < r.n_slots; slot += gridDim.x * blockDim.x) {
        r.spans[slot].start = 0;
        r.spans[slot].len = 0;
        r.mass[slot] = 0.0f;
        r.log_mass[slot] = -INFINITY_F;
    }
}

// Where the items of each cell start and end, and the weights by place.
extern "C" __global__ void find_spans(Run r) {
    for (u32 place = blockIdx.x * blockDim.x + threadIdx.x; place < r.n_items; place += gridDim.x * blockDim.x) {
        u32 slot = slot_at(r, place);
        if (place == 0 || slot_at(r, place - 1) != slot) r.spans[slot].start = place;
        if (r.item_log_weights) r.log_weights[place] = r.item_log_weights[r.list[place]];
    }
}

extern "C" __global__ void measure_spans(Run r) {
    for (u32 place = blockIdx.x * blockDim.x + threadIdx.x; place < r.n_items; place += gridDim.x * blockDim.x) {
        u32 slot = slot_at(r, place);
        if (place + 1 == r.n_items || slot_at(r, place + 1) != slot) r.spans[slot].len = place + 1 - r.spans[slot].start;
    }
}

// The first of `n` ascending numbers that is above `value`; `n` if there is none.
__device__ inline u32 first_above(const double *numbers, u32 n, double value) {
    u32 low = 0, high = n;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (numbers[middle] > value) high = middle; else low = middle + 1;
    }
    return low;
}

// The sum of `v` over the threads up to this one; `total` is that over the block.
__device__ inline double scan_doubles(double v, double *buffer, double &total) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int o = 1; o < WARP; o <<= 1) {
        double before = __shfl_up_sync(FULL, v, o);
        if (lane >= o) v += before;
    }
    __syncthreads();
    if (lane == WARP - 1) buffer[warp] = v;
    __syncthreads();
    total = 0.0;
    double before = 0.0;
    for (u32 w = 0; w < blockDim.x / WARP; w++) {
        if (w < warp) before += buffer[w];
        total += buffer[w];
    }
    return before + v;
}

// The mass of each cell and its alias table, as `alias.rs` defines it: a block for each slot. `missing` and `spare` have
// an entry for each place.
extern "C" __global__ void fill_cells(Run r, double *missing, double *spare) {
    __shared__ double buffer[WARP];
    u32 slot = blockIdx.x;
    Span span = r.spans[slot];
    if (span.len == 0) return;
    if (!r.item_log_weights) {
        if (threadIdx.x == 0) {
            r.mass[slot] = (float)span.len;
            r.log_mass[slot] = (float)log((double)span.len);
        }
        return;
    }
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < span.len; i += blockDim.x) sum += exp((double)r.log_weights[span.start + i]);
    sum = block_sum(sum, buffer);
    if (threadIdx.x == 0) {
        r.log_mass[slot] = (float)log(sum);
        r.mass[slot] = (float)exp(log(sum));
    }
    double scale = (double)span.len / sum, missed = 0.0, spared = 0.0;
    missing += span.start;
    spare += span.start;
    for (u32 from = 0; from < span.len; from += blockDim.x) {
        u32 i = from + threadIdx.x;
        double share = i < span.len ? exp((double)r.log_weights[span.start + i]) * scale : 1.0, all;
        double up_to = missed + scan_doubles(fmax(1.0 - share, 0.0), buffer, all);
        missed += all;
        if (i < span.len) missing[i] = up_to;
        up_to = spared + scan_doubles(fmax(share - 1.0, 0.0), buffer, all);
        spared += all;
        if (i < span.len) spare[i] = up_to;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < span.len; i += blockDim.x) {
        double share = exp((double)r.log_weights[span.start + i]) * scale;
        Alias alias = {0xffffffffu, span.start + i};
        if (share < 1.0) {
            u32 rich = first_above(spare, span.len, i == 0 ? 0.0 : missing[i - 1]);
            if (rich < span.len) {
                alias.keep = (u32)(share * 4294967296.0);
                alias.other = span.start + rich;
            }
        } else if (share > 1.0) {
            u32 poor = first_above(missing, span.len, spare[i]), next = first_above(spare, span.len, spare[i]);
            if (poor < span.len && next < span.len && (poor == 0 ? 0.0 : missing[poor - 1]) < spare[i]) {
                alias.keep = (u32)(fmax(1.0 - (missing[poor] - spare[i]), 0.0) * 4294967296.0);
                alias.other = span.start + next;
            }
        }
        r.alias[span.start + i] = alias;
    }
}
