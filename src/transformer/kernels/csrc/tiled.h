// Products of packed weights by AMX.
#pragma once
#include "activations.h"
#include "packed.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace transformer {
namespace {

constexpr long MANY = 96;         // rows from which on some of them stay in the L1 cache while several panels pass
constexpr long HELD = 1 << 20;    // bytes of panels that stay in the L2 cache while rows pass

// The epilogue's operands for the columns of a panel, loaded once. Computes the same as `finish` in packed.h.
template <typename Sum>
struct OfColumns {
  VecF32 bias[VECTORS];

  OfColumns(const PackedMatrix& w, long first) {
    for (int v = 0; v < VECTORS; ++v)
      bias[v] = w.bias ? load(w.bias + first + v * LANES, tail_mask(std::max(0L, w.columns - first - v * LANES))) : broadcast(0.0f);
  }
  VecF32 finish(VecF32 sum, int v, float) const { return sum + bias[v]; }
};

template <>
struct OfColumns<int32_t> : OfColumns<float> {
  VecF32 scales[VECTORS];
  VecI32 offsets[VECTORS];

  OfColumns(const PackedMatrix& w, long first) : OfColumns<float>(w, first) {
    for (int v = 0; v < VECTORS; ++v) {
      scales[v] = load(w.scales + first + v * LANES);
      offsets[v] = HAS_ZERO_POINT_128 ? load_i32(w.offsets + first + v * LANES) : broadcast_i32(0);
    }
  }
  VecF32 finish(VecI32 sum, int v, float unit) const {
    return fmadd(convert_to_f32(sub_i32(sum, offsets[v])), scales[v] * broadcast(unit), bias[v]);
  }
};

VecF32 same(VecF32 x) { return x; }

// Stores two vectors contiguously.
void store_both(uint16_t* y, VecF32 first, VecF32 second) { store_i32(y, to_bf16_pairs(first, second)); }
void store_both(float* y, VecF32 first, VecF32 second) {
  store(y, first);
  store(y + LANES, second);
}

// A range of the inputs. Its products are added to those of the ranges before it.
struct Inputs {
  long first, count;
};

// Panels of a float32 weight, split into three bfloat16 for AMX.
class Apart {
 public:
  Apart(const PackedMatrix& w, Inputs inputs)
      : w_(w), inputs_(inputs), units_(ceil_div(inputs.count, 2 * TILE_K_GROUPS) * TILE_K_GROUPS) {}

  long bytes() const { return 3 * 4 * PANEL * units_; }
  bool two_stay() const { return 2 * bytes() <= HELD; }  // two panels fit in the L2 cache
  const char* at(long panel) const { return now_ + (panel - first_) * bytes(); }

  // Splits the panels from `panel` up to `end`.
  void take(long panel, long end) {
    char* room = scratch<char, ROOM>((end - panel) * bytes());
    for (now_ = room, first_ = panel; panel < end; ++panel, room += bytes()) begin(panel, room), go_on(end_);
  }

  // Completes one panel and begins the next, if that is before `end`; `go_on` continues it.
  void take_ahead(long panel, long end) {
    char* room = scratch<char, ROOM>(2 * bytes());
    if (panel_ != panel) begin(panel, room);
    go_on(end_);
    now_ = to_, first_ = panel;
    if (panel + 1 < end) begin(panel + 1, now_ == room ? room + bytes() : room);
  }

  // Splits up to `count` more blocks of sixteen columns and units.
  void go_on(long count) {
    for (const long stop = std::min(end_, done_ + count); done_ < stop; ++done_)
      pack_b_tile_bf16x3(from_, PANEL, false, {PANEL, PANEL, inputs_.count, units_, 0, units_}, to_, done_ % VECTORS * LANES,
                    done_ / VECTORS * TILE_K_GROUPS);
  }

 private:
  static constexpr int ROOM = 14;

  void begin(long panel, char* to) {
    from_ = reinterpret_cast<const float*>(w_.weight) + (panel * w_.inner + inputs_.first) * PANEL;
    panel_ = panel, to_ = to, done_ = 0, end_ = units_ / TILE_K_GROUPS * VECTORS;
  }

  const PackedMatrix& w_;
  const Inputs inputs_;
  const long units_;
  const char* now_ = nullptr;  // split panels, from `first_` on
  const float* from_ = nullptr;
  char* to_ = nullptr;
  long first_ = 0, panel_ = -1, done_ = 0, end_ = 0;
};

// Stands for weights that are multiplied without splitting.
struct AsItIs {
  AsItIs(const PackedMatrix&, Inputs) {}
};

// Products of one thread by AMX, written as Y. Vector instructions finish a block of sums (up to 32 rows of a panel)
// while AMX computes the next one.
template <typename P, typename Y = float>
class Tiled {
 public:
  static constexpr bool IS_SPLIT = P::TILE_TYPE == TileType::bf16x3;
  static constexpr long TERMS = IS_SPLIT ? 3 : 1;

  Tiled(const PackedMatrix& w, Inputs inputs)
      : w_(w), groups_(ceil_div(w.inner, P::GROUP)), steps_(steps_of(inputs.count)), is_added_(inputs.first), apart_(w, inputs) {}

  // Number of steps along the inner axis. A step is one product of tiles, or six if numbers are split.
  static long steps_of(long inner) { return ceil_div(inner, IS_SPLIT ? 2 * TILE_K_GROUPS : P::GROUP * TILE_K_GROUPS); }

  // Multiplies all rows by one panel. If the sums are ranked, `y` is not written, and `ranking` is needed until
  // `finish`. The next panel, if it is before `end`, is prefetched in equal parts, one with each step.
  void multiply(const typename P::Input* inputs, long padded, const float* units, long panel, long end, long rows,
                Y* y, const PartRanking* ranking) {
    const long parts = std::max(1L, ceil_div(rows, AMX_MR) * STEPS_ACROSS * steps_);
    const long lines = panel + 1 < end ? ceil_div(groups_ * PANEL * 4 / 64, parts) : 0;
    Prefetcher prefetcher{w_.weight + (panel + 1) * groups_ * PANEL * 4, lines};
    if constexpr (IS_SPLIT) {
      apart_.two_stay() ? apart_.take_ahead(panel, end) : apart_.take(panel, panel + 1);
      sixteens_ = apart_.two_stay() ? ceil_div(VECTORS, STEPS_ACROSS * ceil_div(rows, AMX_MR)) : 0;
    }
    for (long i = 0; i < rows; i += AMX_MR)
      multiply(inputs + i * padded, padded, {units ? units + i : nullptr, y ? y + i * w_.columns : nullptr, ranking, panel * PANEL, i, 0,
                                             std::min(AMX_MR, rows - i)}, prefetcher, {0, steps_, nullptr});
  }

  // Multiplies all rows by several panels. As many panels as fit in the L2 cache stay there while the rows pass, and
  // the rows being multiplied stay in the L1 cache. Long rows are cut into parts, and each part is multiplied by all
  // these panels before the next one.
  void multiply(const typename P::Input* inputs, long padded, const float* units, long panel, long end, long rows, Y* y) {
    const long at_once = std::max(1L, HELD / std::max(1L, steps_ * TERMS * TILE_K_GROUPS * PANEL * 4));
    const long parts = IS_SPLIT ? 1 : std::max(1L, ceil_div(steps_, MOST_STEPS)), depth = ceil_div(steps_, parts);
    Number* waiting = scratch<Number, WAITING>(parts > 1 ? std::min(at_once, end - panel) * AMX_MR * PANEL : 0);
    Prefetcher no_prefetch{};
    for (; panel < end; panel += at_once) {
      if constexpr (IS_SPLIT) apart_.take(panel, std::min(end, panel + at_once));
      for (long i = 0; i < rows; i += AMX_MR)
        for (long part = 0; part < parts; ++part)
          for (long own = panel; own < std::min(end, panel + at_once); ++own)
            multiply(inputs + i * padded, padded,
                     {units ? units + i : nullptr, y + i * w_.columns, nullptr, own * PANEL, i, 0, std::min(AMX_MR, rows - i)},
                     no_prefetch, {part * depth, std::min(steps_, (part + 1) * depth), waiting + (own - panel) * AMX_MR * PANEL});
    }
  }

  void finish() { finish(AMX_MR); }

 private:
  using Number = typename P::Number;
  static constexpr bool IS_ROUNDED = std::is_same_v<Y, uint16_t>;
  static constexpr long MOST_STEPS = 16;  // steps for which the rows stay in the L1 cache
  static constexpr int WAITING = 15;
  static constexpr long AT_LEAST = 8;  // minimum number of rows to finish at a time if the epilogue is cheap
  static constexpr long STEPS_ACROSS = VECTORS / AMX_NR_VECTORS;
  struct Block {
    const float* units;
    Y* y;
    const PartRanking* ranking;
    long first, row;  // first column and first row
    long next, rows;  // number of rows; those before `next` are finished
  };

  // A range of steps along the inner axis, and the buffer for its partial sums.
  struct Steps {
    long first, end;
    Number* waiting;
  };

  void multiply(const typename P::Input* x, long stride, const Block& block, Prefetcher& prefetcher, const Steps& steps) {
    const long vectors = ceil_div(std::min(PANEL, w_.columns - block.first), LANES);
    const long in_turn = ceil_div(AMX_MR, std::max(1L, steps_) * ceil_div(vectors, AMX_NR_VECTORS));
    const long at_once = w_.activation > 1 ? in_turn : std::max(AT_LEAST, in_turn);
    const bool is_last = steps.end == steps_;
    const long first = steps.first * TERMS * TILE_K_GROUPS;
    long whole = steps.end * TERMS * TILE_K_GROUPS, left = 0;
    const char* weight;
    if constexpr (IS_SPLIT) {
      weight = apart_.at(block.first / PANEL);
    } else {
      weight = w_.weight + block.first * groups_ * 4;
      if (is_last) whole = groups_ / TILE_K_GROUPS * TILE_K_GROUPS, left = groups_ - whole;
      if (left) {  // padded with zeros in a copy, because the memory beyond belongs to the next panel or to nothing
        std::memcpy(last_, weight + whole * PANEL * 4, left * PANEL * 4);
        std::memset(last_ + left * PANEL * 4, 0, (TILE_K_GROUPS - left) * PANEL * 4);
      }
    }
    Number* sums = is_last ? sums_[is_second_ = !is_second_] : steps.waiting;
    for (long v = 0; v < vectors; v += AMX_NR_VECTORS)
      tiles_.multiply<P::TILE_TYPE>({reinterpret_cast<const char*>(x) + 4 * first, weight + first * 4 * PANEL + v * 64,
                                   left ? last_ + v * 64 : nullptr, stride * static_cast<long>(sizeof(*x)), 4 * PANEL, whole - first,
                                   IS_SPLIT, steps.first ? steps.waiting + v * LANES : nullptr},
                                  block.rows, vectors - v, sums + v * LANES, 4 * PANEL, [&] {
                                    prefetcher.step();
                                    finish(at_once);
                                    if constexpr (IS_SPLIT) apart_.go_on(sixteens_);
                                  });
    if (!is_last) return;
    finish();
    of_ = block, from_ = sums;
  }

  // Finishes up to `rows` more rows of the previous block.
  void finish(long rows) {
    const long end = std::min(of_.rows, of_.next + rows);
    if (of_.next == end) return;
    switch (of_.ranking ? 0 : w_.activation) {
      case 0: return finish<same>(end);
      case 1: return finish<relu>(end);
      case 2: return finish<IS_ROUNDED ? approx_silu : silu>(end);
      case 3: return finish<IS_ROUNDED ? approx_gelu : gelu>(end);
      default: return finish<IS_ROUNDED ? approx_gelu_tanh : gelu_tanh>(end);
    }
  }

  template <VecF32 function(VecF32)>
  void finish(long end) {
    of_.ranking || w_.columns - of_.first < PANEL ? finish<function, false>(end) : finish<function, true>(end);
  }

  // Not inlined and kept short, so that its instructions find room in the processor beside those that wait for AMX.
  template <VecF32 function(VecF32), bool is_full_panel>
  __attribute__((noinline)) void finish(long end) {
    const long columns = w_.columns, first = of_.first, width = is_full_panel ? PANEL : std::min(PANEL, columns - first);
    const OfColumns<Number> own(w_, first);
    const Number* from = std::exchange(from_, from_ + (end - of_.next) * PANEL);
    for (long r = std::exchange(of_.next, end); r < end; ++r, from += PANEL) {
      alignas(64) float aside[PANEL];
      Y* y = of_.ranking ? nullptr : of_.y + r * columns + first;
      const auto finished = [&](int v) {
        const VecF32 sum = own.finish(load_sums(from + v * LANES), v, IS_SPLIT ? 0.0f : of_.units[r]);
        if constexpr (IS_SPLIT)
          if (is_added_) return function(sum + load(y + v * LANES, tail_mask(std::max(0L, width - v * LANES))));
        return function(sum);
      };
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v += is_full_panel ? 2 : 1) {
        if constexpr (is_full_panel) {
          store_both(y + v * LANES, finished(v), finished(v + 1));
        } else {
          const Mask m = tail_mask(std::max(0L, width - v * LANES));
          y ? store(y + v * LANES, m, finished(v)) : store(aside + v * LANES, m, finished(v));
        }
      }
      if (of_.ranking) of_.ranking->add(aside, of_.row + r, first, width);
    }
  }

  const PackedMatrix& w_;
  const long groups_, steps_;
  const bool is_added_;  // to the previous contents of `y`
  long sixteens_ = 0;    // blocks of sixteen columns and units of the next panel to split with each step
  std::conditional_t<IS_SPLIT, Apart, AsItIs> apart_;
  AmxTiles tiles_;
  alignas(64) Number sums_[2][AMX_MR * PANEL];
  alignas(64) char last_[TILE_K_GROUPS * PANEL * 4];
  bool is_second_ = false;
  Block of_{};  // the previous block; its unfinished sums start at `from_`
  const Number* from_ = nullptr;
};

}  // namespace
}  // namespace transformer
