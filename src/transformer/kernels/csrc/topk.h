// Online log-softmax and top-k of logits that are computed some columns at a time and never stored as a whole.
//
// Sums are formed chunk by chunk, so they depend neither on the number of threads nor on the other rows.
#pragma once
#include "vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace transformer {

constexpr float NEG_INFINITY = -std::numeric_limits<float>::infinity(), LOWEST = -std::numeric_limits<float>::max();
constexpr long PANEL_COLUMNS = 64, CHUNK_COLUMNS = 512;

// Inserts a value into the k best so far. Equal values keep their order.
inline void insert(float value, int64_t token, long k, float* top_values, int64_t* tokens) {
  long position = k - 1;
  for (; position > 0 && top_values[position - 1] < value; --position) {
    top_values[position] = top_values[position - 1];
    tokens[position] = tokens[position - 1];
  }
  top_values[position] = value;
  tokens[position] = token;
}

// The top-k of one chunk of columns, for all rows, in one thread.
struct ChunkTopK {
  long k;
  const bool* forbidden;     // whether each token is excluded; or null
  float *maxima, *exp_sums;  // one per row and lane: running maximum, and sum of e^(logit - maximum)
  float* top_values;         // k per row
  int64_t* tokens;

  // Updates a row with the logits of `width` columns from `column` on (online softmax).
  void add(const float* logits, long row, long column, long width) const {
    constexpr long VECTORS = PANEL_COLUMNS / LANES;
    VecF32 running_max = load(maxima + row * LANES), running_sum = load(exp_sums + row * LANES), v[VECTORS];
    VecF32 threshold = broadcast(top_values[row * k + k - 1]);
    for (; width > 0; width -= PANEL_COLUMNS, column += PANEL_COLUMNS, logits += PANEL_COLUMNS) {
      const VecF32 previous_max = running_max;
#pragma GCC unroll 4
      for (long i = 0; i < VECTORS; ++i) {
        const Mask m = tail_mask(std::max(0L, width - i * LANES));
        v[i] = load(logits + i * LANES, m, NEG_INFINITY);
        running_max = max(running_max, v[i]);
        if (const Mask candidates = movemask(cmp_gt(v[i], threshold)))
          threshold = broadcast(insert_candidates(logits + i * LANES, candidates, row, column + i * LANES));
      }
      if (movemask(cmp_neq(running_max, previous_max))) running_sum = running_sum * exp(previous_max - running_max);
#pragma GCC unroll 4
      for (long i = 0; i < VECTORS; ++i) running_sum = running_sum + exp(v[i] - running_max);
    }
    store(maxima + row * LANES, running_max);
    store(exp_sums + row * LANES, running_sum);
  }

  // Inserts the candidates among 16 logits, and returns the new threshold.
  float insert_candidates(const float* logits, Mask candidates, long row, long column) const {
    float* row_top = top_values + row * k;
    for (; candidates; candidates &= candidates - 1) {
      const long lane = __builtin_ctz(candidates);
      const int64_t token = column + lane;
      if (logits[lane] > row_top[k - 1] && !(forbidden && forbidden[token]))
        insert(logits[lane], token, k, row_top, tokens + row * k);
    }
    return row_top[k - 1];
  }
};

// The top-k of all columns. Each thread processes its chunks in order and has its own list of the best tokens, whose
// smallest value is the threshold for the next chunks. The lists are in the order of the threads' columns.
class TopK {
 public:
  const long n_chunks;

  TopK(long columns, long rows, long k, const bool* forbidden, long n_lists)
      : n_chunks((columns + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS),
        rows(rows),
        k(k),
        n_lists(n_lists),
        forbidden(forbidden),
        maxima(scratch<float, MAXIMA>(n_chunks * rows)),
        exp_sums(scratch<float, EXP_SUMS>(n_chunks * rows)),
        top_values(scratch<float, TOP_VALUES>(n_lists * rows * k)),
        tokens(scratch<int64_t, TOKENS>(n_lists * rows * k)) {
    std::fill(top_values, top_values + n_lists * rows * k, NEG_INFINITY);
    std::fill(tokens, tokens + n_lists * rows * k, 0);
  }

  ChunkTopK begin_chunk(long list) const {
    const ChunkTopK chunk{k,
                          forbidden,
                          scratch<float, CHUNK_MAXIMA>(rows * LANES),
                          scratch<float, CHUNK_EXP_SUMS>(rows * LANES),
                          top_values + list * rows * k,
                          tokens + list * rows * k};
    std::fill(chunk.maxima, chunk.maxima + rows * LANES, LOWEST);  // not minus infinity, because -inf - -inf is NaN
    std::fill(chunk.exp_sums, chunk.exp_sums + rows * LANES, 0.0f);
    return chunk;
  }

  void end_chunk(const ChunkTopK& chunk, long chunk_index) const {
    for (long row = 0; row < rows; ++row) {
      const VecF32 lane_maxima = load(chunk.maxima + row * LANES);
      const float row_max = reduce_max(lane_maxima);
      const VecF32 rescaling = exp(lane_maxima - broadcast(row_max));
      maxima[chunk_index * rows + row] = row_max;
      exp_sums[chunk_index * rows + row] = reduce_add(load(chunk.exp_sums + row * LANES) * rescaling);
    }
  }

  // Merges the lists: the k best tokens of every row in descending order, and their log-probabilities.
  void merge(float* log_p, int64_t* merged_tokens) const {
    for (long row = 0; row < rows; ++row, log_p += k, merged_tokens += k) {
      std::fill(log_p, log_p + k, NEG_INFINITY);
      std::fill(merged_tokens, merged_tokens + k, 0);
      for (long list = 0; list < n_lists; ++list)
        for (long j = (list * rows + row) * k; j < (list * rows + row + 1) * k && top_values[j] > log_p[k - 1]; ++j)
          insert(top_values[j], tokens[j], k, log_p, merged_tokens);
      float row_max = LOWEST, exp_sum = 0.0f;
      for (long chunk = 0; chunk < n_chunks; ++chunk) row_max = std::max(row_max, maxima[chunk * rows + row]);
      for (long chunk = 0; chunk < n_chunks; ++chunk)
        exp_sum += exp_sums[chunk * rows + row] * std::exp(maxima[chunk * rows + row] - row_max);
      if (std::isnan(exp_sum))
        std::fill(log_p, log_p + k, NEG_INFINITY);  // a NaN logit invalidates all probabilities of the row
      if (exp_sum > 0)
        for (long j = 0; j < k; ++j) log_p[j] -= row_max + std::log(exp_sum);
    }
  }

 private:
  enum {
    MAXIMA = 60,
    EXP_SUMS,
    TOP_VALUES,
    TOKENS,
    CHUNK_MAXIMA,
    CHUNK_EXP_SUMS
  };  // scratch buffers that no kernel uses

  const long rows, k, n_lists;
  const bool* forbidden;
  float *maxima, *exp_sums;  // for each chunk of each row
  float* top_values;         // k for each row in each list
  int64_t* tokens;
};

}  // namespace transformer
