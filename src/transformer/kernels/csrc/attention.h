// Functions shared by the attention kernels.
#pragma once
#include "kernels.h"

#include <limits>

namespace transformer {
namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();

// Factor that normalizes weights with this sum; NaN is preserved.
float inverse(float sum) { return sum > 0 ? 1.0f / sum : sum == 0 ? 0.0f : sum; }

// Replaces scores by e^(score - maximum), and masked ones by 0. Returns 1 / their sum, or 0 if all are masked. Scores
// are written up to the next whole vector.
float exponentials(float* scores, long positions, const bool* mask) {
  VecF32 most = broadcast(NEVER), total = broadcast(0.0f);
  for (long s = 0; s < positions; s += LANES) {
    Mask m = tail_mask(positions - s);
    if (mask) m = load_bool_mask(mask + s, m);
    const VecF32 found = select(m, load(scores + s, m), broadcast(NEVER));
    store(scores + s, 0xffff, found);
    most = max(most, found);
  }
  const float largest = reduce_max(most);
  const VecF32 shift = broadcast(largest == NEVER ? 0.0f : largest);
  for (long s = 0; s < positions; s += LANES) {
    const VecF32 e = exp(load(scores + s, 0xffff) - shift);
    store(scores + s, 0xffff, e);
    total = total + e;
  }
  return inverse(reduce_add(total));
}

// Length of the shortest prefix that contains all positions that these queries may attend to.
long attended(const Attention& a, const bool* mask, long queries, long positions) {
  const auto nobody_attends = [&](long s) {
    for (long r = 0; r < (a.mask_query ? queries : 1); ++r)
      if (mask[r * a.mask_query + s]) return false;
    return true;
  };
  while (mask && positions && nobody_attends(positions - 1)) --positions;
  return positions;
}

}  // namespace
}  // namespace transformer
