// Linear layers with packed weights by AMX.
#pragma once
#include "activations.h"
#include "packed_weights.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace transformer {
namespace {

constexpr long MIN_ROWS_FOR_ROW_BLOCKS = 96;  // from which rows stay in the L1 cache while several panels are read
constexpr long L2_PANEL_BYTES = 1 << 20;      // of panels that stay in the L2 cache while rows are read

// Per-column operands of the epilogue (bias, scales, zero points), kept in registers for all rows of a block. Computes
// the same as `apply_scales_and_bias` in packed_weights.h.
template <typename Sum>
struct ColumnEpilogue {
  VecF32 bias[VECTORS];

  ColumnEpilogue(const PackedMatrix& w, long first) {
    for (int v = 0; v < VECTORS; ++v)
      bias[v] = w.bias ? load(w.bias + first + v * LANES, tail_mask(std::max(0L, w.columns - first - v * LANES)))
                       : broadcast(0.0f);
  }
  VecF32 apply(VecF32 sum, int v, float) const { return sum + bias[v]; }
};

template <>
struct ColumnEpilogue<int32_t> : ColumnEpilogue<float> {
  VecF32 scales[VECTORS];
  VecI32 offsets[VECTORS];

  ColumnEpilogue(const PackedMatrix& w, long first) : ColumnEpilogue<float>(w, first) {
    for (int v = 0; v < VECTORS; ++v) {
      scales[v] = load(w.scales + first + v * LANES);
      offsets[v] = HAS_ZERO_POINT_128 ? load_i32(w.offsets + first + v * LANES) : broadcast_i32(0);
    }
  }
  VecF32 apply(VecI32 sum, int v, float row_scale) const {
    return fmadd(convert_to_f32(sub_i32(sum, offsets[v])), scales[v] * broadcast(row_scale), bias[v]);
  }
};

VecF32 identity(VecF32 x) { return x; }

// Stores two vectors contiguously.
void store_pair(uint16_t* y, VecF32 first, VecF32 second) { store_i32(y, to_bf16_pairs(first, second)); }
void store_pair(float* y, VecF32 first, VecF32 second) {
  store(y, first);
  store(y + LANES, second);
}

// A block of the K dimension. Its products are accumulated onto those of the blocks before it.
struct KRange {
  long first, count;
};

// Panels of a float32 weight, split into three bfloat16 terms for AMX.
class SplitPanels {
 public:
  SplitPanels(const PackedMatrix& w, KRange k_range)
      : w_(w), k_range_(k_range), k_groups_(ceil_div(k_range.count, 2 * TILE_K_GROUPS) * TILE_K_GROUPS) {}

  long bytes() const { return 3 * 4 * PANEL * k_groups_; }
  bool two_fit_in_l2() const { return 2 * bytes() <= L2_PANEL_BYTES; }
  const char* panel_address(long panel) const { return split_ + (panel - first_panel_) * bytes(); }

  // Splits the panels from `panel` up to `end`.
  void split(long panel, long end) {
    char* buffer = scratch<char, SCRATCH>((end - panel) * bytes());
    for (split_ = buffer, first_panel_ = panel; panel < end; ++panel, buffer += bytes())
      begin_panel(panel, buffer), advance(n_blocks_);
  }

  // Double buffering: completes one panel and begins the next, if that is before `end`; `advance` continues it.
  void split_ahead(long panel, long end) {
    char* buffer = scratch<char, SCRATCH>(2 * bytes());
    if (panel_in_progress_ != panel) begin_panel(panel, buffer);
    advance(n_blocks_);
    split_ = dst_, first_panel_ = panel;
    if (panel + 1 < end) begin_panel(panel + 1, split_ == buffer ? buffer + bytes() : buffer);
  }

  // Splits up to `count` more blocks of sixteen columns and k-groups.
  void advance(long count) {
    for (const long stop = std::min(n_blocks_, done_blocks_ + count); done_blocks_ < stop; ++done_blocks_)
      pack_b_tile_bf16x3(src_, PANEL, false, {PANEL, PANEL, k_range_.count, k_groups_, 0, k_groups_}, dst_,
                         done_blocks_ % VECTORS * LANES, done_blocks_ / VECTORS * TILE_K_GROUPS);
  }

 private:
  static constexpr int SCRATCH = 14;

  void begin_panel(long panel, char* dst) {
    src_ = reinterpret_cast<const float*>(w_.weight) + (panel * w_.inner + k_range_.first) * PANEL;
    panel_in_progress_ = panel, dst_ = dst, done_blocks_ = 0, n_blocks_ = k_groups_ / TILE_K_GROUPS * VECTORS;
  }

  const PackedMatrix& w_;
  const KRange k_range_;
  const long k_groups_;
  const char* split_ = nullptr;  // split panels, from `first_panel_` on
  const float* src_ = nullptr;
  char* dst_ = nullptr;
  long first_panel_ = 0, panel_in_progress_ = -1, done_blocks_ = 0, n_blocks_ = 0;
};

// Placeholder for weights that are multiplied without splitting.
struct UnsplitPanels {
  UnsplitPanels(const PackedMatrix&, KRange) {}
};

// The panels of one thread, with results of type Y. The epilogue of a block of accumulators (up to 32 rows of a panel)
// runs on the vector units while AMX computes the next block (software pipelining).
template <typename P, typename Y = float>
class AmxPanelKernel {
 public:
  static constexpr bool IS_SPLIT = P::TILE_TYPE == TileType::bf16x3;
  static constexpr long TERMS = IS_SPLIT ? 3 : 1;

  AmxPanelKernel(const PackedMatrix& w, KRange k_range)
      : w_(w),
        n_k_groups_(ceil_div(w.inner, P::K_PER_GROUP)),
        n_steps_(n_k_steps(k_range.count)),
        accumulates_(k_range.first),
        split_panels_(w, k_range) {}

  // Number of steps of the K loop. A step is one product of tiles, or six for bf16x3.
  static long n_k_steps(long inner) {
    return ceil_div(inner, IS_SPLIT ? 2 * TILE_K_GROUPS : P::K_PER_GROUP * TILE_K_GROUPS);
  }

  // Multiplies all rows by one panel. With `topk`, which must outlive `flush_epilogue`, the results are ranked instead
  // of being written to `y`. The next panel, if it is before `end`, is prefetched evenly over the steps.
  void multiply(const typename P::Input* inputs, long padded, const float* row_scales, long panel, long end, long rows,
                Y* y, const ChunkTopK* topk) {
    const long prefetch_steps = std::max(1L, ceil_div(rows, AMX_MR) * TILES_PER_PANEL * n_steps_);
    const long lines = panel + 1 < end ? ceil_div(n_k_groups_ * PANEL * 4 / 64, prefetch_steps) : 0;
    Prefetcher prefetcher{w_.weight + (panel + 1) * n_k_groups_ * PANEL * 4, lines};
    if constexpr (IS_SPLIT) {
      split_panels_.two_fit_in_l2() ? split_panels_.split_ahead(panel, end) : split_panels_.split(panel, panel + 1);
      split_blocks_per_step_ =
          split_panels_.two_fit_in_l2() ? ceil_div(VECTORS, TILES_PER_PANEL * ceil_div(rows, AMX_MR)) : 0;
    }
    for (long i = 0; i < rows; i += AMX_MR)
      multiply(inputs + i * padded, padded,
               {row_scales ? row_scales + i : nullptr, y ? y + i * w_.columns : nullptr, topk, panel * PANEL, i, 0,
                std::min(AMX_MR, rows - i)},
               prefetcher, {0, n_steps_, nullptr});
  }

  // Multiplies all rows by several panels. As many panels as fit stay in the L2 cache while all rows are read, and the
  // current rows stay in the L1 cache. Long rows are blocked along K, and each block is multiplied by all these panels
  // before the next one.
  void multiply(const typename P::Input* inputs, long padded, const float* row_scales, long panel, long end, long rows,
                Y* y) {
    const long panels_at_once =
        std::max(1L, L2_PANEL_BYTES / std::max(1L, n_steps_ * TERMS * TILE_K_GROUPS * PANEL * 4));
    const long n_k_blocks = IS_SPLIT ? 1 : std::max(1L, ceil_div(n_steps_, MAX_RESIDENT_STEPS)),
               k_steps_per_block = ceil_div(n_steps_, n_k_blocks);
    Accumulator* partial_sums =
        scratch<Accumulator, PARTIAL_SUMS>(n_k_blocks > 1 ? std::min(panels_at_once, end - panel) * AMX_MR * PANEL : 0);
    Prefetcher no_prefetch{};
    for (; panel < end; panel += panels_at_once) {
      if constexpr (IS_SPLIT) split_panels_.split(panel, std::min(end, panel + panels_at_once));
      for (long i = 0; i < rows; i += AMX_MR)
        for (long k_block = 0; k_block < n_k_blocks; ++k_block)
          for (long column_panel = panel; column_panel < std::min(end, panel + panels_at_once); ++column_panel)
            multiply(inputs + i * padded, padded,
                     {row_scales ? row_scales + i : nullptr, y + i * w_.columns, nullptr, column_panel * PANEL, i, 0,
                      std::min(AMX_MR, rows - i)},
                     no_prefetch,
                     {k_block * k_steps_per_block, std::min(n_steps_, (k_block + 1) * k_steps_per_block),
                      partial_sums + (column_panel - panel) * AMX_MR * PANEL});
    }
  }

  void flush_epilogue() { flush_epilogue(AMX_MR); }

 private:
  using Accumulator = typename P::Accumulator;
  static constexpr bool IS_BF16_OUTPUT = std::is_same_v<Y, uint16_t>;
  static constexpr long MAX_RESIDENT_STEPS = 16;  // of the K loop, for which the rows stay in the L1 cache
  static constexpr int PARTIAL_SUMS = 15;
  static constexpr long MIN_EPILOGUE_ROWS = 8;  // per step, if the epilogue is cheap
  static constexpr long TILES_PER_PANEL = VECTORS / AMX_NR_VECTORS;
  struct Block {
    const float* row_scales;
    Y* y;
    const ChunkTopK* topk;
    long first, row;      // first column and first row
    long next_row, rows;  // first row whose epilogue is pending, and number of rows
  };

  // A range of steps of the K loop, and the buffer for its partial sums.
  struct StepRange {
    long first, end;
    Accumulator* partial_sums;
  };

  void multiply(const typename P::Input* x, long stride, const Block& block, Prefetcher& prefetcher,
                const StepRange& steps) {
    const long vectors = ceil_div(std::min(PANEL, w_.columns - block.first), LANES);
    const long min_rows_per_step = ceil_div(AMX_MR, std::max(1L, n_steps_) * ceil_div(vectors, AMX_NR_VECTORS));
    const long rows_per_step = w_.activation > 1 ? min_rows_per_step : std::max(MIN_EPILOGUE_ROWS, min_rows_per_step);
    const bool is_last_k_block = steps.end == n_steps_;
    const long first = steps.first * TERMS * TILE_K_GROUPS;
    long full_groups = steps.end * TERMS * TILE_K_GROUPS, tail_groups = 0;
    const char* weight;
    if constexpr (IS_SPLIT) {
      weight = split_panels_.panel_address(block.first / PANEL);
    } else {
      weight = w_.weight + block.first * n_k_groups_ * 4;
      if (is_last_k_block)
        full_groups = n_k_groups_ / TILE_K_GROUPS * TILE_K_GROUPS, tail_groups = n_k_groups_ - full_groups;
      if (tail_groups) {  // padded with zeros in a copy: the memory after it is the next panel or unmapped
        std::memcpy(tail_, weight + full_groups * PANEL * 4, tail_groups * PANEL * 4);
        std::memset(tail_ + tail_groups * PANEL * 4, 0, (TILE_K_GROUPS - tail_groups) * PANEL * 4);
      }
    }
    Accumulator* sums = is_last_k_block ? sums_[is_second_buffer_ = !is_second_buffer_] : steps.partial_sums;
    for (long v = 0; v < vectors; v += AMX_NR_VECTORS)
      tiles_.multiply<P::TILE_TYPE>(
          {reinterpret_cast<const char*>(x) + 4 * first, weight + first * 4 * PANEL + v * 64,
           tail_groups ? tail_ + v * 64 : nullptr, stride * static_cast<long>(sizeof(*x)), 4 * PANEL,
           full_groups - first, IS_SPLIT, steps.first ? steps.partial_sums + v * LANES : nullptr},
          block.rows, vectors - v, sums + v * LANES, 4 * PANEL, [&] {
            prefetcher.step();
            flush_epilogue(rows_per_step);
            if constexpr (IS_SPLIT) split_panels_.advance(split_blocks_per_step_);
          });
    if (!is_last_k_block) return;
    flush_epilogue();
    pending_ = block, pending_sums_ = sums;
  }

  // Applies the epilogue to up to `rows` more rows of the previous block.
  void flush_epilogue(long rows) {
    const long end = std::min(pending_.rows, pending_.next_row + rows);
    if (pending_.next_row == end) return;
    switch (pending_.topk ? 0 : w_.activation) {
      case 0: return apply_epilogue<identity>(end);
      case 1: return apply_epilogue<relu>(end);
      case 2: return apply_epilogue<IS_BF16_OUTPUT ? approx_silu : silu>(end);
      case 3: return apply_epilogue<IS_BF16_OUTPUT ? approx_gelu : gelu>(end);
      default: return apply_epilogue<IS_BF16_OUTPUT ? approx_gelu_tanh : gelu_tanh>(end);
    }
  }

  template <VecF32 activation(VecF32)>
  void apply_epilogue(long end) {
    pending_.topk || w_.columns - pending_.first < PANEL ? apply_epilogue<activation, false>(end)
                                                         : apply_epilogue<activation, true>(end);
  }

  // Not inlined and short, so that its instructions fit in the reorder buffer beside those that wait for AMX.
  template <VecF32 activation(VecF32), bool is_full_panel>
  __attribute__((noinline)) void apply_epilogue(long end) {
    const long columns = w_.columns, first = pending_.first,
               width = is_full_panel ? PANEL : std::min(PANEL, columns - first);
    const ColumnEpilogue<Accumulator> epilogue(w_, first);
    const Accumulator* sums = std::exchange(pending_sums_, pending_sums_ + (end - pending_.next_row) * PANEL);
    for (long r = std::exchange(pending_.next_row, end); r < end; ++r, sums += PANEL) {
      alignas(64) float row_results[PANEL];
      Y* y = pending_.topk ? nullptr : pending_.y + r * columns + first;
      const auto result = [&](int v) {
        const VecF32 sum =
            epilogue.apply(load_accumulators(sums + v * LANES), v, IS_SPLIT ? 0.0f : pending_.row_scales[r]);
        if constexpr (IS_SPLIT)
          if (accumulates_) return activation(sum + load(y + v * LANES, tail_mask(std::max(0L, width - v * LANES))));
        return activation(sum);
      };
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v += is_full_panel ? 2 : 1) {
        if constexpr (is_full_panel) {
          store_pair(y + v * LANES, result(v), result(v + 1));
        } else {
          const Mask m = tail_mask(std::max(0L, width - v * LANES));
          y ? store(y + v * LANES, m, result(v)) : store(row_results + v * LANES, m, result(v));
        }
      }
      if (pending_.topk) pending_.topk->add(row_results, pending_.row + r, first, width);
    }
  }

  const PackedMatrix& w_;
  const long n_k_groups_, n_steps_;
  const bool accumulates_;          // onto the previous contents of `y`
  long split_blocks_per_step_ = 0;  // blocks of the next panel, see `SplitPanels::advance`
  std::conditional_t<IS_SPLIT, SplitPanels, UnsplitPanels> split_panels_;
  AmxTiles tiles_;
  alignas(64) Accumulator sums_[2][AMX_MR * PANEL];
  alignas(64) char tail_[TILE_K_GROUPS * PANEL * 4];
  bool is_second_buffer_ = false;
  Block pending_{};  // the previous block; accumulators without epilogue start at `pending_sums_`
  const Accumulator* pending_sums_ = nullptr;
};

}  // namespace
}  // namespace transformer
