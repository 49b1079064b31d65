// y = activation(x W^T + b) for a weight that was packed beforehand, in float32, bfloat16 or int8.
//
// A panel is 64 columns of y: four vectors of 16. Within a panel, or a quarter of one where registers are few, the weight
// lies in the order in which it is read: for each group of inputs (1 float, 2 bfloat16 or 4 int8, which one instruction
// multiplies and adds), the group's weights of all columns. Up to six rows of x (32 by AMX) are multiplied at a time with
// as many vectors of a panel as their sums have registers. Each sum is formed in the same order whatever other rows there
// are, so that the result of a row does not depend on its batch. Only float32 by AMX, which takes numbers apart and is for
// many rows alone, has sums that differ from those of vectors, in the last of their bits.
#include "activations.h"
#include "kernels.h"
#include "ranking.h"
#include "three.h"
#include "tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <omp.h>

namespace transformer {
namespace {

constexpr long PANEL = 64;
static_assert(PANEL == TILE_COLUMNS);
constexpr int VECTORS = PANEL / LANES;
constexpr long MANY = 96;  // rows, of which some stay in the first cache while several panels pass by
constexpr long FEWEST_FOR_TILES = 7;  // rows of int8; bfloat16 always takes tiles, which sum in another order than vectors
constexpr long FEWEST_FOR_THREE = 48;  // rows of float32, for which weights are taken apart
constexpr long HELD = 1 << 20;         // bytes of panels that stay in the second cache while rows pass by
constexpr long AT_ONCE = 1024;         // rows of float32 that are taken apart before they are multiplied
constexpr long MOST_INPUTS = 512;      // of them, that are summed before others are taken apart

struct Float32 {
  using Input = float;
  using Sum = Floats;
  static constexpr long GROUP = 1, TILED_FROM = FEWEST_FOR_THREE;  // or more
  static constexpr Numbers NUMBERS = Numbers::three_bfloat16;
  using Number = float;
  static constexpr int REGISTERS = REGISTERS_OF_A_TILE;
  static Sum multiply(Sum sum, const float* x, const char* w) {
    return multiply_add(spread(*x), as_floats(load_ints(w)), sum);
  }
};

struct Bfloat16 {
  using Input = uint16_t;
  using Sum = Floats;
  static constexpr long GROUP = 2, TILED_FROM = 1;
  static constexpr Numbers NUMBERS = Numbers::bfloat16;
  using Number = float;
  static constexpr int REGISTERS = REGISTERS_OF_A_MIXED_TILE;
  static Sum multiply(Sum sum, const uint16_t* x, const char* w) { return add_pair_products(sum, x, load_ints(w)); }
};

struct Int8 {
  using Input = Byte;
  using Sum = Ints;
  static constexpr long GROUP = 4, TILED_FROM = FEWEST_FOR_TILES;
  static constexpr Numbers NUMBERS = Numbers::int8;
  using Number = int32_t;
  static constexpr int REGISTERS = REGISTERS_OF_A_MIXED_TILE;
  static Sum multiply(Sum sum, const Byte* x, const char* w) { return add_four_products(sum, x, w); }
};

// What one instruction takes of x: as it is, rounded, or as bytes around 128 in units of the largest / 127.
const float* prepare(const float* x, long, long, float*, float*, Float32) { return x; }

const uint16_t* prepare(const float* x, long inner, long padded, uint16_t* room, float*, Bfloat16) {
  for (long k = 0; k < padded; k += LANES) {
    const Floats v = load(x + k, lanes(std::max(0L, inner - k)));
    store(room + k, lanes(padded - k), v);
  }
  return room;
}

const Byte* prepare(const float* x, long inner, long padded, Byte* room, float* unit, Int8) {
  Floats most = spread(0.0f);
  Mask nan = 0;  // a maximum forgets it
  for (long k = 0; k < inner; k += LANES) {
    const Floats v = load(x + k, lanes(inner - k));
    most = larger(most, absolute(v));
    nan |= bits_of(is_nan(v));
  }
  const float largest = largest_of(most);
  *unit = nan || std::isinf(largest) ? std::nanf("") : largest / 127.0f;
  const float per_unit = 127.0f / largest;  // infinite where all are zeros or next to it
  const Floats factor = spread(std::isfinite(per_unit) ? per_unit : 0.0f);
  for (long k = 0; k < padded; k += LANES) {
    const Floats v = load(x + k, lanes(std::max(0L, inner - k))) * factor;
    store_bytes(room + k, lanes(padded - k), to_ints(v));
  }
  return room;
}

Floats load_sums(const float* x) { return load(x); }
Ints load_sums(const int32_t* x) { return load_ints(x); }

// A vector of sums in units of its row and columns, plus bias.
Floats finish(Floats sum, const Matrix& w, long column, float) {
  return w.bias ? sum + load(w.bias + column) : sum;
}

Floats finish(Ints sum, const Matrix& w, long column, float unit) {
  const Floats whole = to_floats(BYTES_ARE_AROUND_128 ? subtract_ints(sum, load_ints(w.offsets + column)) : sum);
  const Floats scale = load(w.scales + column) * spread(unit);
  return w.bias ? multiply_add(whole, scale, load(w.bias + column)) : whole * scale;
}

template <Floats function(Floats)>
void apply(const float* sums, int rows, long width, float* y, long stride) {
  for (; rows; --rows, sums += PANEL, y += stride)
    for (long column = 0; column < width; column += LANES)
      store(y + column, lanes(width - column), function(load(sums + column)));
}

// Of R rows of a panel: where the sums fill the registers, there is no room to compute, so that they lie in memory.
void activate(const float* sums, int rows, long width, float* y, long stride, int activation) {
  switch (activation) {
    case 1: return apply<relu>(sums, rows, width, y, stride);
    case 2: return apply<silu>(sums, rows, width, y, stride);
    case 3: return apply<gelu>(sums, rows, width, y, stride);
    case 4: return apply<gelu_by_tanh>(sums, rows, width, y, stride);
  }
}

// From one vector of a panel's columns to the next, in the weights of a group.
constexpr long bytes_apart(long groups) { return STRIP < PANEL ? groups * LANES * 4 : LANES * 4; }

// R rows times V vectors of a panel's columns, from `column` on; sums that something is still done with go `aside`. A line
// for each group is asked for from `ahead` on: what comes from beyond the second cache is slower than its products.
template <typename P, int R, int V>
void multiply(const typename P::Input* x, long stride, const float* units, const Matrix& w, long column, float* y,
              float* aside, const char* ahead) {
  const long groups = blocks(w.inner, P::GROUP), apart = bytes_apart(groups);
  const char* weight = w.weight + column / PANEL * PANEL * groups * 4 + column % PANEL / LANES * apart;
  typename P::Sum sums[R][V] = {};
  for (long g = 0; g < groups; ++g, weight += STRIP * 4) {
    _mm_prefetch(ahead + g * 64, _MM_HINT_T1);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sums[r][v] = P::multiply(sums[r][v], x + r * stride + g * P::GROUP, weight + v * apart);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v, column += LANES) {
    if (column >= w.columns) break;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Floats sum = finish(sums[r][v], w, column, units ? units[r] : 0.0f);
      if (aside)
        store(aside + r * PANEL + v * LANES, sum);
      else
        store(y + r * w.columns + column, lanes(w.columns - column), sum);
    }
  }
}

// R rows times one panel; where the sums are ranked, `y` is not written, and `row` is the first of the rows.
template <typename P, int R>
void multiply(const typename P::Input* x, long stride, const float* units, const Matrix& w, long first, float* y,
              const PartRanking* ranking, long row, const char* ahead) {
  constexpr int V = tile_vectors(R, P::REGISTERS);
  const long width = std::min(PANEL, w.columns - first);
  alignas(64) float aside[R * PANEL];
  float* own = w.activation || ranking ? aside : nullptr;
  for (long v = 0; v * LANES < width; v += V)
    multiply<P, R, V>(x, stride, units, w, first + v * LANES, y, own ? own + v * LANES : nullptr, ahead);
  if (ranking)
    for (int r = 0; r < R; ++r) ranking->add(aside + r * PANEL, row + r, first, width);
  else if (w.activation)
    activate(aside, R, width, y + first, w.columns, w.activation);
}

// What the sums of a panel's columns become, as by `finish`.
template <typename Sum>
struct OfColumns {
  Floats bias[VECTORS];

  OfColumns(const Matrix& w, long first) {
    for (int v = 0; v < VECTORS; ++v)
      bias[v] = w.bias ? load(w.bias + first + v * LANES, lanes(std::max(0L, w.columns - first - v * LANES))) : spread(0.0f);
  }
  Floats finish(Floats sum, int v, float) const { return sum + bias[v]; }
};

template <>
struct OfColumns<int32_t> : OfColumns<float> {
  Floats scales[VECTORS];
  Ints offsets[VECTORS];

  OfColumns(const Matrix& w, long first) : OfColumns<float>(w, first) {
    for (int v = 0; v < VECTORS; ++v) {
      scales[v] = load(w.scales + first + v * LANES);
      offsets[v] = BYTES_ARE_AROUND_128 ? load_ints(w.offsets + first + v * LANES) : spread_int(0);
    }
  }
  Floats finish(Ints sum, int v, float unit) const {
    return multiply_add(to_floats(subtract_ints(sum, offsets[v])), scales[v] * spread(unit), bias[v]);
  }
};

Floats same(Floats x) { return x; }

// Some of the inputs. What they add up to is added to what those before have.
struct Inputs {
  long first, count;
};

// Panels of float32, taken apart for tiles.
class Apart {
 public:
  Apart(const Matrix& w, Inputs inputs)
      : w_(w), inputs_(inputs), units_(blocks(inputs.count, 2 * UNITS_OF_A_TILE) * UNITS_OF_A_TILE) {}

  long bytes() const { return 3 * 4 * PANEL * units_; }
  bool two_stay() const { return 2 * bytes() <= HELD; }  // in the second cache
  const char* at(long panel) const { return now_ + (panel - first_) * bytes(); }

  // Some panels.
  void take(long panel, long end) {
    char* room = scratch<char, ROOM>((end - panel) * bytes());
    for (now_ = room, first_ = panel; panel < end; ++panel, room += bytes()) begin(panel, room), go_on(end_);
  }

  // A panel; `go_on` then goes on with the next.
  void take(long panel) {
    char* room = scratch<char, ROOM>(2 * bytes());
    if (panel_ != panel) begin(panel, room);
    go_on(end_);
    now_ = to_, first_ = panel;
    if (panel + 1 < blocks(w_.columns, PANEL)) begin(panel + 1, now_ == room ? room + bytes() : room);
  }

  // So many sixteens of columns and units.
  void go_on(long count) {
    for (const long stop = std::min(end_, done_ + count); done_ < stop; ++done_)
      lay_out_three(from_, PANEL, false, {PANEL, PANEL, inputs_.count, units_, 0, units_}, to_, done_ % VECTORS * LANES,
                    done_ / VECTORS * UNITS_OF_A_TILE);
  }

 private:
  static constexpr int ROOM = 14;

  void begin(long panel, char* to) {
    from_ = reinterpret_cast<const float*>(w_.weight) + (panel * w_.inner + inputs_.first) * PANEL;
    panel_ = panel, to_ = to, done_ = 0, end_ = units_ / UNITS_OF_A_TILE * VECTORS;
  }

  const Matrix& w_;
  const Inputs inputs_;
  const long units_;
  const char* now_ = nullptr;  // panels from `first_` on
  const float* from_ = nullptr;
  char* to_ = nullptr;
  long first_ = 0, panel_ = -1, done_ = 0, end_ = 0;
};

// What is multiplied as it is.
struct AsItIs {
  AsItIs(const Matrix&, Inputs) {}
};

// Products by tiles of one thread. Vectors finish a block of sums, up to 32 rows of a panel, while the next are multiplied.
template <typename P>
class Tiled {
 public:
  static constexpr bool IS_TAKEN_APART = P::NUMBERS == Numbers::three_bfloat16;
  static constexpr long PARTS = IS_TAKEN_APART ? 3 : 1;

  Tiled(const Matrix& w, Inputs inputs)
      : w_(w), groups_(blocks(w.inner, P::GROUP)), steps_(steps_of(inputs.count)), is_added_(inputs.first), apart_(w, inputs) {}

  // Along the inner axis: instructions that multiply tiles, or six of them.
  static long steps_of(long inner) { return blocks(inner, IS_TAKEN_APART ? 2 * UNITS_OF_A_TILE : P::GROUP * UNITS_OF_A_TILE); }

  // All rows times one panel; where the sums are ranked, `y` is not written, and `ranking` is needed until `finish`. The
  // next panel is asked for in equal parts, one with each step.
  void multiply(const typename P::Input* inputs, long padded, const float* units, long panel, long rows, float* y,
                const PartRanking* ranking) {
    const long parts = std::max(1L, blocks(rows, ROWS_OF_TILES) * STEPS_ACROSS * steps_);
    const long lines = panel + 1 < blocks(w_.columns, PANEL) ? blocks(groups_ * PANEL * 4 / 64, parts) : 0;
    Ahead ahead{w_.weight + (panel + 1) * groups_ * PANEL * 4, lines};
    if constexpr (IS_TAKEN_APART) {
      apart_.two_stay() ? apart_.take(panel) : apart_.take(panel, panel + 1);
      sixteens_ = apart_.two_stay() ? blocks(VECTORS, STEPS_ACROSS * blocks(rows, ROWS_OF_TILES)) : 0;
    }
    for (long i = 0; i < rows; i += ROWS_OF_TILES)
      multiply(inputs + i * padded, padded, {units ? units + i : nullptr, y ? y + i * w_.columns : nullptr, ranking, panel * PANEL, i, 0,
                                             std::min(ROWS_OF_TILES, rows - i)}, ahead);
  }

  // All rows times some panels. As many panels as the second cache holds stay there while rows pass by, of which those that
  // are multiplied stay in the first.
  void multiply(const typename P::Input* inputs, long padded, const float* units, long panel, long end, long rows, float* y) {
    const long at_once = std::max(1L, HELD / std::max(1L, steps_ * PARTS * UNITS_OF_A_TILE * PANEL * 4));
    Ahead nothing{};
    for (; panel < end; panel += at_once) {
      if constexpr (IS_TAKEN_APART) apart_.take(panel, std::min(end, panel + at_once));
      for (long i = 0; i < rows; i += ROWS_OF_TILES)
        for (long own = panel; own < std::min(end, panel + at_once); ++own)
          multiply(inputs + i * padded, padded,
                   {units ? units + i : nullptr, y + i * w_.columns, nullptr, own * PANEL, i, 0, std::min(ROWS_OF_TILES, rows - i)},
                   nothing);
    }
  }

  void finish() { finish(ROWS_OF_TILES); }

 private:
  using Number = typename P::Number;
  static constexpr long STEPS_ACROSS = VECTORS / VECTORS_OF_TILES;
  struct Block {
    const float* units;
    float* y;
    const PartRanking* ranking;
    long first, row;  // column and row
    long next, rows;  // of which those before `next` are finished
  };

  void multiply(const typename P::Input* x, long stride, const Block& block, Ahead& ahead) {
    const long vectors = blocks(std::min(PANEL, w_.columns - block.first), LANES);
    const long at_once = blocks(ROWS_OF_TILES, std::max(1L, steps_) * blocks(vectors, VECTORS_OF_TILES));
    long whole = steps_ * PARTS * UNITS_OF_A_TILE, left = 0;
    const char* weight;
    if constexpr (IS_TAKEN_APART) {
      weight = apart_.at(block.first / PANEL);
    } else {
      whole = groups_ / UNITS_OF_A_TILE * UNITS_OF_A_TILE, left = groups_ - whole;
      weight = w_.weight + block.first * groups_ * 4;
      if (left) {  // beyond them lies the next panel, or nothing
        std::memcpy(last_, weight + whole * PANEL * 4, left * PANEL * 4);
        std::memset(last_ + left * PANEL * 4, 0, (UNITS_OF_A_TILE - left) * PANEL * 4);
      }
    }
    Number* sums = sums_[is_second_ = !is_second_];
    for (long v = 0; v < vectors; v += VECTORS_OF_TILES)
      tiles_.multiply<P::NUMBERS>({reinterpret_cast<const char*>(x), weight + v * 64, left ? last_ + v * 64 : nullptr,
                                   stride * static_cast<long>(sizeof(*x)), 4 * PANEL, whole, IS_TAKEN_APART},
                                  block.rows, vectors - v, sums + v * LANES, 4 * PANEL, [&] {
                                    ahead.ask();
                                    finish(at_once);
                                    if constexpr (IS_TAKEN_APART) apart_.go_on(sixteens_);
                                  });
    finish();
    of_ = block, from_ = sums;
  }

  // Up to `rows` more rows of the block before.
  void finish(long rows) {
    const long end = std::min(of_.rows, of_.next + rows);
    if (of_.next == end) return;
    switch (of_.ranking ? 0 : w_.activation) {
      case 0: return finish<same>(end);
      case 1: return finish<relu>(end);
      case 2: return finish<silu>(end);
      case 3: return finish<gelu>(end);
      default: return finish<gelu_by_tanh>(end);
    }
  }

  // In few instructions: those that wait for tiles are to find place beside them in the processor.
  template <Floats function(Floats)>
  __attribute__((noinline)) void finish(long end) {
    const long columns = w_.columns, first = of_.first, width = std::min(PANEL, columns - first);
    const OfColumns<Number> own(w_, first);
    const Number* from = std::exchange(from_, from_ + (end - of_.next) * PANEL);
    for (long r = std::exchange(of_.next, end); r < end; ++r, from += PANEL) {
      alignas(64) float aside[PANEL];
      float* y = of_.ranking ? aside : of_.y + r * columns + first;
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) {
        const Mask m = lanes(std::max(0L, width - v * LANES));
        Floats sum = own.finish(load_sums(from + v * LANES), v, IS_TAKEN_APART ? 0.0f : of_.units[r]);
        if constexpr (IS_TAKEN_APART)
          if (is_added_) sum = sum + load(y + v * LANES, m);
        store(y + v * LANES, m, function(sum));
      }
      if (of_.ranking) of_.ranking->add(aside, of_.row + r, first, width);
    }
  }

  const Matrix& w_;
  const long groups_, steps_;
  const bool is_added_;  // to what is there
  long sixteens_ = 0;    // of the next panel, with each step
  std::conditional_t<IS_TAKEN_APART, Apart, AsItIs> apart_;
  Tiles tiles_;
  alignas(64) Number sums_[2][ROWS_OF_TILES * PANEL];
  alignas(64) char last_[UNITS_OF_A_TILE * PANEL * 4];
  bool is_second_ = false;
  Block of_{};  // the block before, of which the sums that are left are in `from_`
  const Number* from_ = nullptr;
};

// All rows times one panel.
template <typename P>
void multiply_all(const typename P::Input* inputs, long padded, const float* units, const Matrix& w, long panel, long rows,
                  float* y, const PartRanking* ranking) {
  constexpr long most = std::min(TILE_ROWS, P::REGISTERS / REGISTERS_OF_A_VECTOR);
  const long all = blocks(rows, most), groups = blocks(w.inner, P::GROUP);
  const char* weight = w.weight + panel * PANEL * groups * 4;
  const bool has_next = panel + 1 < blocks(w.columns, PANEL);
  for (long block = 0, i = 0; block < all; ++block) {
    const long n = (rows - i + all - block - 1) / (all - block);  // blocks of like size
    const auto* from = inputs + i * padded;
    const float* unit = units ? units + i : nullptr;
    float* to = y ? y + i * w.columns : nullptr;
    const char* ahead = weight + (has_next && block < VECTORS ? PANEL + block * LANES : 0) * groups * 4;
    switch (n) {
      case 1: multiply<P, 1>(from, padded, unit, w, panel * PANEL, to, ranking, i, ahead); break;
      case 2: multiply<P, 2>(from, padded, unit, w, panel * PANEL, to, ranking, i, ahead); break;
      case 3: multiply<P, 3>(from, padded, unit, w, panel * PANEL, to, ranking, i, ahead); break;
      case 4: multiply<P, 4>(from, padded, unit, w, panel * PANEL, to, ranking, i, ahead); break;
      case 5: multiply<P, std::min(5L, most)>(from, padded, unit, w, panel * PANEL, to, ranking, i, ahead); break;
      default: multiply<P, most>(from, padded, unit, w, panel * PANEL, to, ranking, i, ahead);
    }
    i += n;
  }
}

// The panels of a thread, each by `multiply`; `finish` ends what was begun.
template <typename Multiply, typename End>
void share(const Matrix& w, const Ranking* ranking, const Multiply& multiply, const End& finish) {
  const long panels = blocks(w.columns, PANEL);
  if (!ranking) {
#pragma omp for schedule(static) nowait
    for (long panel = 0; panel < panels; ++panel) multiply(panel, nullptr);
    return finish();
  }
  constexpr long together = PART_COLUMNS / PANEL;
#pragma omp for schedule(static) nowait
  for (long part = 0; part < ranking->parts; ++part) {
    const PartRanking own = ranking->begin(omp_get_thread_num());
    for (long panel = part * together; panel < std::min(panels, (part + 1) * together); ++panel) multiply(panel, &own);
    finish();
    ranking->end(own, part);
  }
}

// Writes `y`, or ranks what would be written.
template <typename P>
void by_vectors(const Matrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  using Input = typename P::Input;
  constexpr bool prepared = P::GROUP > 1;
  const long padded = blocks(w.inner, P::GROUP) * P::GROUP;
  Input* room = prepared ? scratch<Input>(rows * padded) : nullptr;
  float* units = prepared ? scratch<float>(rows) : nullptr;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (prepared) {
#pragma omp for schedule(static)
      for (long i = 0; i < rows; ++i) prepare(x + i * w.inner, w.inner, padded, room + i * padded, units + i, P());
    }
    const Input* inputs = prepared ? room : reinterpret_cast<const Input*>(x);
    const auto multiply = [&](long panel, const PartRanking* own) {
      multiply_all<P>(inputs, padded, units, w, panel, rows, y, own);
    };
    share(w, ranking, multiply, [] {});
  }
}

// The same; all threads have prepared the rows.
template <typename P>
void multiply_by_tiles(const Matrix& w, Inputs part, const typename P::Input* inputs, long padded, const float* units, long rows,
                       float* y, const Ranking* ranking) {
  Tiled<P> tiled(w, part);
  if (!ranking && rows >= MANY) {
    const long panels = blocks(w.columns, PANEL), all = omp_get_num_threads(), own = omp_get_thread_num();
    tiled.multiply(inputs, padded, units, panels * own / all, panels * (own + 1) / all, rows, y);
    return tiled.finish();
  }
  const auto multiply = [&](long panel, const PartRanking* own) {
    tiled.multiply(inputs, padded, units, panel, rows, y, own);
  };
  share(w, ranking, multiply, [&] { tiled.finish(); });
}

template <typename P>
void by_tiles(const Matrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  using Input = typename P::Input;
  constexpr long step = P::GROUP * UNITS_OF_A_TILE;
  const long padded = blocks(w.inner, step) * step;
  Input* room = scratch<Input>(rows * padded);
  float* units = scratch<float>(rows);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
#pragma omp for schedule(static)
    for (long i = 0; i < rows; ++i) prepare(x + i * w.inner, w.inner, padded, room + i * padded, units + i, P());
    multiply_by_tiles<P>(w, {0, w.inner}, room, padded, units, rows, y, ranking);
  }
}

// Some rows after others, and where they are many, of each some inputs after others: what is taken apart is to stay in
// caches.
template <>
void by_tiles<Float32>(const Matrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  const long parts = ranking || rows < MANY ? 1 : std::max(1L, blocks(w.inner, MOST_INPUTS));
  const long inputs = blocks(Tiled<Float32>::steps_of(w.inner), parts) * 2 * UNITS_OF_A_TILE;
  const long padded = LANES * (3 * Tiled<Float32>::steps_of(inputs) | 1);  // odd, lest rows fall on one place of the cache
  const long at_once = ranking ? rows : std::min(rows, AT_ONCE);
  float* room = scratch<float>(at_once * padded);
  Matrix sums = w;  // of all inputs but the last
  sums.bias = nullptr, sums.activation = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (long first = 0; first < rows; first += at_once)
    for (long k = 0; k < w.inner || k == 0; k += inputs) {
      const Inputs part{k, std::min(inputs, w.inner - k)};
      const long own = std::min(at_once, rows - first);
      const float* from = x + first * w.inner + k;
      if (first || k) {
#pragma omp barrier
      }
#pragma omp for schedule(static)
      for (long i = 0; i < own; i += LANES)
        lay_out_three_rows(from + i * w.inner, w.inner, false, part.count, std::min(LANES, own - i),
                           reinterpret_cast<char*>(room + i * padded), 4 * padded);
      multiply_by_tiles<Float32>(k + inputs < w.inner ? sums : w, part, room, padded, nullptr, own,
                                 y ? y + first * w.columns : nullptr, ranking);
    }
}

template <typename P>
void product(const Matrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  constexpr bool IS_TAKEN_APART = Tiled<P>::IS_TAKEN_APART;
  const bool is_worth_it = !IS_TAKEN_APART || rows >= MANY || Apart(w, {0, w.inner}).two_stay();
  uses_tiles && rows >= P::TILED_FROM && is_worth_it ? by_tiles<P>(w, x, rows, y, ranking, threads)
                                                     : by_vectors<P>(w, x, rows, y, ranking, threads);
}

void product(const Matrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  if (w.precision == 0) product<Float32>(w, x, rows, y, ranking, threads);
  if (w.precision == 1) product<Bfloat16>(w, x, rows, y, ranking, threads);
  if (w.precision == 2) product<Int8>(w, x, rows, y, ranking, threads);
}

float number(const float* group, long) { return *group; }
float number(const int8_t* group, long place) { return static_cast<float>(group[place]); }
float number(const uint16_t* group, long place) {
  const uint32_t bits = static_cast<uint32_t>(group[place]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The weights of one column times `factor`.
template <typename T>
void look_up(const Matrix& w, long column, float factor, float* out) {
  constexpr long per_group = 4 / sizeof(T);
  const long groups = (w.inner + per_group - 1) / per_group;
  const char* group = w.weight + (column / STRIP * groups * STRIP + column % STRIP) * 4;
  for (long k = 0; k < w.inner; k += per_group, group += STRIP * 4)
    for (long place = 0; place < per_group && k + place < w.inner; ++place)
      out[k + place] = factor * number(reinterpret_cast<const T*>(group), place);
}

}  // namespace
}  // namespace transformer

// The weights of some columns, as rows of numbers: the matrix as an embedding, times `factor`. Returns 1, and writes
// nothing, where a column does not exist.
extern "C" int transformer_lookup(const transformer::Matrix* w, const int64_t* columns, long n, float factor, float* out,
                                  int threads) {
  using namespace transformer;
  for (long i = 0; i < n; ++i)
    if (columns[i] < 0 || columns[i] >= w->columns) return 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < n; ++i) {
    const float unit = factor * (w->scales ? w->scales[columns[i]] : 1.0f);
    float* row = out + i * w->inner;
    switch (w->precision) {
      case 0: look_up<float>(*w, columns[i], unit, row); break;
      case 1: look_up<uint16_t>(*w, columns[i], unit, row); break;
      default: look_up<int8_t>(*w, columns[i], unit, row);
    }
  }
  return 0;
}

extern "C" long transformer_columns_of_a_strip() { return transformer::STRIP; }

extern "C" long transformer_size_of_matrix() { return sizeof(transformer::Matrix); }

extern "C" void transformer_product(const transformer::Matrix* w, const float* x, long rows, float* y, int threads) {
  transformer::product(*w, x, rows, y, nullptr, threads);
}

// The k largest of each row of y and the logarithms of their shares in the sum of e^y, of which y is never written down.
extern "C" void transformer_best_of_product(const transformer::Matrix* w, const float* x, long rows, long k,
                                            const bool* never, float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
  const Ranking ranking(w->columns, rows, k, never, threads);
  product(*w, x, rows, nullptr, &ranking, threads);
  ranking.join(log_p, tokens);
}
