// The most probable columns of a product, where each sentence has its own list of columns: a shortlist.
//
// The numbers of a column are contiguous here and padded to whole cache lines, so the columns of any list are
// multiplied in place. Gathering a list of some hundred columns would take longer than multiplying it, and the union of
// all lists has thousands of columns for each row. The order of a sum depends neither on the list nor on the batch.
#include "packed.h"

namespace transformer {
namespace {

constexpr int AT_ONCE = 4;  // columns whose sums are reduced together

template <typename P>
constexpr long LINE = LANES * P::GROUP;  // elements per cache line

// Scales, bias and offsets of up to 64 columns of a list, gathered.
struct Panel {
  alignas(64) float scales[PANEL] = {}, bias[PANEL] = {};
  alignas(64) int32_t offsets[PANEL] = {};
  Matrix w;

  Panel(const Matrix& whole, const int64_t* columns, long n) : w(whole) {
    if (whole.scales) gather(whole.scales, columns, n, scales), w.scales = scales;
    if (whole.bias) gather(whole.bias, columns, n, bias), w.bias = bias;
    if (whole.offsets) gather(whole.offsets, columns, n, offsets), w.offsets = offsets;
  }
  Panel(const Panel&) = delete;

 private:
  template <typename T>
  static void gather(const T* from, const int64_t* columns, long n, T* to) {
    for (long i = 0; i < n; ++i) to[i] = from[columns[i]];
  }
};

// Multiplies R rows by four columns.
template <typename P, int R>
void multiply(const typename P::Input* x, long padded, const char* const (&columns)[AT_ONCE], typename P::Number* sums) {
  typename P::Sum all[R][AT_ONCE] = {};
  for (long k = 0; k < padded; k += LINE<P>)
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < AT_ONCE; ++c)
        all[r][c] = P::multiply_line(all[r][c], x + r * padded + k, columns[c] + k / P::GROUP * 4);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) store_sums(sums + r * PANEL, all[r][0], all[r][1], all[r][2], all[r][3]);
}

// Multiplies at most six rows by up to 64 columns and ranks the results.
template <typename P>
void rank_panel(const Matrix& w, const int64_t* columns, long n, const typename P::Input* x, long padded,
                const float* units, long rows, const PartRanking& ranking, long row, long first) {
  alignas(64) typename P::Number sums[TILE_ROWS * PANEL];
  alignas(64) float logits[PANEL];
  const long bytes = padded / P::GROUP * 4;
  for (long i = 0; i < n; i += AT_ONCE) {
    const char* four[AT_ONCE];
    for (long c = 0; c < AT_ONCE; ++c) four[c] = w.weight + columns[std::min(i + c, n - 1)] * bytes;
    with_rows(rows, [&](auto r) { multiply<P, r>(x, padded, four, sums + i); });
  }
  const Panel panel(w, columns, n);
  for (long r = 0; r < rows; ++r) {
    for (long i = 0; i < n; i += LANES) store(logits + i, finish(load_sums(sums + r * PANEL + i), panel.w, i, units[r]));
    ranking.add(logits, row + r, first, n);
  }
}

void lay_out(const float* x, long inner, long padded, float* room, float*, Float32) {
  std::memcpy(room, x, inner * sizeof *x);
  std::fill(room + inner, room + padded, 0.0f);
}
template <typename P>
void lay_out(const float* x, long inner, long padded, typename P::Input* room, float* unit, P) {
  prepare(x, inner, padded, room, unit, P());
}

// Ranks the columns of one list for all rows of a sentence.
template <typename P>
void rank_list(const Matrix& w, const int64_t* columns, long n, const float* x, long rows, long k, const bool* never,
               float* log_p, int64_t* tokens) {
  constexpr long most = std::max(1, P::REGISTERS / REGISTERS_OF_A_VECTOR / AT_ONCE);
  static_assert(most <= TILE_ROWS);
  const long padded = blocks(w.inner, LINE<P>) * LINE<P>;
  auto* room = scratch<typename P::Input, 25>(rows * padded);
  auto* units = scratch<float, 26>(rows);
  for (long i = 0; i < rows; ++i) lay_out(x + i * w.inner, w.inner, padded, room + i * padded, units + i, P());
  const Ranking ranking(n, rows, k, never, 1, columns);
  for (long number = 0; number < ranking.parts; ++number) {
    const PartRanking part = ranking.begin(0);
    for (long first = number * PART_COLUMNS; first < std::min(n, (number + 1) * PART_COLUMNS); first += PANEL)
      for (long row = 0; row < rows; row += most)
        rank_panel<P>(w, columns + first, std::min(PANEL, n - first), room + row * padded, padded, units + row,
                      std::min(most, rows - row), part, row, first);
    ranking.end(part, number);
  }
  ranking.join(log_p, tokens);
}

}  // namespace
}  // namespace transformer

// The k largest elements of each row of y among the columns that its sentence may use, in descending order, and the
// logarithms of their softmax probabilities over these columns. List i is `columns[starts[i]]` up to `columns[starts[i
// + 1]]`, exclusively, in ascending order. Columns in `never` count in the softmax but are not returned. Each sentence
// has `rows` rows of x and the list `list_of`. The weight is not packed in panels: each column is a row, padded to
// whole cache lines.
extern "C" void transformer_best_of_lists(const transformer::Matrix* w, const int64_t* columns, const int64_t* starts,
                                          const int64_t* list_of, long sentences, const float* x, long rows, long k,
                                          const bool* never, float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < sentences; ++i) {
    const int64_t start = starts[list_of[i]], n = starts[list_of[i] + 1] - start;
    const auto by = [&](auto precision) {
      rank_list<decltype(precision)>(*w, columns + start, n, x + i * rows * w->inner, rows, k, never, log_p + i * rows * k,
                                     tokens + i * rows * k);
    };
    if (w->precision == 0) by(Float32());
    if (w->precision == 1) by(Bfloat16());
    if (w->precision == 2) by(Int8());
  }
}
