// Attention of short sequences and its gradient, by dot products of bfloat16 pairs. The products of a head are so small
// that blocking them as in matmul.cpp would take longer than computing them. The sums are the same, in the same
// order.
//
// A product multiplies rows, whose pairs are broadcast, by columns, whose pairs fill vectors. Pairs are neighbours
// along K. If K is contiguous in memory, the pairs of rows are read in place and columns are transposed. Otherwise two
// rows of memory are interleaved, and the result serves as either operand.
#pragma once
#include "attention_head.h"

#include <algorithm>
#include <type_traits>

namespace transformer {
namespace {

constexpr long MAX_SHORT_POSITIONS = 2 * LANES, MAX_SHORT_WIDTH = 4 * LANES;

// Pairs of the row operand, with strides in bytes between rows and between pairs.
struct Pairs {
  const void* data;
  long row, pair;
};

// Multiplies n rows by columns. Calls `write` with the index and the V vectors of sums of each row.
template <int V, typename Write>
void multiply(const Pairs& rows, const int32_t* columns, long n_pairs, long n, const Write& write) {
  for (long i = 0; i < n; i += MR)
    dispatch_rows(n - i, [&](auto row_count) {
      constexpr int R = row_count;
      const char* row = static_cast<const char*>(rows.data) + i * rows.row;
      const int32_t* column = columns;
      VecF32 sums[R][V] = {};
      for (long p = 0; p < n_pairs; ++p, row += rows.pair, column += V * LANES) {
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v)
            sums[r][v] = dot_bf16_pairs(sums[r][v], row + r * rows.row, load_i32(column + v * LANES));
      }
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) write(i + r, sums[r]);
    });
}

// Transposes the pairs along each of n rows to columns: V vectors of rows for each pair.
template <int V>
void transpose_pairs(const uint16_t* src, long stride, long n, long width, int32_t* dst) {
  for (long first = 0; first < width; first += 2 * LANES)
    for (int v = 0; v < V; ++v) {
      VecI32 loaded[LANES];
      for (long i = 0; i < LANES; ++i) {
        const long row = v * LANES + i;
        loaded[i] = row < n ? load_bf16_pairs(src + row * stride + first, width - first) : broadcast_i32(0);
      }
      transpose(loaded);
      for (long i = 0; i < std::min(LANES, (width - first) / 2); ++i)
        store_i32(dst + ((first / 2 + i) * V + v) * LANES, loaded[i]);
    }
}

// Interleaves every two of n rows to pairs. If n is odd, the last row is paired with zeros.
template <int V>
void interleave_pairs(const uint16_t* src, long stride, long n, long width, int32_t* dst) {
  for (long i = 0; i < n; i += 2, src += 2 * stride)
    for (int v = 0; v < V; ++v, dst += LANES) {
      const Mask m = tail_mask(std::max(0L, width - v * LANES));
      const VecI32 first = load_bf16_bits(src + v * LANES, m);
      store_i32(dst, i + 1 < n ? bits_or(first, shift_left(load_bf16_bits(src + stride + v * LANES, m), 16)) : first);
    }
}

// A head with at most S vectors of positions and of queries, and E vectors of elements.
template <int S, int E>
class ShortHead {
 public:
  explicit ShortHead(const Head& head)
      : head(head), a(head.a), row_stride(a.heads * a.width), stride(round_up_to_even(a.positions)) {}

  void forward() const {
    transpose_pairs<S>(head_data(a.keys), a.keys.position, a.positions, a.width, position_pairs);
    uint16_t* weights = head.weights<uint16_t>();
    multiply<S>(in_place(head_data(a.query), a.query.position), position_pairs, a.width / 2, a.queries,
                [&](long t, const VecF32* sums) {
                  alignas(64) float scores[S * LANES];
                  for (int v = 0; v < S; ++v) store(scores + v * LANES, sums[v]);
                  softmax(scores, head.mask(t), a.scale, a.positions, weights + t * stride);
                });
    interleave_pairs<E>(head_data(a.values), a.values.position, a.positions, a.width, element_pairs);
    multiply<E>(in_place(head.dropped_weights<uint16_t>(), stride), element_pairs, n_pairs(a.positions), a.queries,
                row_writer(head.data_bshd<uint16_t>(a.out, a.queries), row_stride));
  }

  void backward() const {
    const uint16_t *weights = head.weights<uint16_t>(), *dropped = head.dropped_weights<uint16_t>();
    const uint16_t* d_out = head.data_bshd<uint16_t>(a.out, a.queries);
    // Gradient of the values.
    interleave_pairs<S>(dropped, stride, a.queries, a.positions, position_pairs);
    interleave_pairs<E>(d_out, row_stride, a.queries, a.width, element_pairs);
    multiply<E>(interleaved(), element_pairs, n_pairs(a.queries), a.positions, row_writer(a.d_values));
    // Gradient of the scores.
    transpose_pairs<S>(head_data(a.values), a.values.position, a.positions, a.width, position_pairs);
    multiply<S>(in_place(d_out, row_stride), position_pairs, a.width / 2, a.queries, [&](long t, const VecF32* sums) {
      alignas(64) float d_dropped[S * LANES];
      for (int v = 0; v < S; ++v) store(d_dropped + v * LANES, sums[v]);
      softmax_gradient(weights + t * stride, dropped + t * stride, d_dropped, a.scale, a.positions,
                       d_scores + t * MAX_SHORT_POSITIONS);
    });
    // Gradient of the queries.
    interleave_pairs<E>(head_data(a.keys), a.keys.position, a.positions, a.width, element_pairs);
    multiply<E>(in_place(d_scores, MAX_SHORT_POSITIONS), element_pairs, n_pairs(a.positions), a.queries,
                row_writer(a.d_query));
    // Gradient of the keys.
    interleave_pairs<S>(d_scores, MAX_SHORT_POSITIONS, a.queries, a.positions, position_pairs);
    interleave_pairs<E>(head_data(a.query), a.query.position, a.queries, a.width, element_pairs);
    multiply<E>(interleaved(), element_pairs, n_pairs(a.queries), a.positions, row_writer(a.d_keys));
  }

 private:
  static long n_pairs(long n) { return (n + 1) / 2; }
  static Pairs in_place(const uint16_t* rows, long stride) { return {rows, 2 * stride, 4}; }
  Pairs interleaved() const { return {position_pairs, 4, 4 * S * LANES}; }
  const uint16_t* head_data(const StridedHeads& x) const { return head.data<uint16_t>(x); }

  // Returns a function that writes rows of E vectors.
  auto row_writer(const StridedHeads& x) const { return row_writer(head.mutable_data<uint16_t>(x), x.position); }
  static auto row_writer(uint16_t* rows, long row_stride) {
    return [=](long i, const VecF32* sums) {
      for (int v = 0; v < E; ++v) store(rows + i * row_stride + v * LANES, 0xffff, sums[v]);
    };
  }

  const Head head;
  const TrainingAttention& a;
  const long row_stride, stride;
  // Pairs with S vectors of positions each, and with E vectors of elements each.
  int32_t* const position_pairs = scratch<int32_t, 23>(MAX_SHORT_POSITIONS * MAX_SHORT_WIDTH / 2);
  int32_t* const element_pairs = scratch<int32_t, 24>(MAX_SHORT_POSITIONS * MAX_SHORT_WIDTH / 2);
  uint16_t* const d_scores = scratch<uint16_t, 21>(MAX_SHORT_POSITIONS * MAX_SHORT_POSITIONS);
};

// Calls `work` with the head as a `ShortHead` if it is short enough, and returns whether it is.
template <typename Work>
bool run_if_short(const Head& head, const Work& work) {
  const TrainingAttention& a = head.a;
  const long longest = std::max(a.positions, a.queries);
  if (longest > MAX_SHORT_POSITIONS || a.positions < 1 || a.width > MAX_SHORT_WIDTH || a.width % LANES) return false;
  const auto run_with_length = [&](auto vectors) {
    constexpr int S = vectors;
    switch (a.width / LANES) {
      case 1: work(ShortHead<S, 1>(head)); break;
      case 2: work(ShortHead<S, 2>(head)); break;
      case 3: work(ShortHead<S, 3>(head)); break;
      default: work(ShortHead<S, 4>(head));
    }
  };
  longest > LANES ? run_with_length(std::integral_constant<int, 2>())
                  : run_with_length(std::integral_constant<int, 1>());
  return true;
}

}  // namespace
}  // namespace transformer
