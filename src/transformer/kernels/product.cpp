// y = activation(x W^T + b) for a weight that was packed beforehand, in float32, bfloat16 or int8.
//
// A panel is 64 columns of y: four vectors of 16. Within a panel, or a quarter of one where registers are few, the weight
// lies in the order in which it is read: for each group of inputs (1 float, 2 bfloat16 or 4 int8, which one instruction
// multiplies and adds), the group's weights of all columns. Up to six rows of x (32 by AMX) are multiplied at a time with
// as many vectors of a panel as their sums have registers. Each sum is formed in the same order whatever other rows there are, so that the result of a row does not
// depend on its batch.
#include "activations.h"
#include "kernels.h"
#include "ranking.h"
#include "tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <omp.h>

namespace transformer {
namespace {

constexpr long PANEL = 64;
static_assert(PANEL == TILE_COLUMNS);
constexpr int VECTORS = PANEL / LANES;
constexpr long FEWEST_FOR_TILES = 7;  // rows of int8; bfloat16 always takes tiles, which sum in another order than vectors

struct Float32 {
  using Input = float;
  using Sum = Floats;
  static constexpr long GROUP = 1, TILED_FROM = std::numeric_limits<long>::max();
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

long blocks_of(long n, long size) { return (n + size - 1) / size; }

// From one vector of a panel's columns to the next, in the weights of a group.
constexpr long bytes_apart(long groups) { return STRIP < PANEL ? groups * LANES * 4 : LANES * 4; }

// R rows times V vectors of a panel's columns, from `column` on; sums that something is still done with go `aside`. A line
// for each group is asked for from `ahead` on: what comes from beyond the second cache is slower than its products.
template <typename P, int R, int V>
void multiply(const typename P::Input* x, long stride, const float* units, const Matrix& w, long column, float* y,
              float* aside, const char* ahead) {
  const long groups = blocks_of(w.inner, P::GROUP), apart = bytes_apart(groups);
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

// Up to 32 rows times one panel, by tiles; whole tiles of its weights, and in `last` what is left of them. With each
// 16 units, `lines` lines are asked for from `ahead` on.
template <typename P>
void multiply(Tiles& tiles, const typename P::Input* x, long stride, const float* units, const Matrix& w, long first,
              long rows, float* y, const PartRanking* ranking, long row, const char* last, const char* ahead, long lines) {
  using Number = typename P::Number;
  const long groups = blocks_of(w.inner, P::GROUP), whole = groups / UNITS_OF_A_TILE * UNITS_OF_A_TILE;
  const long width = std::min(PANEL, w.columns - first), vectors = blocks_of(width, LANES);
  const char* weight = w.weight + first * groups * 4;
  alignas(64) Number sums[ROWS_OF_TILES * PANEL];
  alignas(64) float aside[PANEL];
  for (long v = 0; v < vectors; v += VECTORS_OF_TILES)
    tiles.multiply<P::NUMBERS>({reinterpret_cast<const char*>(x), weight + v * 64, last ? last + v * 64 : nullptr,
                                   stride * static_cast<long>(sizeof(*x)), 4 * PANEL, whole, false},
                                  rows, vectors - v, sums + v * LANES, 4 * PANEL, [&ahead, lines] {
                                    for (long i = 0; i < lines; ++i, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
                                  });
  for (long r = 0; r < rows; ++r) {
    for (long v = 0; v < width; v += LANES) {
      const Floats sum = finish(load_sums(sums + r * PANEL + v), w, first + v, units ? units[r] : 0.0f);
      if (ranking || w.activation)
        store(aside + v, sum);
      else
        store(y + r * w.columns + first + v, lanes(width - v), sum);
    }
    if (ranking)
      ranking->add(aside, row + r, first, width);
    else if (w.activation)
      activate(aside, 1, width, y + r * w.columns + first, w.columns, w.activation);
  }
}

template <typename P>
void multiply_all(Tiles& tiles, const typename P::Input* inputs, long padded, const float* units, const Matrix& w,
                  long panel, long rows, float* y, const PartRanking* ranking) {
  const long groups = blocks_of(w.inner, P::GROUP), left = groups % UNITS_OF_A_TILE;
  alignas(64) char last[UNITS_OF_A_TILE * PANEL * 4];
  if (left) {  // beyond them lies the next panel, or nothing
    std::memcpy(last, w.weight + (panel * groups + groups - left) * PANEL * 4, left * PANEL * 4);
    std::memset(last + left * PANEL * 4, 0, (UNITS_OF_A_TILE - left) * PANEL * 4);
  }
  // The next panel is asked for in equal parts, one with each 16 units.
  constexpr long RUNS = VECTORS / VECTORS_OF_TILES;
  const long steps = blocks_of(groups, UNITS_OF_A_TILE), parts = blocks_of(rows, ROWS_OF_TILES) * RUNS * steps;
  const long lines = panel + 1 < blocks_of(w.columns, PANEL) ? blocks_of(groups * PANEL * 4 / 64, parts) : 0;
  const char* ahead = w.weight + (panel + 1) * groups * PANEL * 4;
  for (long i = 0; i < rows; i += ROWS_OF_TILES, ahead += lines * 64 * steps * RUNS)
    multiply<P>(tiles, inputs + i * padded, padded, units + i, w, panel * PANEL, std::min(ROWS_OF_TILES, rows - i),
                y ? y + i * w.columns : nullptr, ranking, i, left ? last : nullptr, ahead, lines);
}

// All rows times one panel.
template <typename P>
void multiply_all(const typename P::Input* inputs, long padded, const float* units, const Matrix& w, long panel, long rows,
                  float* y, const PartRanking* ranking) {
  constexpr long most = std::min(TILE_ROWS, P::REGISTERS / REGISTERS_OF_A_VECTOR);
  const long blocks = blocks_of(rows, most), groups = blocks_of(w.inner, P::GROUP);
  const char* weight = w.weight + panel * PANEL * groups * 4;
  const bool has_next = panel + 1 < blocks_of(w.columns, PANEL);
  for (long block = 0, i = 0; block < blocks; ++block) {
    const long n = (rows - i + blocks - block - 1) / (blocks - block);  // blocks of like size
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

// Writes `y`, or ranks what would be written.
template <typename P>
void product(const Matrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  using Input = typename P::Input;
  constexpr bool prepared = P::GROUP > 1;
  const bool is_tiled = uses_tiles && rows >= P::TILED_FROM;
  const long step = P::GROUP * (is_tiled ? UNITS_OF_A_TILE : 1), padded = blocks_of(w.inner, step) * step;
  const long panels = blocks_of(w.columns, PANEL);
  Input* room = prepared ? scratch<Input>(rows * padded) : nullptr;
  float* units = prepared ? scratch<float>(rows) : nullptr;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (prepared) {
#pragma omp for schedule(static)
      for (long i = 0; i < rows; ++i) prepare(x + i * w.inner, w.inner, padded, room + i * padded, units + i, P());
    }
    const Input* inputs = prepared ? room : reinterpret_cast<const Input*>(x);
    Tiles tiles;
    const auto multiply_panel = [&](long panel, const PartRanking* own) {
      if constexpr (prepared)
        if (is_tiled) return multiply_all<P>(tiles, inputs, padded, units, w, panel, rows, y, own);
      multiply_all<P>(inputs, padded, units, w, panel, rows, y, own);
    };
    if (ranking) {
      constexpr long together = PART_COLUMNS / PANEL;
#pragma omp for schedule(static)
      for (long part = 0; part < ranking->parts; ++part) {
        const PartRanking own = ranking->begin(omp_get_thread_num());
        for (long panel = part * together; panel < std::min(panels, (part + 1) * together); ++panel)
          multiply_panel(panel, &own);
        ranking->end(own, part);
      }
    } else {
#pragma omp for schedule(static)
      for (long panel = 0; panel < panels; ++panel) multiply_panel(panel, nullptr);
    }
  }
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
