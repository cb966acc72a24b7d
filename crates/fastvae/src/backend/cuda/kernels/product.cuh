// Scores of queries against items: out[q][i] = queries[q] . items[i], both with rows of `stride` floats.

#define SIDE 128   // queries and items of a block
#define DEPTH 16   // columns taken at a time
#define EACH 8     // queries and items of a thread

__device__ inline void score_tile(const float *queries, u32 n_queries, const float *items, u32 n_items, u32 stride,
                                  u32 width, float *out, u64 out_stride) {
    __shared__ float a[DEPTH][SIDE + 4], b[DEPTH][SIDE + 4];
    u32 first_query = blockIdx.y * SIDE, first_item = blockIdx.x * SIDE;
    u32 row = threadIdx.x / 16 * EACH, column = threadIdx.x % 16;
    float sums[EACH][EACH] = {};
    for (u32 d = 0; d < width; d += DEPTH) {
        // Each thread brings two stretches of four columns of either side. Rows are padded with zeros to whole lines.
        for (u32 half = 0; half < 2; half++) {
            u32 line = threadIdx.x / 4 + half * 64, part = threadIdx.x % 4 * 4;
            float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f), x = zero, y = zero;
            if (first_query + line < n_queries)
                x = *(const float4 *)(queries + (u64)(first_query + line) * stride + d + part);
            if (first_item + line < n_items)
                y = *(const float4 *)(items + (u64)(first_item + line) * stride + d + part);
            a[part][line] = x.x; a[part + 1][line] = x.y; a[part + 2][line] = x.z; a[part + 3][line] = x.w;
            b[part][line] = y.x; b[part + 1][line] = y.y; b[part + 2][line] = y.z; b[part + 3][line] = y.w;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float x[EACH], y[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) x[i] = a[k][row + i];
#pragma unroll
            for (int j = 0; j < EACH; j++) y[j] = b[k][column + 16 * j];
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 query = first_query + row + i;
        if (query >= n_queries) break;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            u32 item = first_item + column + 16 * j;
            if (item < n_items) out[(u64)query * out_stride + item] = sums[i][j];
        }
    }
}
