// The kernels for one tile of C in `matmul.cpp`: its epilogue, the prefetch of the rows that are needed next, and the
// products themselves, by vector instructions or by AMX.
#pragma once
#include "amx.h"
#include "packing.h"

#include <algorithm>
#include <limits>

namespace transformer {
namespace {

constexpr long MIN_PANELS = 8;  // with fewer panels, two threads should not pack the same rows

// Software prefetch of rows, one cache line at a time while a tile is multiplied: the first line of each row, then the
// second line of each row, and so on.
struct RowPrefetch {
  const char* line;
  long rows, stride;  // in bytes, from row to row
  const char* end = line + rows * stride;

  static RowPrefetch none(const char* any_address) { return {any_address, 1, 0}; }

  // Advances to the prefetches of the next tile. `next_line` is the line after the last prefetched one.
  void advance(const char* next_line) {
    line = next_line;
    if (line < end) return;
    line += 64 - rows * stride;
    end += 64;
  }
};

// C with its epilogue, and the buffer that holds partial sums between blocks of K.
struct TileOutput {
  Epilogue epilogue;
  void* c;
  long stride, rows, columns;
  bool c_is_bfloat16, is_first_k_block, is_last_k_block;
  bool has_activation;         // ReLU or a factor matrix is applied
  bool is_bias_only;           // no ReLU, factor matrix or accumulation into C
  bool uses_streaming_stores;  // non-temporal, of whole lines: no read for ownership, no cache pollution
  float* row_sums;             // output for the sums of A's rows, or null
  float* partial_sums;

  VecF32 bias(long column, Mask m) const {
    return is_last_k_block && epilogue.bias ? load(epilogue.bias + column, m) : broadcast(0.0f);
  }

  // Prefetches the operands of the epilogue and the tile of C, whose rows are far apart. T is the element type of the
  // factor matrix.
  template <typename T>
  void prefetch_epilogue(long rows, long i, long j, long columns, bool prefetches_c) const {
    for (long r = i; r < i + rows; ++r) {
      if (epilogue.factor_matrix)
        prefetch(static_cast<const T*>(epilogue.factor_matrix) + r * epilogue.factor_stride + j, columns);
      if (!epilogue.accumulate && !prefetches_c) continue;
      if (c_is_bfloat16)
        prefetch(static_cast<const uint16_t*>(c) + r * stride + j, columns);
      else
        prefetch(static_cast<const float*>(c) + r * stride + j, columns);
    }
  }
};

// Applies ReLU and the factor matrix to row i, columns from j on. T is the element type of the factor matrix. A call
// would spill the accumulators, so this is always inlined.
template <typename T>
__attribute__((always_inline)) inline VecF32 apply_activation(VecF32 y, const Epilogue& f, long i, long j, Mask m) {
  if (f.relu) y = max(broadcast(0.0f), y);  // this operand order preserves NaN
  if (!f.factor_matrix) return y;
  const VecF32 factors = load(static_cast<const T*>(f.factor_matrix) + i * f.factor_stride + j, m);
  if (f.has_derivatives) return y * factors;
  return maskz(cmp_nle(factors, broadcast(0.0f)), y * broadcast(f.factor));
}

// Applies the epilogue, except for the bias, to row i, columns from j on, after the last block of K.
template <typename T>
__attribute__((always_inline)) inline VecF32 apply_epilogue(const TileOutput& s, VecF32 y, long i, long j, Mask m) {
  if (s.epilogue.accumulate) y = y + load(static_cast<float*>(s.c) + i * s.stride + j, m);
  return s.has_activation ? apply_activation<T>(y, s.epilogue, i, j, m) : y;
}

template <typename T>
__attribute__((always_inline)) inline void store_with_epilogue(const TileOutput& s, VecF32 sum, long i, long j,
                                                               Mask m) {
  const long offset = i * s.stride + j;
  const VecF32 y = apply_epilogue<T>(s, sum, i, j, m);
  s.c_is_bfloat16 ? store(static_cast<uint16_t*>(s.c) + offset, m, y) : store(static_cast<float*>(s.c) + offset, m, y);
}

// Fast path of the epilogue: stores sums plus bias, for full vectors of columns.
template <int VECTORS, int R>
__attribute__((always_inline)) inline void store_with_bias(const TileOutput& s, const VecF32 (&sums)[R][VECTORS],
                                                           long i, long j) {
  VecF32 bias[VECTORS];
  for (int v = 0; v < VECTORS; ++v) bias[v] = s.bias(j + v * LANES, tail_mask(LANES));
  const long offset = i * s.stride + j;
  if (!s.c_is_bfloat16) {
    float* dst = static_cast<float*>(s.c) + offset;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r, dst += s.stride)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) store(dst + v * LANES, sums[r][v] + bias[v]);
    return;
  }
  uint16_t* dst = static_cast<uint16_t*>(s.c) + offset;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r, dst += s.stride) {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < VECTORS; v += 2)
      store_i32(dst + v * LANES, to_bf16_pairs(sums[r][v] + bias[v], sums[r][v + 1] + bias[v + 1]));
    constexpr int LAST = VECTORS - 1;
    if (VECTORS % 2) store(dst + LAST * LANES, tail_mask(LANES), sums[r][LAST] + bias[LAST]);
  }
}

// The micro-kernel: multiplies R rows of A, `a_row_bytes` bytes apart, by the first VECTORS vectors of one panel of B.
template <typename P, long PANEL, int VECTORS, int R>
void micro_kernel(const char* a, long a_row_bytes, const char* b, long k_groups, const TileOutput& s, long i, long j,
                  float* partial_sums, RowPrefetch& row_prefetch) {
  VecF32 sums[R][VECTORS];
  Mask masks[VECTORS];
  for (int v = 0; v < VECTORS; ++v) masks[v] = tail_mask(std::clamp(s.columns - j - v * LANES, 0L, LANES));
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = s.is_first_k_block ? broadcast(0.0f) : load(partial_sums + r * PANEL + v * LANES);
  if (s.is_last_k_block) s.prefetch_epilogue<typename P::Input>(R, i, j, PANEL, !s.c_is_bfloat16);
  const auto multiply_k_group = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v)
        sums[r][v] = P::multiply_add_group(sums[r][v], a + r * a_row_bytes, load_i32(b + v * 64));
    a += 4, b += 4 * PANEL;
  };
  // If as many rows are prefetched as the tile has, all their lines are; otherwise one line per row, for as many rows
  // as the loop has iterations.
  const char* line = row_prefetch.line;
  const long row_step = row_prefetch.stride, line_step = row_prefetch.rows == R ? 64 - (R - 1) * row_step : row_step;
  int rows_left = R;
  for (long u = 2; u <= k_groups; u += 2) {
    _mm_prefetch(line, _MM_HINT_T0);
    line += --rows_left ? row_step : line_step;
    rows_left = rows_left ? rows_left : R;
    multiply_k_group();
    multiply_k_group();
  }
  if (k_groups % 2) multiply_k_group();
  row_prefetch.advance(line);
  if (s.is_last_k_block && s.is_bias_only && s.columns - j >= VECTORS * LANES)
    return store_with_bias<VECTORS, R>(s, sums, i, j);
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; ++v) {
    const long column = j + v * LANES;
    const VecF32 bias = s.bias(column, masks[v]);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      if (s.is_last_k_block)
        store_with_epilogue<typename P::Input>(s, sums[r][v] + bias, i + r, column, masks[v]);
      else
        store(partial_sums + r * PANEL + v * LANES, sums[r][v]);
    }
  }
}

template <typename P, long PANEL, int VECTORS>
void micro_kernel(long rows, const char* a, long a_row_bytes, const char* b, long k_groups, const TileOutput& s, long i,
                  long j, float* partial_sums, RowPrefetch& row_prefetch) {
  if constexpr (VECTORS > 1)  // the last panel may have fewer
    if (s.columns - j <= (VECTORS - 1) * LANES)
      return micro_kernel<P, PANEL, VECTORS - 1>(rows, a, a_row_bytes, b, k_groups, s, i, j, partial_sums,
                                                 row_prefetch);
  switch (rows) {
    case 1: return micro_kernel<P, PANEL, VECTORS, 1>(a, a_row_bytes, b, k_groups, s, i, j, partial_sums, row_prefetch);
    case 2: return micro_kernel<P, PANEL, VECTORS, 2>(a, a_row_bytes, b, k_groups, s, i, j, partial_sums, row_prefetch);
    case 3: return micro_kernel<P, PANEL, VECTORS, 3>(a, a_row_bytes, b, k_groups, s, i, j, partial_sums, row_prefetch);
    case 4: return micro_kernel<P, PANEL, VECTORS, 4>(a, a_row_bytes, b, k_groups, s, i, j, partial_sums, row_prefetch);
    case 5: return micro_kernel<P, PANEL, VECTORS, 5>(a, a_row_bytes, b, k_groups, s, i, j, partial_sums, row_prefetch);
    default:
      return micro_kernel<P, PANEL, VECTORS, 6>(a, a_row_bytes, b, k_groups, s, i, j, partial_sums, row_prefetch);
  }
}

// The kernel for one tile of C: by vector instructions (this struct) or by AMX (the next one). `ROWS` is MR. The number
// of k-groups is a multiple of `K_GROUPS_PER_STEP`, and a block of K has at most `MAX_KC_GROUPS`. If A is read in
// place, K is blocked only if `BLOCKS_K`, and tasks are blocks of columns if K has at most `MAX_COLUMN_TASK_K_GROUPS`.
// `L2_BYTES` bytes of rows or columns stay in the L2 cache. `PACK_WIDTH` columns are packed at a time, a multiple of
// every panel's width. If `PANEL_LOOP_IS_OUTER` and A is read in place, a thread multiplies all its rows by one panel
// before the next.
template <typename P>
struct VectorKernel {
  using Input = P;
  static constexpr long ROWS = MR, K_GROUPS_PER_STEP = 1, K_PER_STEP = P::K_PER_GROUP, MAX_KC_GROUPS = KC,
                        L2_BYTES = L2_BLOCK_BYTES;
  static constexpr long MAX_COLUMN_TASK_K_GROUPS = (800 << 10) / (4 * LANES * NR_VECTORS), COLUMN_TASK_BYTES = L2_BYTES,
                        MIN_COLUMN_TASK_PANELS = 1, MIN_PANELS_PER_THREAD = 4;
  static constexpr long PACK_WIDTH = 192;  // source and destination stay in the L1 cache
  static constexpr bool BLOCKS_K = true, PANEL_LOOP_IS_OUTER = true;

  template <long PANEL, int VECTORS>
  void compute_tile(long rows, const char* a, long a_row_bytes, const char* b, long k_groups, const TileOutput& s,
                    long i, long j, bool, Prefetcher&) {
    micro_kernel<P, PANEL, VECTORS>(rows, a, a_row_bytes, b, k_groups, s, i, j, s.partial_sums, row_prefetch);
  }
  void set_row_prefetch(const RowPrefetch& next) { row_prefetch = next; }
  void flush_epilogue() {}

 private:
  RowPrefetch row_prefetch{};
};

// AMX is bound by every cache beyond L1. What a thread has packed therefore stays in its L2 cache: rows while all
// panels are read, or columns while all rows are read. K blocks of packed rows and panels stay in the L1 cache. Rows
// read in place often map to few sets of that cache, so blocking K gains nothing there. The epilogue of a tile overlaps
// with the multiplication of the next one.
template <typename P>
struct AmxKernel {
  using Input = P;
  static constexpr long ROWS = AMX_MR, K_GROUPS_PER_STEP = TILE_K_GROUPS * P::TERMS,
                        K_PER_STEP = TILE_K_GROUPS * P::K_PER_GROUP;
  // The six products per step of bf16x3 are bound by computation, not by memory.
  static constexpr long MAX_KC_GROUPS = P::TERMS == 1 ? 256 : std::numeric_limits<long>::max();
  static constexpr long MAX_COLUMN_TASK_K_GROUPS = 1024, L2_BYTES = 1 << 20, COLUMN_TASK_BYTES = L2_BYTES / 2,
                        MIN_COLUMN_TASK_PANELS = MIN_PANELS, MIN_PANELS_PER_THREAD = MIN_PANELS;
  static constexpr long PACK_WIDTH = 512;  // long contiguous reads reach the memory bandwidth
  static constexpr bool BLOCKS_K = false, PANEL_LOOP_IS_OUTER = false;

  // `b_is_resident` has the same meaning as in `TileOperands`.
  template <long PANEL, int VECTORS>
  void compute_tile(long rows, const char* a, long a_row_bytes, const char* b, long k_groups, const TileOutput& s,
                    long i, long j, bool b_is_resident, Prefetcher& prefetcher) {
    static_assert(PANEL == COLUMNS);
    float* tile_sums = s.is_last_k_block ? buffers[is_second_buffer = !is_second_buffer] : s.partial_sums;
    const float* initial_sums = s.is_first_k_block ? nullptr : s.partial_sums;
    const long rows_per_step = ceil_div(ROWS, std::max(1L, k_groups / K_GROUPS_PER_STEP));
    long prefetch_row = i + ROWS;
    constexpr TileType tile_type = P::TERMS == 1 ? TileType::bfloat16 : TileType::bf16x3;
    const auto overlapped = [&] {
      prefetcher.step();
      if (s.is_last_k_block)
        s.prefetch_epilogue<typename P::Input>(std::min(rows_per_step, s.rows - prefetch_row), prefetch_row, j, PANEL,
                                               false);
      prefetch_row += rows_per_step;
      flush_epilogue(rows_per_step);
    };
    tiles.multiply<tile_type>({a, b, nullptr, a_row_bytes, 4 * PANEL, k_groups, b_is_resident, initial_sums}, rows,
                              ceil_div(s.columns - j, LANES), tile_sums, 4 * PANEL, overlapped);
    if (!s.is_last_k_block) return;
    flush_epilogue();
    pending = s, pending_sums = tile_sums, next_row = i, end_row = i + rows, first_column = j;
  }

  void set_row_prefetch(const RowPrefetch&) {}
  void flush_epilogue() { flush_epilogue(ROWS); }

 private:
  static constexpr long COLUMNS = AMX_NR_VECTORS * LANES;
  static_assert(AMX_NR_VECTORS == 2);

  // Applies the epilogue to up to `rows` more rows of the previous tile.
  void flush_epilogue(long rows) {
    const long stop = std::min(end_row, next_row + rows);
    if (next_row == stop) return;
    const Mask left_mask = tail_mask(pending.columns - first_column),
               right_mask = tail_mask(std::max(0L, pending.columns - first_column - LANES));
    const VecF32 left_bias = pending.bias(first_column, left_mask),
                 right_bias = pending.bias(first_column + LANES, right_mask);
    const bool uses_streaming_stores = pending.uses_streaming_stores && pending.columns - first_column >= COLUMNS;
    for (; next_row < stop; ++next_row, pending_sums += COLUMNS) {
      const VecF32 left_sum = load(pending_sums) + left_bias, right_sum = load(pending_sums + LANES) + right_bias;
      if (!uses_streaming_stores) {
        store_with_epilogue<typename P::Input>(pending, left_sum, next_row, first_column, left_mask);
        if (right_mask)
          store_with_epilogue<typename P::Input>(pending, right_sum, next_row, first_column + LANES, right_mask);
        continue;
      }
      const VecF32 left_result =
          apply_epilogue<typename P::Input>(pending, left_sum, next_row, first_column, left_mask);
      const VecF32 right_result =
          apply_epilogue<typename P::Input>(pending, right_sum, next_row, first_column + LANES, right_mask);
      const long offset = next_row * pending.stride + first_column;
      if (pending.c_is_bfloat16) {
        stream_store(static_cast<uint16_t*>(pending.c) + offset, to_bf16_pairs(left_result, right_result));
      } else {
        stream_store(static_cast<float*>(pending.c) + offset, bitcast_i32(left_result));
        stream_store(static_cast<float*>(pending.c) + offset + LANES, bitcast_i32(right_result));
      }
    }
  }

  AmxTiles tiles;
  alignas(64) float buffers[2][ROWS * COLUMNS];
  bool is_second_buffer = false;
  // Output of the previous tile. The accumulators of its rows `next_row` to `end_row` start at `pending_sums`.
  TileOutput pending;
  const float* pending_sums;
  long next_row = 0, end_row = 0, first_column;
};

}  // namespace
}  // namespace transformer
