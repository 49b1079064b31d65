// y = activation(x W^T + b) for a weight that was packed in advance, in float32, bfloat16 or int8.
//
// A panel is 64 columns of y: four vectors of 16. Within a panel, or a quarter of one on processors with few registers,
// the weight is stored in the order in which it is read: for each group of inputs (1 float, 2 bfloat16 or 4 int8, which
// one instruction multiplies and adds), the weights of all columns. Up to six rows of x (32 with AMX) are multiplied at
// a time, by as many vectors of a panel as there are registers for accumulators.
//
// Each sum is formed in the same order whatever the other rows are, so the result of a row does not depend on its
// batch. Only float32 with AMX, which splits numbers and is used for many rows alone, has sums that differ from those
// of vector instructions, in their last bits.
#include "tiled.h"

#include <omp.h>

namespace transformer {
namespace {

constexpr long AT_ONCE = 1024;     // rows of float32 that are split before they are multiplied
constexpr long MOST_INPUTS = 512;  // of these rows, summed before the next inputs are split

template <VecF32 function(VecF32), typename Y>
void apply(const float* sums, int rows, long width, Y* y, long stride) {
  for (; rows; --rows, sums += PANEL, y += stride)
    for (long column = 0; column < width; column += LANES)
      store(y + column, tail_mask(width - column), function(load(sums + column)));
}

// Applies the activation to R rows of a panel. The sums are read from memory, because accumulators may fill all
// registers.
template <typename Y>
void activate(const float* sums, int rows, long width, Y* y, long stride, int activation) {
  constexpr bool IS_ROUNDED = std::is_same_v<Y, uint16_t>;
  switch (activation) {
    case 1: return apply<relu>(sums, rows, width, y, stride);
    case 2: return apply<IS_ROUNDED ? approx_silu : silu>(sums, rows, width, y, stride);
    case 3: return apply<IS_ROUNDED ? approx_gelu : gelu>(sums, rows, width, y, stride);
    case 4: return apply<IS_ROUNDED ? approx_gelu_tanh : gelu_tanh>(sums, rows, width, y, stride);
  }
}

// Distance in bytes between two vectors of a panel's columns, in the weights of a group.
constexpr long bytes_apart(long groups) { return COLUMN_BLOCK < PANEL ? groups * LANES * 4 : LANES * 4; }

// Multiplies R rows by V vectors of a panel's columns, starting at `column`. Sums that need further processing are
// stored in `aside`. One line per group is prefetched from `ahead` on, because memory beyond the L2 cache is slower
// than the products.
template <typename P, int R, int V, typename Y>
void multiply(const typename P::Input* x, long stride, const float* units, const PackedMatrix& w, long column, Y* y,
              float* aside, const char* ahead) {
  const long groups = ceil_div(w.inner, P::GROUP), apart = bytes_apart(groups);
  const char* weight = w.weight + column / PANEL * PANEL * groups * 4 + column % PANEL / LANES * apart;
  typename P::Sum sums[R][V] = {};
  for (long g = 0; g < groups; ++g, weight += COLUMN_BLOCK * 4) {
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
      const VecF32 sum = finish(sums[r][v], w, column, units ? units[r] : 0.0f);
      if (aside)
        store(aside + r * PANEL + v * LANES, sum);
      else
        store(y + r * w.columns + column, tail_mask(w.columns - column), sum);
    }
  }
}

// Multiplies R rows by one panel. If the sums are ranked, `y` is not written, and `row` is the index of the first row.
template <typename P, int R, typename Y>
void multiply(const typename P::Input* x, long stride, const float* units, const PackedMatrix& w, long first, Y* y,
              const PartRanking* ranking, long row, const char* ahead) {
  constexpr int V = nr_vectors(R, P::REGISTERS);
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

// Multiplies all rows by one panel.
template <typename P, typename Y>
void multiply_all(const typename P::Input* inputs, long padded, const float* units, const PackedMatrix& w, long panel, long rows,
                  Y* y, const PartRanking* ranking) {
  constexpr long most = std::min(MR, P::REGISTERS / REGISTERS_PER_VECTOR);
  const long all = ceil_div(rows, most), groups = ceil_div(w.inner, P::GROUP);
  const char* weight = w.weight + panel * PANEL * groups * 4;
  const bool has_next = panel + 1 < ceil_div(w.columns, PANEL);
  for (long block = 0, i = 0; block < all; ++block) {
    const long n = (rows - i + all - block - 1) / (all - block);  // blocks of similar size
    const auto* from = inputs + i * padded;
    const float* unit = units ? units + i : nullptr;
    Y* to = y ? y + i * w.columns : nullptr;
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

// Distributes the panels among threads. Calls `multiply` with each panel and the end of its range, and `finish` to
// complete the last products.
template <typename Multiply, typename End>
void share(const PackedMatrix& w, const Ranking* ranking, const Multiply& multiply, const End& finish) {
  const long panels = ceil_div(w.columns, PANEL), all = omp_get_num_threads(), own = omp_get_thread_num();
  if (!ranking) {
    const long end = panels * (own + 1) / all;
    for (long panel = panels * own / all; panel < end; ++panel) multiply(panel, end, nullptr);
    return finish();
  }
  constexpr long together = PART_COLUMNS / PANEL;
#pragma omp for schedule(static) nowait
  for (long part = 0; part < ranking->parts; ++part) {
    const PartRanking of_part = ranking->begin(own);
    const long end = std::min(panels, (part + 1) * together);
    for (long panel = part * together; panel < end; ++panel) multiply(panel, end, &of_part);
    finish();
    ranking->end(of_part, part);
  }
}

// Computes the product by vector instructions, and writes it to `y` or ranks it.
template <typename P, typename X, typename Y>
void by_vectors(const PackedMatrix& w, const X* x, long rows, Y* y, const Ranking* ranking, int threads) {
  using Input = typename P::Input;
  const long padded = ceil_div(w.inner, P::GROUP) * P::GROUP;
  const bool prepared = !std::is_same_v<X, Input> || padded > w.inner;
  Input* room = prepared ? scratch<Input>(rows * padded) : nullptr;
  float* units = prepared ? scratch<float>(rows) : nullptr;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (prepared) {
#pragma omp for schedule(static)
      for (long i = 0; i < rows; ++i) prepare(x + i * w.inner, w.inner, padded, room + i * padded, units + i, P());
    }
    const Input* inputs = prepared ? room : reinterpret_cast<const Input*>(x);
    const auto multiply = [&](long panel, long, const PartRanking* own) {
      multiply_all<P>(inputs, padded, units, w, panel, rows, y, own);
    };
    share(w, ranking, multiply, [] {});
  }
}

// Multiplies by AMX the rows that all threads have prepared, and writes the product to `y` or ranks it.
template <typename P, typename Y>
void multiply_by_tiles(const PackedMatrix& w, Inputs part, const typename P::Input* inputs, long padded, const float* units, long rows,
                       Y* y, const Ranking* ranking) {
  Tiled<P, Y> tiled(w, part);
  if (!ranking && rows >= MANY) {
    const long panels = ceil_div(w.columns, PANEL), all = omp_get_num_threads(), own = omp_get_thread_num();
    tiled.multiply(inputs, padded, units, panels * own / all, panels * (own + 1) / all, rows, y);
    return tiled.finish();
  }
  const auto multiply = [&](long panel, long end, const PartRanking* own) {
    tiled.multiply(inputs, padded, units, panel, end, rows, y, own);
  };
  share(w, ranking, multiply, [&] { tiled.finish(); });
}

template <typename P, typename X, typename Y>
void by_tiles(const PackedMatrix& w, const X* x, long rows, Y* y, const Ranking* ranking, int threads) {
  using Input = typename P::Input;
  constexpr long step = P::GROUP * TILE_K_GROUPS;
  const long padded = ceil_div(w.inner, step) * step;
  float* units = scratch<float>(rows);
  if constexpr (std::is_same_v<X, Input>)
    if (padded == w.inner) {
#pragma omp parallel num_threads(threads) if (threads > 1)
      multiply_by_tiles<P>(w, {0, w.inner}, x, padded, units, rows, y, ranking);
      return;
    }
  Input* room = scratch<Input>(rows * padded);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
#pragma omp for schedule(static)
    for (long i = 0; i < rows; ++i) prepare(x + i * w.inner, w.inner, padded, room + i * padded, units + i, P());
    multiply_by_tiles<P>(w, {0, w.inner}, room, padded, units, rows, y, ranking);
  }
}

// Processes one block of rows after another and, if there are many rows, one range of inputs after another within each
// block, so that split numbers stay in the caches.
template <>
void by_tiles<Float32, float, float>(const PackedMatrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  const long parts = ranking || rows < MANY ? 1 : std::max(1L, ceil_div(w.inner, MOST_INPUTS));
  const long inputs = ceil_div(Tiled<Float32>::steps_of(w.inner), parts) * 2 * TILE_K_GROUPS;
  // Odd, so that rows map to different cache sets.
  const long padded = LANES * (3 * Tiled<Float32>::steps_of(inputs) | 1);
  const long at_once = ranking ? rows : ceil_div(rows, std::max(1L, ceil_div(rows, AT_ONCE)));  // blocks of similar size
  float* room = scratch<float>(at_once * padded);
  PackedMatrix sums = w;  // the weight for all ranges of inputs but the last
  sums.bias = nullptr, sums.activation = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (long first = 0; first < rows; first += at_once)
    for (long k = 0; k < w.inner || k == 0; k += std::max(1L, inputs)) {
      const Inputs part{k, std::min(inputs, w.inner - k)};
      const long own = std::min(at_once, rows - first);
      const float* from = x + first * w.inner + k;
      if (first || k) {
#pragma omp barrier
      }
#pragma omp for schedule(static)
      for (long i = 0; i < own; i += LANES)
        pack_a_bf16x3(from + i * w.inner, w.inner, false, part.count, std::min(LANES, own - i),
                           reinterpret_cast<char*>(room + i * padded), 4 * padded);
      multiply_by_tiles<Float32>(k + inputs < w.inner ? sums : w, part, room, padded, nullptr, own,
                                 y ? y + first * w.columns : nullptr, ranking);
    }
}

template <typename P>
void product(const PackedMatrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
  constexpr bool IS_SPLIT = Tiled<P>::IS_SPLIT;
  const bool is_worth_it = !IS_SPLIT || rows >= MANY || Apart(w, {0, w.inner}).two_stay();
  amx_enabled && rows >= P::TILED_FROM && is_worth_it ? by_tiles<P>(w, x, rows, y, ranking, threads)
                                                     : by_vectors<P>(w, x, rows, y, ranking, threads);
}

void product(const PackedMatrix& w, const float* x, long rows, float* y, const Ranking* ranking, int threads) {
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

// Writes the weights of one column, multiplied by `factor`.
template <typename T>
void look_up(const PackedMatrix& w, long column, float factor, float* out) {
  constexpr long per_group = 4 / sizeof(T);
  const long groups = (w.inner + per_group - 1) / per_group;
  const char* group = w.weight + (column / COLUMN_BLOCK * groups * COLUMN_BLOCK + column % COLUMN_BLOCK) * 4;
  for (long k = 0; k < w.inner; k += per_group, group += COLUMN_BLOCK * 4)
    for (long place = 0; place < per_group && k + place < w.inner; ++place)
      out[k + place] = factor * number(reinterpret_cast<const T*>(group), place);
}

}  // namespace
}  // namespace transformer

// Embedding lookup: writes the weights of some columns as rows, multiplied by `factor`. Returns 1 and writes nothing if
// a column is out of range.
extern "C" int transformer_lookup(const transformer::PackedMatrix* w, const int64_t* columns, long n, float factor, float* out,
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

extern "C" long transformer_columns_of_a_strip() { return transformer::COLUMN_BLOCK; }

extern "C" long transformer_size_of_matrix() { return sizeof(transformer::PackedMatrix); }

extern "C" void transformer_product(const transformer::PackedMatrix* w, const float* x, long rows, float* y, int threads) {
  transformer::product(*w, x, rows, y, nullptr, threads);
}

// Same for weights in bfloat16 or int8, with inputs and outputs in bfloat16 or float32.
extern "C" void transformer_rounded_product(const transformer::PackedMatrix* w, const void* x, int x_is_bfloat16, long rows, void* y,
                                            int y_is_bfloat16, int threads) {
  using namespace transformer;
  const auto multiply = [&](const auto* rows_of_x, auto* rows_of_y) {
    const auto as = [&](auto precision) {
      using P = decltype(precision);
      amx_enabled ? by_tiles<P>(*w, rows_of_x, rows, rows_of_y, nullptr, threads)
                 : by_vectors<P>(*w, rows_of_x, rows, rows_of_y, nullptr, threads);
    };
    w->precision == 1 ? as(Bfloat16()) : as(Int8());
  };
  const auto to = [&](const auto* rows_of_x) {
    y_is_bfloat16 ? multiply(rows_of_x, static_cast<uint16_t*>(y)) : multiply(rows_of_x, static_cast<float*>(y));
  };
  x_is_bfloat16 ? to(static_cast<const uint16_t*>(x)) : to(static_cast<const float*>(x));
}

// The k largest elements of each row of y and the logarithms of their softmax probabilities. y is never stored.
extern "C" void transformer_best_of_product(const transformer::PackedMatrix* w, const float* x, long rows, long k,
                                            const bool* never, float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
  const Ranking ranking(w->columns, rows, k, never, threads);
  product(*w, x, rows, nullptr, &ranking, threads);
  ranking.join(log_p, tokens);
}
