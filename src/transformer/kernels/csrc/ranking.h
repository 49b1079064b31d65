// The k most probable tokens of rows of logits that are computed some columns at a time and never stored as a whole.
//
// Sums are formed part by part, so they depend neither on the number of threads nor on the other rows.
#pragma once
#include "vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace transformer {

constexpr float NOTHING = -std::numeric_limits<float>::infinity(), LEAST = -std::numeric_limits<float>::max();
constexpr long TILE_COLUMNS = 64, PART_COLUMNS = 512;

// Inserts a value into the k best so far. Equal values keep their order.
inline void insert(float value, int64_t token, long k, float* best, int64_t* tokens) {
  long place = k - 1;
  for (; place > 0 && best[place - 1] < value; --place) {
    best[place] = best[place - 1];
    tokens[place] = tokens[place - 1];
  }
  best[place] = value;
  tokens[place] = token;
}

// One part of the columns, for all rows, processed by one thread.
struct PartRanking {
  long k;
  const bool* never;    // whether each token is excluded; or null
  float *most, *total;  // 16 per row, one for every 16th column: largest logit, and sum of e^(logit - largest)
  float* best;          // k per row
  int64_t* tokens;

  // `logits` are those of contiguous columns from `column` on.
  void add(const float* logits, long row, long column, long width) const {
    constexpr long VECTORS = TILE_COLUMNS / LANES;
    VecF32 largest = load(most + row * LANES), sum = load(total + row * LANES), v[VECTORS];
    VecF32 bar = broadcast(best[row * k + k - 1]);
    for (; width > 0; width -= TILE_COLUMNS, column += TILE_COLUMNS, logits += TILE_COLUMNS) {
      const VecF32 before = largest;
#pragma GCC unroll 4
      for (long i = 0; i < VECTORS; ++i) {
        const Mask m = tail_mask(std::max(0L, width - i * LANES));
        v[i] = load(logits + i * LANES, m, NOTHING);
        largest = max(largest, v[i]);
        if (const Mask above = movemask(cmp_gt(v[i], bar)))
          bar = broadcast(insert_all(logits + i * LANES, above, row, column + i * LANES));
      }
      if (movemask(cmp_neq(largest, before)))
        sum = sum * exp(before - largest);
#pragma GCC unroll 4
      for (long i = 0; i < VECTORS; ++i) sum = sum + exp(v[i] - largest);
    }
    store(most + row * LANES, largest);
    store(total + row * LANES, sum);
  }

  // Inserts those of 16 logits that are `above` the threshold, and returns the new threshold.
  float insert_all(const float* logits, Mask above, long row, long column) const {
    float* own = best + row * k;
    for (; above; above &= above - 1) {
      const long place = __builtin_ctz(above);
      const int64_t token = column + place;
      if (logits[place] > own[k - 1] && !(never && never[token])) insert(logits[place], token, k, own, tokens + row * k);
    }
    return own[k - 1];
  }
};

// Ranking over all columns. Each thread processes its parts in order and has its own list of the best tokens, which
// provides a threshold for the next parts. The lists are in the order of the threads' columns.
class Ranking {
 public:
  const long parts;

  Ranking(long columns, long rows, long k, const bool* never, long lists)
      : parts((columns + PART_COLUMNS - 1) / PART_COLUMNS), rows(rows), k(k), lists(lists), never(never),
        most(scratch<float, MOST>(parts * rows)), total(scratch<float, TOTAL>(parts * rows)),
        best(scratch<float, BEST>(lists * rows * k)), tokens(scratch<int64_t, TOKENS>(lists * rows * k)) {
    std::fill(best, best + lists * rows * k, NOTHING);
    std::fill(tokens, tokens + lists * rows * k, 0);
  }

  PartRanking begin(long list) const {
    const PartRanking part{k, never, scratch<float, PART_MOST>(rows * LANES), scratch<float, PART_TOTAL>(rows * LANES),
                           best + list * rows * k, tokens + list * rows * k};
    std::fill(part.most, part.most + rows * LANES, LEAST);  // not minus infinity, because -inf - -inf is NaN
    std::fill(part.total, part.total + rows * LANES, 0.0f);
    return part;
  }

  void end(const PartRanking& part, long number) const {
    for (long row = 0; row < rows; ++row) {
      const VecF32 own = load(part.most + row * LANES);
      const float largest = reduce_max(own);
      const VecF32 factors = exp(own - broadcast(largest));
      most[number * rows + row] = largest;
      total[number * rows + row] = reduce_add(load(part.total + row * LANES) * factors);
    }
  }

  // The k best tokens of every row in descending order, and their log-probabilities.
  void join(float* log_p, int64_t* joined) const {
    for (long row = 0; row < rows; ++row, log_p += k, joined += k) {
      std::fill(log_p, log_p + k, NOTHING);
      std::fill(joined, joined + k, 0);
      for (long list = 0; list < lists; ++list)
        for (long j = (list * rows + row) * k; j < (list * rows + row + 1) * k && best[j] > log_p[k - 1]; ++j)
          insert(best[j], tokens[j], k, log_p, joined);
      float largest = LEAST, sum = 0.0f;
      for (long part = 0; part < parts; ++part) largest = std::max(largest, most[part * rows + row]);
      for (long part = 0; part < parts; ++part)
        sum += total[part * rows + row] * std::exp(most[part * rows + row] - largest);
      if (std::isnan(sum)) std::fill(log_p, log_p + k, NOTHING);  // a NaN logit invalidates all probabilities of the row
      if (sum > 0)
        for (long j = 0; j < k; ++j) log_p[j] -= largest + std::log(sum);
    }
  }

 private:
  enum { MOST = 60, TOTAL, BEST, TOKENS, PART_MOST, PART_TOTAL };  // scratch buffers that no kernel uses

  const long rows, k, lists;
  const bool* never;
  float *most, *total;  // for each part of each row
  float* best;          // k for each row in each list
  int64_t* tokens;
};

}  // namespace transformer
