// Attention over full sequences, in which keys and values are read once for many queries.
#include "attention.h"
#include "tiles.h"

#include <algorithm>
#include <cstring>

namespace transformer {
namespace {

constexpr long TILE = NR_VECTORS * LANES;

// Adds to `sum` the products of one number and sixteen others, or of one pair of bfloat16 and sixteen pairs.
VecF32 add_products(VecF32 sum, const float* x, const float* columns) {
  return fmadd(broadcast(*x), load(columns), sum);
}
VecF32 add_products(VecF32 sum, const int32_t* x, const int32_t* columns) {
  return dot_bf16_pairs(sum, x, load_i32(columns));
}

// Multiplies R rows of x, `inner` long, by V vectors of columns. The accumulators stay in registers.
template <int R, int V, typename T>
void tile(const T* x, long x_stride, long inner, const T* columns, long stride, float* y, long y_stride) {
  VecF32 sums[R][V] = {};
  for (long k = 0; k < inner; ++k, columns += stride) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = add_products(sums[r][v], x + r * x_stride + k, columns + v * LANES);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(y + r * y_stride + v * LANES, 0xffff, sums[r][v]);
}

// Multiplies by any number of columns, which are padded to whole vectors.
template <int R, typename T>
void multiply(const T* x, long x_stride, long inner, const T* columns, long n, long stride, long next, float* y,
              long y_stride) {
  for (; n > 0; n -= TILE, columns += next, y += TILE) {
    switch (std::min<long>(NR_VECTORS, (n + LANES - 1) / LANES)) {
      case 1: tile<R, 1>(x, x_stride, inner, columns, stride, y, y_stride); break;
      case 2: tile<R, 2>(x, x_stride, inner, columns, stride, y, y_stride); break;
      case 3: tile<R, 3>(x, x_stride, inner, columns, stride, y, y_stride); break;
      default: tile<R, 4>(x, x_stride, inner, columns, stride, y, y_stride);
    }
  }
}

// Transposes keys to columns: in blocks of TILE keys, one element of all after another.
void transpose(const float* keys, long stride, long positions, long width, float* room) {
  for (long s = 0; s < positions; ++s) {
    float* column = room + s / TILE * width * TILE + s % TILE;
    for (long e = 0; e < width; ++e) column[e * TILE] = keys[s * stride + e];
  }
}

// Attention of R queries of one head, starting at `query`. Rows of values and results are padded to whole vectors.
template <int R>
void attend_rows(const Attention& a, long b, long t, const float* query, const float* keys, const float* values,
                 float* out) {
  const long reach = (a.positions + TILE - 1) / TILE * TILE, padded = (a.width + LANES - 1) / LANES * LANES;
  float *weights = scratch<float, 1>(MR * reach), *sums = scratch<float, 2>(MR * (padded + TILE));
  const bool* mask = a.mask ? a.mask + b * a.mask_batch + t * a.mask_query : nullptr;
  const long positions = attended(a, mask, R, a.positions);
  multiply<R>(query, a.query_stride, a.width, keys, positions, TILE, a.width * TILE, weights, reach);
  float shares[R];
  for (int r = 0; r < R; ++r) {
    for (long s = 0; s < positions; s += LANES)
      store(weights + r * reach + s, 0xffff, load(weights + r * reach + s, 0xffff) * broadcast(a.scale));
    shares[r] = exponentials(weights + r * reach, positions, mask ? mask + r * a.mask_query : nullptr);
  }
  multiply<R>(weights, reach, positions, values, a.width, padded, TILE, sums, padded + TILE);
  for (int r = 0; r < R; ++r)
    for (long e = 0; e < a.width; e += LANES)
      store(out + r * a.heads * a.width + e, tail_mask(a.width - e),
            load(sums + r * (padded + TILE) + e, 0xffff) * broadcast(shares[r]));
}

// Processes the queries of full sequences in blocks. Keys and values are read once for all queries of a block.
void attend_whole(const Attention& a, int threads) {
  const float *keys = static_cast<const float*>(a.keys), *values = static_cast<const float*>(a.values);
  const long tiles = (a.positions + TILE - 1) / TILE, padded = (a.width + LANES - 1) / LANES * LANES;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads) if (threads > 1)
  for (long b = 0; b < a.batch; ++b)
    for (long h = 0; h < a.heads; ++h) {
      float* columns = scratch<float, 3>(tiles * TILE * a.width + a.positions * padded + TILE);
      float* rows = columns + tiles * TILE * a.width;
      transpose(keys + b * a.key_batch + h * a.key_head, a.key_stride, a.positions, a.width, columns);
      const float* own_values = values + b * a.value_batch + h * a.value_head;
      for (long s = 0; s < a.positions; ++s)
        for (long e = 0; e < padded; e += LANES)
          store(rows + s * padded + e, 0xffff, load(own_values + s * a.value_stride + e, tail_mask(std::max(0L, a.width - e))));
      const long blocks = (a.queries + MR - 1) / MR;
      for (long block = 0, t = 0; block < blocks; ++block) {
        const long n = (a.queries - t + blocks - block - 1) / (blocks - block);  // blocks of similar size
        const float* query = static_cast<const float*>(a.query) + b * a.query_batch + t * a.query_stride + h * a.width;
        float* out = static_cast<float*>(a.out) + ((b * a.queries + t) * a.heads + h) * a.width;
        dispatch_rows(n, [&](auto rows_at_once) { attend_rows<rows_at_once>(a, b, t, query, columns, rows, out); });
        t += n;
      }
    }
}

// Attention in bfloat16. Keys and values are rearranged once for all queries of a head and padded with zeros to whole
// tiles. Sums and softmax are float32.
template <typename T>
class Rounded {
 public:
  explicit Rounded(const Attention& a)
      : a_(a), reach_(up(a.positions, INPUTS)), inner_(up(a.width, INPUTS)), keys_(scratch<int32_t, 4>(inner_ / 2 * reach_)),
        values_(scratch<int32_t, 5>(reach_ / 2 * inner_)), queries_(scratch<int32_t, 6>(ROWS * inner_ / 2)),
        weights_(scratch<int32_t, 7>(ROWS * reach_ / 2)), scores_(scratch<float, 8>(ROWS * reach_)),
        sums_(scratch<float, 9>(ROWS * inner_)) {}

  void attend(long b, long h) {
    const bool* mask = a_.mask ? a_.mask + b * a_.mask_batch : nullptr;
    const long most = attended(a_, mask, a_.queries, a_.positions);
    lay_out_keys(static_cast<const T*>(a_.keys) + b * a_.key_batch + h * a_.key_head, most);
    lay_out_values(static_cast<const T*>(a_.values) + b * a_.value_batch + h * a_.value_head, most);
    for (long t = 0; t < a_.queries; t += ROWS) {
      const long rows = std::min(ROWS, a_.queries - t);
      const bool* own = mask ? mask + t * a_.mask_query : nullptr;
      lay_out_queries(static_cast<const T*>(a_.query) + b * a_.query_batch + t * a_.query_stride + h * a_.width, rows);
      attend_rows(own, rows, attended(a_, own, rows, most), static_cast<T*>(a_.out) + ((b * a_.queries + t) * a_.heads + h) * a_.width);
    }
  }

 private:
  static constexpr long INPUTS = 2 * TILE_K_GROUPS, COLUMNS = AMX_NR_VECTORS * LANES;
  static constexpr long ROWS = AMX_MR;  // queries processed at a time
  static_assert(INPUTS == COLUMNS);

  static long up(long n, long size) { return std::max(1L, (n + size - 1) / size) * size; }
  Mask left(long e) const { return tail_mask(std::max(0L, a_.width - e)); }
  VecI32 pairs(const float* row, long e) const { return to_bf16_pairs(load(row + e, left(e)), load(row + e + LANES, left(e + LANES))); }
  VecI32 pairs(const uint16_t* row, long e) const { return load_bf16_pairs(row + e, a_.width - e); }
  VecI32 halves(const float* row, long e) const { return to_bf16_bits(load(row + e, left(e))); }
  VecI32 halves(const uint16_t* row, long e) const { return load_bf16_bits(row + e, left(e)); }

  // Transposes the keys: the units of a position become units of sixteen neighbouring positions.
  void lay_out_keys(const T* keys, long positions) {
    for (long s = 0; s < up(positions, INPUTS); s += LANES)
      for (long e = 0; e < inner_; e += INPUTS) {
        VecI32 units[16];
        for (long i = 0; i < 16; ++i)
          units[i] = s + i < positions ? pairs(keys + (s + i) * a_.key_stride, e) : broadcast_i32(0);
        transformer::transpose(units);
        for (long u = 0; u < 16; ++u) store_i32(keys_ + (e / 2 + u) * reach_ + s, units[u]);
      }
  }

  // Packs the values in units of two positions.
  void lay_out_values(const T* values, long positions) {
    for (long s = 0; s < up(positions, INPUTS); s += 2)
      for (long e = 0; e < inner_; e += LANES) {
        const T* row = values + s * a_.value_stride;
        const VecI32 first = s < positions ? halves(row, e) : broadcast_i32(0);
        const VecI32 second = s + 1 < positions ? halves(row + a_.value_stride, e) : broadcast_i32(0);
        store_i32(values_ + s / 2 * inner_ + e, bits_or(first, shift_left(second, 16)));
      }
  }

  void lay_out_queries(const T* query, long rows) {
    for (long r = 0; r < rows; ++r, query += a_.query_stride)
      for (long e = 0; e < inner_; e += INPUTS)
        store_i32(queries_ + (r * inner_ + e) / 2, pairs(query, e));
  }

  // Multiplies `rows` rows of x, `units` pairs long, by `columns` columns of as many pairs, `stride` apart. Rows of
  // sums are `apart` apart. AMX multiplies all ROWS rows; those beyond `rows` hold the remains of earlier ones.
  void multiply(const int32_t* x, long rows, long units, const int32_t* y, long columns, long stride, float* sums, long apart,
                bool y_stays, long x_stride) {
    if (amx_enabled) {
      for (long v = 0; v < columns; v += COLUMNS)
        tiles_.multiply<TileType::bfloat16>({reinterpret_cast<const char*>(x), reinterpret_cast<const char*>(y + v), nullptr,
                                            4 * x_stride, 4 * stride, units, y_stays},
                                           ROWS, AMX_NR_VECTORS, sums + v, 4 * apart, [] {});
      return;
    }
    for (long r = 0; r < rows; r += MR, x += MR * x_stride, sums += MR * apart)
      dispatch_rows(rows - r, [&](auto n) {
        transformer::multiply<n>(x, x_stride, units, y, columns, stride, TILE, sums, apart);
      });
  }

  void attend_rows(const bool* mask, long rows, long positions, T* out) {
    const long columns = positions ? up(positions, COLUMNS) : 0;
    multiply(queries_, rows, inner_ / 2, keys_, columns, reach_, scores_, reach_, false, inner_ / 2);
    float shares[ROWS];
    const bool all = !mask || (!a_.mask_query && !std::memchr(mask, false, positions));
    for (long r = 0; r < rows; ++r) {
      const float* scores = scores_ + r * reach_;
      int32_t* weights = weights_ + r * reach_ / 2;
      shares[r] = all ? exponentials<false>(scores, nullptr, positions, columns, weights)
                      : exponentials<true>(scores, mask + r * a_.mask_query, positions, columns, weights);
    }
    multiply(weights_, rows, columns / 2, values_, inner_, inner_, sums_, inner_, true, reach_ / 2);
    for (long r = 0; r < rows; ++r, out += a_.heads * a_.width)
      for (long e = 0; e < a_.width; e += LANES)
        store(out + e, tail_mask(a_.width - e), load(sums_ + r * inner_ + e) * broadcast(shares[r]));
  }

  // Replaces scores by e^(scale (score - maximum)) as bfloat16, and by 0 if they are masked or beyond the positions.
  // Returns the same as `transformer::exponentials`, for the rounded weights.
  template <bool is_masked>
  float exponentials(const float* scores, const bool* mask, long positions, long columns, int32_t* weights) const {
    const auto there = [=](long s) { return is_masked ? load_bool_mask(mask + s, tail_mask(positions - s)) : tail_mask(positions - s); };
    const long whole = is_masked ? 0 : positions / LANES * LANES;
    VecF32 most = broadcast(NEVER), total = broadcast(0.0f);
    for (long s = 0; s < whole; s += LANES) most = max(most, load(scores + s));
    for (long s = whole; s < positions; s += LANES) most = max(most, select(there(s), load(scores + s), broadcast(NEVER)));
    const float largest = reduce_max(most), doublings = a_.scale * 1.44269504f;
    const VecF32 factor = broadcast(doublings), shift = broadcast(largest == NEVER ? 0.0f : -largest * doublings);
    const auto weight = [&](long s) {
      const VecF32 power = approx_exp2(fmadd(load(scores + s), factor, shift));
      return s < whole ? power : s < positions ? maskz(there(s), power) : broadcast(0.0f);
    };
    for (long s = 0; s < columns; s += 2 * LANES) {
      const VecI32 pairs = to_bf16_pairs(weight(s), weight(s + LANES));
      store_i32(weights + s / 2, pairs);
      total = total + (bitcast_f32(shift_left(pairs, 16)) + bitcast_f32(bits_and(pairs, broadcast_i32(-65536))));
    }
    return inverse(reduce_add(total));
  }

  const Attention& a_;
  const long reach_, inner_;  // numbers of positions and of elements of a head, rounded up to whole tiles
  int32_t *keys_, *values_, *queries_, *weights_;  // pairs of bfloat16
  float *scores_, *sums_;
  AmxTiles tiles_;
};

template <typename T>
void attend_rounded(const Attention& a, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Rounded<T> by(a);
#pragma omp for collapse(2) schedule(static)
    for (long b = 0; b < a.batch; ++b)
      for (long h = 0; h < a.heads; ++h) by.attend(b, h);
  }
}

}  // namespace
}  // namespace transformer

extern "C" void transformer_attention_of_whole(const transformer::Attention* a, int threads) {
  using namespace transformer;
  if (a->is_bfloat16) return attend_rounded<uint16_t>(*a, threads);
  a->allow_bf16 && HAS_BF16_DOT ? attend_rounded<float>(*a, threads) : attend_whole(*a, threads);
}
