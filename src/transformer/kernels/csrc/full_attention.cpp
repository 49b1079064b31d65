// Attention over full sequences, in which keys and values are read once for many queries.
#include "attention.h"
#include "amx.h"
#include "parallel.h"

#include <algorithm>
#include <cstring>

namespace transformer {
namespace {

constexpr long NR = NR_VECTORS * LANES;

// Accumulates the products of one broadcast element and sixteen columns, or of one pair of bfloat16 and sixteen pairs.
VecF32 dot_accumulate(VecF32 sum, const float* x, const float* columns) {
  return fmadd(broadcast(*x), load(columns), sum);
}
VecF32 dot_accumulate(VecF32 sum, const int32_t* x, const int32_t* columns) {
  return dot_bf16_pairs(sum, x, load_i32(columns));
}

// The micro-kernel: multiplies R rows of x, `inner` long, by V vectors of columns. Accumulators stay in registers.
template <int R, int V, typename T>
void micro_kernel(const T* x, long x_stride, long inner, const T* columns, long stride, float* y, long y_stride) {
  VecF32 sums[R][V] = {};
  for (long k = 0; k < inner; ++k, columns += stride) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = dot_accumulate(sums[r][v], x + r * x_stride + k, columns + v * LANES);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(y + r * y_stride + v * LANES, 0xffff, sums[r][v]);
}

// Multiplies by any number of columns, which are padded to whole vectors.
template <int R, typename T>
void multiply(const T* x, long x_stride, long inner, const T* columns, long n, long stride, long panel_stride, float* y,
              long y_stride) {
  for (; n > 0; n -= NR, columns += panel_stride, y += NR) {
    switch (std::min<long>(NR_VECTORS, (n + LANES - 1) / LANES)) {
      case 1: micro_kernel<R, 1>(x, x_stride, inner, columns, stride, y, y_stride); break;
      case 2: micro_kernel<R, 2>(x, x_stride, inner, columns, stride, y, y_stride); break;
      case 3: micro_kernel<R, 3>(x, x_stride, inner, columns, stride, y, y_stride); break;
      default: micro_kernel<R, 4>(x, x_stride, inner, columns, stride, y, y_stride);
    }
  }
}

// Packs keys into panels of NR columns.
void transpose(const float* keys, long stride, long positions, long width, float* dst) {
  for (long s = 0; s < positions; ++s) {
    float* column = dst + s / NR * width * NR + s % NR;
    for (long e = 0; e < width; ++e) column[e * NR] = keys[s * stride + e];
  }
}

// Attention of R queries of one head, starting at `query`. Rows of values and results are padded to whole vectors.
template <int R>
void attend_rows(const Attention& a, long b, long t, const float* query, const float* keys, const float* values,
                 float* out) {
  const long weights_stride = (a.positions + NR - 1) / NR * NR, padded = (a.width + LANES - 1) / LANES * LANES;
  float *weights = scratch<float, 1>(MR * weights_stride), *sums = scratch<float, 2>(MR * (padded + NR));
  const bool* mask = a.mask ? a.mask + b * a.mask_batch + t * a.mask_query : nullptr;
  const long positions = attended_length(a, mask, R, a.positions);
  multiply<R>(query, a.query_stride, a.width, keys, positions, NR, a.width * NR, weights, weights_stride);
  float normalizers[R];
  for (int r = 0; r < R; ++r) {
    for (long s = 0; s < positions; s += LANES)
      store(weights + r * weights_stride + s, 0xffff,
            load(weights + r * weights_stride + s, 0xffff) * broadcast(a.scale));
    normalizers[r] = exponentiate(weights + r * weights_stride, positions, mask ? mask + r * a.mask_query : nullptr);
  }
  multiply<R>(weights, weights_stride, positions, values, a.width, padded, NR, sums, padded + NR);
  for (int r = 0; r < R; ++r)
    for (long e = 0; e < a.width; e += LANES)
      store(out + r * a.heads * a.width + e, tail_mask(a.width - e),
            load(sums + r * (padded + NR) + e, 0xffff) * broadcast(normalizers[r]));
}

// Processes the queries of full sequences in blocks. Keys and values are read once for all queries of a block.
void attend_f32(const Attention& a, int threads) {
  const float *keys = static_cast<const float*>(a.keys), *values = static_cast<const float*>(a.values);
  const long n_panels = (a.positions + NR - 1) / NR, padded = (a.width + LANES - 1) / LANES * LANES;
  parallel_for(a.batch * a.heads, threads, [&](long task) {
    const long b = task / a.heads, h = task % a.heads;
    float* packed_keys = scratch<float, 3>(n_panels * NR * a.width + a.positions * padded + NR);
    float* packed_values = packed_keys + n_panels * NR * a.width;
    const long key_head = h * a.key_heads / a.heads;
    transpose(keys + b * a.key_batch + key_head * a.key_head, a.key_stride, a.positions, a.width, packed_keys);
    const float* head_values = values + b * a.value_batch + key_head * a.value_head;
    for (long s = 0; s < a.positions; ++s)
      for (long e = 0; e < padded; e += LANES)
        store(packed_values + s * padded + e, 0xffff,
              load(head_values + s * a.value_stride + e, tail_mask(std::max(0L, a.width - e))));
    const long n_blocks = (a.queries + MR - 1) / MR;
    for (long block = 0, t = 0; block < n_blocks; ++block) {
      const long n = (a.queries - t + n_blocks - block - 1) / (n_blocks - block);  // blocks of similar size
      const float* query = static_cast<const float*>(a.query) + b * a.query_batch + t * a.query_stride + h * a.width;
      float* out = static_cast<float*>(a.out) + ((b * a.queries + t) * a.heads + h) * a.width;
      dispatch_rows(
          n, [&](auto rows_at_once) { attend_rows<rows_at_once>(a, b, t, query, packed_keys, packed_values, out); });
      t += n;
    }
  });
}

// Attention in bfloat16. Keys and values are packed once for all queries of a head and padded with zeros to whole
// tiles. Sums and softmax are float32.
template <typename T>
class Bf16Attention {
 public:
  explicit Bf16Attention(const Attention& a)
      : a_(a),
        padded_positions_(round_up(a.positions, K_PER_STEP)),
        padded_width_(round_up(a.width, K_PER_STEP)),
        keys_(scratch<int32_t, 4>(padded_width_ / 2 * padded_positions_)),
        values_(scratch<int32_t, 5>(padded_positions_ / 2 * padded_width_)),
        queries_(scratch<int32_t, 6>(ROWS * padded_width_ / 2)),
        weights_(scratch<int32_t, 7>(ROWS * padded_positions_ / 2)),
        scores_(scratch<float, 8>(ROWS * padded_positions_)),
        sums_(scratch<float, 9>(ROWS * padded_width_)) {}

  void attend(long b, long h) {
    const bool* mask = a_.mask ? a_.mask + b * a_.mask_batch : nullptr;
    const long max_positions = attended_length(a_, mask, a_.queries, a_.positions);
    const long key_head = h * a_.key_heads / a_.heads;
    pack_keys(static_cast<const T*>(a_.keys) + b * a_.key_batch + key_head * a_.key_head, max_positions);
    pack_values(static_cast<const T*>(a_.values) + b * a_.value_batch + key_head * a_.value_head, max_positions);
    for (long t = 0; t < a_.queries; t += ROWS) {
      const long rows = std::min(ROWS, a_.queries - t);
      const bool* block_mask = mask ? mask + t * a_.mask_query : nullptr;
      pack_queries(static_cast<const T*>(a_.query) + b * a_.query_batch + t * a_.query_stride + h * a_.width, rows);
      attend_rows(block_mask, rows, attended_length(a_, block_mask, rows, max_positions),
                  static_cast<T*>(a_.out) + ((b * a_.queries + t) * a_.heads + h) * a_.width);
    }
  }

 private:
  static constexpr long K_PER_STEP = 2 * TILE_K_GROUPS, COLUMNS = AMX_NR_VECTORS * LANES;
  static constexpr long ROWS = AMX_MR;  // queries processed at a time
  static_assert(K_PER_STEP == COLUMNS);

  static long round_up(long n, long size) { return std::max(1L, (n + size - 1) / size) * size; }
  Mask element_mask(long e) const { return tail_mask(std::max(0L, a_.width - e)); }
  VecI32 load_pairs(const float* row, long e) const {
    return to_bf16_pairs(load(row + e, element_mask(e)), load(row + e + LANES, element_mask(e + LANES)));
  }
  VecI32 load_pairs(const uint16_t* row, long e) const { return load_bf16_pairs(row + e, a_.width - e); }
  VecI32 load_bits(const float* row, long e) const { return to_bf16_bits(load(row + e, element_mask(e))); }
  VecI32 load_bits(const uint16_t* row, long e) const { return load_bf16_bits(row + e, element_mask(e)); }

  // Packs the keys in VNNI layout: k-groups along the elements of a head, for all positions.
  void pack_keys(const T* keys, long positions) {
    for (long s = 0; s < round_up(positions, K_PER_STEP); s += LANES)
      for (long e = 0; e < padded_width_; e += K_PER_STEP) {
        VecI32 k_groups[16];
        for (long i = 0; i < 16; ++i)
          k_groups[i] = s + i < positions ? load_pairs(keys + (s + i) * a_.key_stride, e) : broadcast_i32(0);
        transformer::transpose(k_groups);
        for (long u = 0; u < 16; ++u) store_i32(keys_ + (e / 2 + u) * padded_positions_ + s, k_groups[u]);
      }
  }

  // Packs the values in VNNI layout: k-groups of two positions, for all elements of a head.
  void pack_values(const T* values, long positions) {
    for (long s = 0; s < round_up(positions, K_PER_STEP); s += 2)
      for (long e = 0; e < padded_width_; e += LANES) {
        const T* row = values + s * a_.value_stride;
        const VecI32 first = s < positions ? load_bits(row, e) : broadcast_i32(0);
        const VecI32 second = s + 1 < positions ? load_bits(row + a_.value_stride, e) : broadcast_i32(0);
        store_i32(values_ + s / 2 * padded_width_ + e, bits_or(first, shift_left(second, 16)));
      }
  }

  void pack_queries(const T* query, long rows) {
    for (long r = 0; r < rows; ++r, query += a_.query_stride)
      for (long e = 0; e < padded_width_; e += K_PER_STEP)
        store_i32(queries_ + (r * padded_width_ + e) / 2, load_pairs(query, e));
  }

  // Multiplies `rows` rows of x, `k_groups` pairs long, by `columns` columns of as many pairs, `stride` apart. Rows of
  // sums are `sums_stride` apart. AMX multiplies all ROWS rows; those beyond `rows` hold stale values, and their sums
  // are not read.
  void multiply(const int32_t* x, long rows, long k_groups, const int32_t* columns_data, long columns, long stride,
                float* sums, long sums_stride, bool y_is_resident, long x_stride) {
    if (amx_enabled) {
      for (long v = 0; v < columns; v += COLUMNS)
        tiles_.multiply<TileType::bfloat16>(
            {reinterpret_cast<const char*>(x), reinterpret_cast<const char*>(columns_data + v), nullptr, 4 * x_stride,
             4 * stride, k_groups, y_is_resident},
            ROWS, AMX_NR_VECTORS, sums + v, 4 * sums_stride, [] {});
      return;
    }
    for (long r = 0; r < rows; r += MR, x += MR * x_stride, sums += MR * sums_stride)
      dispatch_rows(rows - r, [&](auto n) {
        transformer::multiply<n>(x, x_stride, k_groups, columns_data, columns, stride, NR, sums, sums_stride);
      });
  }

  void attend_rows(const bool* mask, long rows, long positions, T* out) {
    const long columns = positions ? round_up(positions, COLUMNS) : 0;
    multiply(queries_, rows, padded_width_ / 2, keys_, columns, padded_positions_, scores_, padded_positions_, false,
             padded_width_ / 2);
    float normalizers[ROWS];
    const bool is_unmasked = !mask || (!a_.mask_query && !std::memchr(mask, false, positions));
    for (long r = 0; r < rows; ++r) {
      const float* scores = scores_ + r * padded_positions_;
      int32_t* weights = weights_ + r * padded_positions_ / 2;
      normalizers[r] = is_unmasked ? exponentiate<false>(scores, nullptr, positions, columns, weights)
                                   : exponentiate<true>(scores, mask + r * a_.mask_query, positions, columns, weights);
    }
    multiply(weights_, rows, columns / 2, values_, padded_width_, padded_width_, sums_, padded_width_, true,
             padded_positions_ / 2);
    for (long r = 0; r < rows; ++r, out += a_.heads * a_.width)
      for (long e = 0; e < a_.width; e += LANES)
        store(out + e, tail_mask(a_.width - e), load(sums_ + r * padded_width_ + e) * broadcast(normalizers[r]));
  }

  // Replaces scores by e^(scale (score - maximum)) as bfloat16, and by 0 if they are masked or beyond the positions.
  // Returns the same as `transformer::exponentiate`, for the rounded weights.
  template <bool is_masked>
  float exponentiate(const float* scores, const bool* mask, long positions, long columns, int32_t* weights) const {
    const auto position_mask = [=](long s) {
      return is_masked ? load_bool_mask(mask + s, tail_mask(positions - s)) : tail_mask(positions - s);
    };
    const long unmasked_positions = is_masked ? 0 : positions / LANES * LANES;
    VecF32 maxima = broadcast(NEG_INFINITY), exp_sum = broadcast(0.0f);
    for (long s = 0; s < unmasked_positions; s += LANES) maxima = max(maxima, load(scores + s));
    for (long s = unmasked_positions; s < positions; s += LANES)
      maxima = max(maxima, select(position_mask(s), load(scores + s), broadcast(NEG_INFINITY)));
    const float row_max = reduce_max(maxima), log2_scale = a_.scale * 1.44269504f;
    const VecF32 factor = broadcast(log2_scale),
                 shift = broadcast(row_max == NEG_INFINITY ? 0.0f : -row_max * log2_scale);
    const auto weight = [&](long s) {
      const VecF32 exponential = approx_exp2(fmadd(load(scores + s), factor, shift));
      return s < unmasked_positions ? exponential
             : s < positions        ? maskz(position_mask(s), exponential)
                                    : broadcast(0.0f);
    };
    for (long s = 0; s < columns; s += 2 * LANES) {
      const VecI32 pairs = to_bf16_pairs(weight(s), weight(s + LANES));
      store_i32(weights + s / 2, pairs);
      exp_sum = exp_sum + (bitcast_f32(shift_left(pairs, 16)) + bitcast_f32(bits_and(pairs, broadcast_i32(-65536))));
    }
    return safe_reciprocal(reduce_add(exp_sum));
  }

  const Attention& a_;
  const long padded_positions_, padded_width_;     // rounded up to whole tiles
  int32_t *keys_, *values_, *queries_, *weights_;  // pairs of bfloat16
  float *scores_, *sums_;
  AmxTiles tiles_;
};

template <typename T>
void attend_bf16(const Attention& a, int threads) {
  parallel_region(threads, [&](const Thread& thread) {
    Bf16Attention<T> attention(a);
    thread.for_each_task(a.batch * a.heads, [&](long task) { attention.attend(task / a.heads, task % a.heads); }, true);
  });
}

}  // namespace
}  // namespace transformer

extern "C" void transformer_full_attention(const transformer::Attention* a, int threads) {
  using namespace transformer;
  if (a->is_bfloat16) return attend_bf16<uint16_t>(*a, threads);
  a->allow_bf16&& HAS_BF16_DOT ? attend_bf16<float>(*a, threads) : attend_f32(*a, threads);
}
