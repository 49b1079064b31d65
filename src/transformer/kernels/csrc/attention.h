// Functions shared by the attention kernels.
#pragma once
#include "kernels.h"

#include <limits>

namespace transformer {
namespace {

constexpr float NEG_INFINITY = -std::numeric_limits<float>::infinity();

// Factor that normalizes weights with this sum; NaN is preserved.
float safe_reciprocal(float sum) { return sum > 0 ? 1.0f / sum : sum == 0 ? 0.0f : sum; }

// Replaces scores by e^(score - maximum), and masked ones by 0. Returns 1 / their sum, or 0 if all are masked. Scores
// are written up to the next whole vector.
float exponentiate(float* scores, long positions, const bool* mask) {
  VecF32 maxima = broadcast(NEG_INFINITY), exp_sum = broadcast(0.0f);
  for (long s = 0; s < positions; s += LANES) {
    Mask m = tail_mask(positions - s);
    if (mask) m = load_bool_mask(mask + s, m);
    const VecF32 masked_scores = select(m, load(scores + s, m), broadcast(NEG_INFINITY));
    store(scores + s, 0xffff, masked_scores);
    maxima = max(maxima, masked_scores);
  }
  const float row_max = reduce_max(maxima);
  const VecF32 shift = broadcast(row_max == NEG_INFINITY ? 0.0f : row_max);
  for (long s = 0; s < positions; s += LANES) {
    const VecF32 e = exp(load(scores + s, 0xffff) - shift);
    store(scores + s, 0xffff, e);
    exp_sum = exp_sum + e;
  }
  return safe_reciprocal(reduce_add(exp_sum));
}

// Length of the shortest prefix that contains all positions that these queries may attend to.
long attended_length(const Attention& a, const bool* mask, long queries, long positions) {
  const auto is_fully_masked = [&](long s) {
    for (long r = 0; r < (a.mask_query ? queries : 1); ++r)
      if (mask[r * a.mask_query + s]) return false;
    return true;
  };
  while (mask && positions && is_fully_masked(positions - 1)) --positions;
  return positions;
}

}  // namespace
}  // namespace transformer
