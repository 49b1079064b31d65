// Attention that stores at most a few rows of weights at a time: softmax(Q K^T / sqrt(d_k)) V.
#include "attention.h"
#include "parallel.h"

#include <algorithm>
#include <cstring>

namespace transformer {

namespace {

// Distances in elements from the keys and values of a head to those of the next head, for software prefetching.
struct NextHead {
  long keys, values;

  NextHead(const Attention& a, long head)
      : keys(head + 1 < a.key_heads ? a.key_head : a.key_batch - head * a.key_head),
        values(head + 1 < a.key_heads ? a.value_head : a.value_batch - head * a.value_head) {}

  // Prefetches a few vectors, which need not exist. The rows of a head are too short for the hardware prefetcher.
  template <int V, typename T>
  static void prefetch(const T* src, long distance) {
    const char* line = reinterpret_cast<const char*>(src) + distance * sizeof(T);
#pragma GCC unroll 8
    for (unsigned i = 0; i < V * LANES * sizeof(T); i += 64) _mm_prefetch(line + i, _MM_HINT_T0);
  }
};

// Attention of R queries of one head. A query has V vectors, and the last one is partial unless `is_vector_aligned`:
// loads without masks take half the time. Keys and values are loaded once for all queries. The result of a query does
// not depend on the others. Rows of `weights` are `weights_stride` apart and padded to the next whole vector.
template <typename T, int V, bool is_vector_aligned, int R>
void attend_queries(const Attention& a, long row, NextHead next_head, const float* query, const T* keys,
                    const T* values, const bool* mask, long positions, float* weights, long weights_stride,
                    float* out) {
  const int32_t* cache_indirection = a.cache_indirection ? a.cache_indirection + row * a.indirection_stride : nullptr;
  const auto cache_row = [=](long s) { return cache_indirection ? cache_indirection[s] : row; };
  const Mask last_vector_mask = tail_mask(a.width - (V - 1) * LANES);
  const auto vector_mask = [last_vector_mask](int v) {
    return !is_vector_aligned && v == V - 1 ? last_vector_mask : static_cast<Mask>(0xffff);
  };
  VecF32 q[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      q[r][v] = load(query + r * a.query_stride + v * LANES, vector_mask(v)) * broadcast(a.scale);
  for (long s = 0; s < positions; s += 4) {
    VecF32 dots[R][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const long position = std::min(s + i, positions - 1);
      const T* key = keys + cache_row(position) * a.key_batch + position * a.key_stride;
      NextHead::prefetch<V>(key, next_head.keys);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const VecF32 k = load(key + v * LANES, vector_mask(v));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dots[r][i] = v ? fmadd(q[r][v], k, dots[r][i]) : q[r][v] * k;
      }
    }
    for (int r = 0; r < R; ++r)
      store_reduce_add4(weights + r * weights_stride + s, dots[r][0], dots[r][1], dots[r][2], dots[r][3]);
  }
  float normalizers[R];
  for (int r = 0; r < R; ++r)
    normalizers[r] = exponentiate(weights + r * weights_stride, positions, mask ? mask + r * a.mask_query : nullptr);
  // Vectors of a value that are accumulated in registers at a time.
  constexpr int VECTORS_PER_PASS = REGISTERS_PER_VECTOR == 1 ? V : std::min(V, nr_vectors(R));
  for (int first = 0; first < V; first += VECTORS_PER_PASS) {
    VecF32 sums[R][VECTORS_PER_PASS] = {};
    for (long s = 0; s < positions; ++s) {
      const T* value_row = values + cache_row(s) * a.value_batch + s * a.value_stride;
      if (first == 0) NextHead::prefetch<V>(value_row, next_head.values);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS_PER_PASS; ++v) {
        if (first + v >= V) continue;
        const VecF32 value = load(value_row + (first + v) * LANES, vector_mask(first + v));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sums[r][v] = fmadd(broadcast(weights[r * weights_stride + s]), value, sums[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < VECTORS_PER_PASS && first + v < V; ++v)
        store(out + r * a.heads * a.width + (first + v) * LANES, vector_mask(first + v),
              sums[r][v] * broadcast(normalizers[r]));
  }
}

template <typename T, int V, bool is_vector_aligned>
void attend_heads(const Attention& a, int threads) {
  constexpr int MAX_QUERIES = 4;
  const T *keys = static_cast<const T*>(a.keys), *values = static_cast<const T*>(a.values);
  parallel_for(a.batch * a.heads, threads, [&](long task) {
    const long b = task / a.heads, h = task % a.heads;
    const long weights_stride = (a.positions / LANES + 1) * LANES;
    float* weights = scratch<float>(MAX_QUERIES * weights_stride);
    const long key_head = h * a.key_heads / a.heads;
    const T *head_keys = keys + key_head * a.key_head, *head_values = values + key_head * a.value_head;
    const NextHead next_head(a, key_head);
    for (long t = 0, n; t < a.queries; t += n) {
      n = a.queries - t >= MAX_QUERIES ? MAX_QUERIES : a.queries - t >= 2 ? 2 : 1;
      const bool* mask = a.mask ? a.mask + b * a.mask_batch + t * a.mask_query : nullptr;
      const long positions = attended_length(a, mask, n, a.last ? std::min(a.positions, a.last[b] + 1) : a.positions);
      const long row = a.cache_rows ? a.cache_rows[b] : b;
      const float* query = static_cast<const float*>(a.query) + b * a.query_batch + t * a.query_stride + h * a.width;
      float* out = static_cast<float*>(a.out) + ((b * a.queries + t) * a.heads + h) * a.width;
      switch (n) {
        case 1:
          attend_queries<T, V, is_vector_aligned, 1>(a, row, next_head, query, head_keys, head_values, mask,
                                                     positions, weights, weights_stride, out);
          break;
        case 2:
          attend_queries<T, V, is_vector_aligned, 2>(a, row, next_head, query, head_keys, head_values, mask,
                                                     positions, weights, weights_stride, out);
          break;
        default:
          attend_queries<T, V, is_vector_aligned, MAX_QUERIES>(a, row, next_head, query, head_keys, head_values, mask,
                                                               positions, weights, weights_stride, out);
      }
    }
  });
}

template <typename T, bool is_vector_aligned>
void attend_by_width(const Attention& a, int threads) {
  switch ((a.width + LANES - 1) / LANES) {
    case 1: return attend_heads<T, 1, is_vector_aligned>(a, threads);
    case 2: return attend_heads<T, 2, is_vector_aligned>(a, threads);
    case 3: return attend_heads<T, 3, is_vector_aligned>(a, threads);
    case 4: return attend_heads<T, 4, is_vector_aligned>(a, threads);
    case 5: return attend_heads<T, 5, is_vector_aligned>(a, threads);
    case 6: return attend_heads<T, 6, is_vector_aligned>(a, threads);
    case 7: return attend_heads<T, 7, is_vector_aligned>(a, threads);
    case 8: return attend_heads<T, 8, is_vector_aligned>(a, threads);
  }
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_attention() { return sizeof(transformer::Attention); }

extern "C" void transformer_attention(const transformer::Attention* a, int threads) {
  using namespace transformer;
  if (a->is_full_sequence) return transformer_full_attention(a, threads);
  const bool is_vector_aligned = a->width % LANES == 0;
  if (a->is_bfloat16)
    is_vector_aligned ? attend_by_width<uint16_t, true>(*a, threads) : attend_by_width<uint16_t, false>(*a, threads);
  else
    is_vector_aligned ? attend_by_width<float, true>(*a, threads) : attend_by_width<float, false>(*a, threads);
}

// Writes the key or value of one new position per row into a cache: at `positions[b]` of the row's own row.
extern "C" void transformer_append_to_cache(const float* values, long stride, void* cache, long rows, long heads,
                                            long width, long row_stride, long head_stride, long position_stride,
                                            const int64_t* positions, const int32_t* cache_rows, int is_bfloat16) {
  using namespace transformer;
  for (long b = 0; b < rows; ++b)
    for (long h = 0; h < heads; ++h) {
      const long offset =
          (cache_rows ? cache_rows[b] : b) * row_stride + h * head_stride + positions[b] * position_stride;
      for (long e = 0; e < width; e += LANES) {
        const VecF32 v = load(values + b * stride + h * width + e, tail_mask(width - e));
        if (is_bfloat16)
          store(static_cast<uint16_t*>(cache) + offset + e, tail_mask(width - e), v);
        else
          store(static_cast<float*>(cache) + offset + e, tail_mask(width - e), v);
      }
    }
}

// Copies row `rows[i]` of a cache to row i in place, for i < count: the first `bytes` bytes of every head. Indices may
// repeat. A row is overwritten only once all copies of it have been made. Cycles are resolved with one temporary row.
extern "C" void transformer_reorder_cache(char* cache, long n_rows, const int64_t* rows, long count, long heads,
                                          long row_bytes, long head_bytes, long bytes) {
  const auto copy = [=](const char* src, char* dst, long src_head_stride, long dst_head_stride) {
    for (long h = 0; h < heads; ++h) std::memcpy(dst + h * dst_head_stride, src + h * src_head_stride, bytes);
  };
  std::vector<long> pending_reads(n_rows, 0), free_rows;
  std::vector<bool> is_done(n_rows, false);
  for (long i = 0; i < count; ++i)
    if (rows[i] != i) ++pending_reads[rows[i]];
  for (long i = 0; i < count; ++i) {
    is_done[i] = rows[i] == i;
    if (!is_done[i] && !pending_reads[i]) free_rows.push_back(i);
  }
  const auto copy_to_free_rows = [&]() {
    while (!free_rows.empty()) {
      const long dst = free_rows.back(), src = rows[dst];
      free_rows.pop_back();
      copy(cache + src * row_bytes, cache + dst * row_bytes, head_bytes, head_bytes);
      is_done[dst] = true;
      if (!--pending_reads[src] && src < count && !is_done[src]) free_rows.push_back(src);
    }
  };
  copy_to_free_rows();
  std::vector<char> temporary;
  for (long i = 0; i < count; ++i) {
    if (is_done[i]) continue;
    temporary.resize(heads * bytes);
    copy(cache + i * row_bytes, temporary.data(), head_bytes, bytes);
    long dst = i;
    for (; rows[dst] != i; dst = rows[dst]) {
      copy(cache + rows[dst] * row_bytes, cache + dst * row_bytes, head_bytes, head_bytes);
      is_done[dst] = true;
    }
    copy(temporary.data(), cache + dst * row_bytes, bytes, head_bytes);
    is_done[dst] = true;
  }
}
