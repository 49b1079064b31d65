// Dropout masks: 16 random bits per element, drawn with Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As
// Easy as 1, 2, 3", Sec. 3.3). The bits of an element depend on the seed and its index alone, so the backward pass
// draws the mask again instead of storing it.
#pragma once
#include <algorithm>

#include "vectors.h"

namespace transformer {

struct Dropout {
  uint64_t seed;
  int levels;  // dropout probability in units of 1 / LEVELS

  static constexpr int LEVELS = 1 << 16;
  float scale() const { return static_cast<float>(LEVELS) / (LEVELS - levels); }
};

constexpr long MASK_BLOCK = 8 * LANES;  // elements per block of the mask

// Draws the mask of elements MASK_BLOCK block to MASK_BLOCK (block + 1) - 1. The counter of lane l is 16 block + l.
// Each of its four 32-bit outputs decides on element l of two vectors; the lower half belongs to the first one.
inline void draw_mask(const Dropout& d, long block, VecMask (&kept)[MASK_BLOCK / LANES]) {
  const uint64_t first_counter = static_cast<uint64_t>(block) * LANES;
  VecI32 c[4] = {add_i32(broadcast_i32(static_cast<int>(first_counter)), iota()),
                 broadcast_i32(static_cast<int>(first_counter >> 32)), broadcast_i32(0), broadcast_i32(0)};
  uint32_t key[2] = {static_cast<uint32_t>(d.seed), static_cast<uint32_t>(d.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    VecI32 high[2], low[2];
    mul_hi_lo_u32(c[0], broadcast_i32(static_cast<int>(0xD2511F53u)), high[0], low[0]);
    mul_hi_lo_u32(c[2], broadcast_i32(static_cast<int>(0xCD9E8D57u)), high[1], low[1]);
    c[0] = bits_xor(bits_xor(high[1], c[1]), broadcast_i32(static_cast<int>(key[0])));
    c[1] = low[1];
    c[2] = bits_xor(bits_xor(high[0], c[3]), broadcast_i32(static_cast<int>(key[1])));
    c[3] = low[0];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const VecI32 threshold = broadcast_i32(d.levels), lower_half = broadcast_i32(0xffff);
  for (int i = 0; i < 4; ++i) {
    kept[2 * i] = cmp_ge(bits_and(c[i], lower_half), threshold);
    kept[2 * i + 1] = cmp_ge(shift_right(c[i], 16), threshold);
  }
}

// out = x + dropout(y), or dropout(y) if x is null, for n elements from block `block` on.
template <typename Y, typename Out>
void dropout(const Out* x, const Y* y, long n, Out* out, const Dropout& d, long block) {
  VecMask kept[MASK_BLOCK / LANES];
  std::fill(kept, kept + MASK_BLOCK / LANES, all_true());
  const VecF32 scale = broadcast(d.scale());
  for (long start = 0; start < n; start += MASK_BLOCK, ++block) {
    if (d.levels) draw_mask(d, block, kept);
    for (long v = 0; v < MASK_BLOCK / LANES && start + v * LANES < n; ++v) {
      const long i = start + v * LANES;
      const Mask m = tail_mask(n - i);
      VecF32 value = maskz(kept[v], load(y + i, m) * scale);
      if (x) value = load(x + i, m) + value;
      store(out + i, m, value);
    }
  }
}

}  // namespace transformer
