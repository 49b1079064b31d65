// The k most probable tokens of each row of logits, and their log-probabilities, in one pass over memory.
#include "vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace transformer {
namespace {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();
constexpr long PART = 4096;  // logits that stay in the nearest cache while they are looked at three times

// Inserts what is better than the k best so far; of equal logits, the token with the smaller number stays before.
void rank(const float* row, long from, long to, long k, const bool* never, float* best, int64_t* tokens) {
  for (long c = from; c < to; c += LANES) {
    const __mmask16 m = lanes(to - c);
    __mmask16 above = _mm512_mask_cmp_ps_mask(m, load(row + c, m), _mm512_set1_ps(best[k - 1]), _CMP_GT_OQ);
    for (; above; above &= above - 1) {
      const long token = c + __builtin_ctz(above);
      const float value = row[token];
      if (value <= best[k - 1] || (never && never[token])) continue;
      long place = k - 1;
      for (; place > 0 && best[place - 1] < value; --place) {
        best[place] = best[place - 1];
        tokens[place] = tokens[place - 1];
      }
      best[place] = value;
      tokens[place] = token;
    }
  }
}

// The sum of e^(x - largest); `largest` rises to that of this part, and `total` with it.
void add_exponentials(const float* row, long from, long to, float& largest, float& total) {
  __m512 most = _mm512_set1_ps(largest), sum = _mm512_setzero_ps();
  for (long c = from; c < to; c += LANES) {
    const __mmask16 m = lanes(to - c);
    most = _mm512_mask_max_ps(most, m, most, load(row + c, m));
  }
  const float now = _mm512_reduce_max_ps(most);
  if (now == NOTHING) return;
  for (long c = from; c < to; c += LANES) {
    const __mmask16 m = lanes(to - c);
    sum = _mm512_mask_add_ps(sum, m, sum, exponential(_mm512_sub_ps(load(row + c, m), _mm512_set1_ps(now))));
  }
  total = total * std::exp(largest - now) + _mm512_reduce_add_ps(sum);
  largest = now;
}

}  // namespace
}  // namespace transformer

extern "C" void transformer_best_tokens(const float* logits, long rows, long columns, long k, const bool* never,
                                        float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; ++i) {
    const float* row = logits + i * columns;
    float *best = log_p + i * k, largest = NOTHING, total = 0.0f;
    std::fill(best, best + k, NOTHING);
    std::fill(tokens + i * k, tokens + (i + 1) * k, 0);
    for (long from = 0; from < columns; from += PART) {
      const long to = std::min(columns, from + PART);
      rank(row, from, to, k, never, best, tokens + i * k);
      add_exponentials(row, from, to, largest, total);
    }
    const float log_sum = total > 0 ? largest + std::log(total) : 0.0f;  // not so for NaN
    for (long j = 0; j < k; ++j) best[j] -= log_sum;
  }
}
