// Attention that stores at most a few rows of weights at a time: softmax(Q K^T / sqrt(d_k)) V.
#include "attention.h"

#include <algorithm>
#include <cstring>

namespace transformer {

namespace {

// Distance in elements from the keys, or values, of a head to those of the next head, for prefetching.
struct Ahead {
  long keys, values;

  Ahead(const Attention& a, long head)
      : keys(head + 1 < a.heads ? a.key_head : a.key_batch - head * a.key_head),
        values(head + 1 < a.heads ? a.value_head : a.value_batch - head * a.value_head) {}

  // Prefetches a few vectors, which need not exist. The rows of a head are too short for the hardware prefetcher.
  template <int V, typename T>
  static void ask(const T* from, long apart) {
    const char* line = reinterpret_cast<const char*>(from) + apart * sizeof(T);
#pragma GCC unroll 8
    for (unsigned i = 0; i < V * LANES * sizeof(T); i += 64) _mm_prefetch(line + i, _MM_HINT_T0);
  }
};

// Attention of R queries of one head. A query has V vectors, and the last one is partial unless `whole`: loads without
// masks take half the time. Keys and values are loaded once for all queries. The result of a query does not depend on
// the others. Rows of `weights` are `reach` apart and padded to the next whole vector.
template <typename T, int V, bool whole, int R>
void attend(const Attention& a, long b, Ahead ahead, const float* query, const T* keys, const T* values, const bool* mask,
            long positions, float* weights, long reach, float* out) {
  const int32_t* cache_indirection = a.cache_indirection ? a.cache_indirection + b * a.indirection_stride : nullptr;
  const auto row = [=](long s) { return cache_indirection ? cache_indirection[s] : b; };
  const Mask last = tail_mask(a.width - (V - 1) * LANES);
  const auto part = [last](int v) { return !whole && v == V - 1 ? last : static_cast<Mask>(0xffff); };
  VecF32 q[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) q[r][v] = load(query + r * a.query_stride + v * LANES, part(v)) * broadcast(a.scale);
  for (long s = 0; s < positions; s += 4) {
    VecF32 dots[R][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const long place = std::min(s + i, positions - 1);
      const T* key = keys + row(place) * a.key_batch + place * a.key_stride;
      Ahead::ask<V>(key, ahead.keys);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const VecF32 k = load(key + v * LANES, part(v));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dots[r][i] = v ? fmadd(q[r][v], k, dots[r][i]) : q[r][v] * k;
      }
    }
    for (int r = 0; r < R; ++r)
      store_reduce_add4(weights + r * reach + s, dots[r][0], dots[r][1], dots[r][2], dots[r][3]);
  }
  float shares[R];
  for (int r = 0; r < R; ++r)
    shares[r] = exponentials(weights + r * reach, positions, mask ? mask + r * a.mask_query : nullptr);
  // Vectors accumulated at a time.
  constexpr int SUMMED = REGISTERS_PER_VECTOR == 1 ? V : std::min(V, nr_vectors(R));
  for (int first = 0; first < V; first += SUMMED) {
    VecF32 sums[R][SUMMED] = {};
    for (long s = 0; s < positions; ++s) {
      const T* own = values + row(s) * a.value_batch + s * a.value_stride;
      if (first == 0) Ahead::ask<V>(own, ahead.values);
#pragma GCC unroll 8
      for (int v = 0; v < SUMMED; ++v) {
        if (first + v >= V) continue;
        const VecF32 value = load(own + (first + v) * LANES, part(first + v));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sums[r][v] = fmadd(broadcast(weights[r * reach + s]), value, sums[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < SUMMED && first + v < V; ++v)
        store(out + r * a.heads * a.width + (first + v) * LANES, part(first + v), sums[r][v] * broadcast(shares[r]));
  }
}

template <typename T, int V, bool whole>
void attend_all(const Attention& a, int threads) {
  constexpr int TOGETHER = 4;
  const T *keys = static_cast<const T*>(a.keys), *values = static_cast<const T*>(a.values);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads) if (threads > 1)
  for (long b = 0; b < a.batch; ++b)
    for (long h = 0; h < a.heads; ++h) {
      const long reach = (a.positions / LANES + 1) * LANES;
      float* weights = scratch<float>(TOGETHER * reach);
      const T *own_keys = keys + h * a.key_head, *own_values = values + h * a.value_head;
      const Ahead ahead(a, h);
      for (long t = 0, n; t < a.queries; t += n) {
        n = a.queries - t >= TOGETHER ? TOGETHER : a.queries - t >= 2 ? 2 : 1;
        const bool* mask = a.mask ? a.mask + b * a.mask_batch + t * a.mask_query : nullptr;
        const long positions = attended(a, mask, n, a.last ? std::min(a.positions, a.last[b] + 1) : a.positions);
        const float* query = static_cast<const float*>(a.query) + b * a.query_batch + t * a.query_stride + h * a.width;
        float* out = static_cast<float*>(a.out) + ((b * a.queries + t) * a.heads + h) * a.width;
        switch (n) {
          case 1: attend<T, V, whole, 1>(a, b, ahead, query, own_keys, own_values, mask, positions, weights, reach, out); break;
          case 2: attend<T, V, whole, 2>(a, b, ahead, query, own_keys, own_values, mask, positions, weights, reach, out); break;
          default: attend<T, V, whole, TOGETHER>(a, b, ahead, query, own_keys, own_values, mask, positions, weights, reach, out);
        }
      }
    }
}

template <typename T, bool whole>
void attend_by_width(const Attention& a, int threads) {
  switch ((a.width + LANES - 1) / LANES) {
    case 1: return attend_all<T, 1, whole>(a, threads);
    case 2: return attend_all<T, 2, whole>(a, threads);
    case 3: return attend_all<T, 3, whole>(a, threads);
    case 4: return attend_all<T, 4, whole>(a, threads);
    case 5: return attend_all<T, 5, whole>(a, threads);
    case 6: return attend_all<T, 6, whole>(a, threads);
    case 7: return attend_all<T, 7, whole>(a, threads);
    case 8: return attend_all<T, 8, whole>(a, threads);
  }
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_attention() { return sizeof(transformer::Attention); }

extern "C" void transformer_attention(const transformer::Attention* a, int threads) {
  using namespace transformer;
  if (a->is_full_sequence) return transformer_attention_of_whole(a, threads);
  const bool whole = a->width % LANES == 0;
  if (a->is_bfloat16)
    whole ? attend_by_width<uint16_t, true>(*a, threads) : attend_by_width<uint16_t, false>(*a, threads);
  else
    whole ? attend_by_width<float, true>(*a, threads) : attend_by_width<float, false>(*a, threads);
}

// Writes the key or value of one new position per row into a cache; row b is written at `positions[b]`.
extern "C" void transformer_remember(const float* fresh, long stride, void* cache, long rows, long heads, long width,
                                     long row_stride, long head_stride, long position_stride, const int64_t* positions,
                                     int is_bfloat16) {
  using namespace transformer;
  for (long b = 0; b < rows; ++b)
    for (long h = 0; h < heads; ++h) {
      const long place = b * row_stride + h * head_stride + positions[b] * position_stride;
      for (long e = 0; e < width; e += LANES) {
        const VecF32 v = load(fresh + b * stride + h * width + e, tail_mask(width - e));
        if (is_bfloat16)
          store(static_cast<uint16_t*>(cache) + place + e, tail_mask(width - e), v);
        else
          store(static_cast<float*>(cache) + place + e, tail_mask(width - e), v);
      }
    }
}

// Copies row `rows[i]` of a cache to row i in place, for i < count: the first `bytes` bytes of every head. Indices may
// repeat. A row is overwritten only once all copies of it have been made. Cycles are resolved with one temporary row.
extern "C" void transformer_reorder(char* cache, long n_rows, const int64_t* rows, long count, long heads,
                                    long row_bytes, long head_bytes, long bytes) {
  const auto copy = [=](const char* from, char* to, long from_head, long to_head) {
    for (long h = 0; h < heads; ++h) std::memcpy(to + h * to_head, from + h * from_head, bytes);
  };
  std::vector<long> wanted(n_rows, 0), free;
  std::vector<bool> settled(n_rows, false);
  for (long i = 0; i < count; ++i)
    if (rows[i] != i) ++wanted[rows[i]];
  for (long i = 0; i < count; ++i) {
    settled[i] = rows[i] == i;
    if (!settled[i] && !wanted[i]) free.push_back(i);
  }
  const auto settle = [&]() {
    while (!free.empty()) {
      const long to = free.back(), from = rows[to];
      free.pop_back();
      copy(cache + from * row_bytes, cache + to * row_bytes, head_bytes, head_bytes);
      settled[to] = true;
      if (!--wanted[from] && from < count && !settled[from]) free.push_back(from);
    }
  };
  settle();
  std::vector<char> aside;
  for (long i = 0; i < count; ++i) {
    if (settled[i]) continue;
    aside.resize(heads * bytes);
    copy(cache + i * row_bytes, aside.data(), head_bytes, bytes);
    long to = i;
    for (; rows[to] != i; to = rows[to]) {
      copy(cache + rows[to] * row_bytes, cache + to * row_bytes, head_bytes, head_bytes);
      settled[to] = true;
    }
    copy(aside.data(), cache + to * row_bytes, bytes, head_bytes);
    settled[to] = true;
  }
}
