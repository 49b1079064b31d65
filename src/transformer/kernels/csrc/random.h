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

constexpr long DRAWN = 8 * LANES;  // elements per block of the mask

// The mask of elements DRAWN block to DRAWN (block + 1) - 1. The counter of lane l is 16 block + l. Each of its four
// numbers decides on element l of two vectors; the lower half belongs to the first one.
inline void draw(const Dropout& d, long block, Where (&kept)[DRAWN / LANES]) {
  const uint64_t first = static_cast<uint64_t>(block) * LANES;
  Ints c[4] = {add_ints(spread_int(static_cast<int>(first)), counting()), spread_int(static_cast<int>(first >> 32)),
               spread_int(0), spread_int(0)};
  uint32_t key[2] = {static_cast<uint32_t>(d.seed), static_cast<uint32_t>(d.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    Ints high[2], low[2];
    multiply_wide(c[0], spread_int(static_cast<int>(0xD2511F53u)), high[0], low[0]);
    multiply_wide(c[2], spread_int(static_cast<int>(0xCD9E8D57u)), high[1], low[1]);
    c[0] = bits_xor(bits_xor(high[1], c[1]), spread_int(static_cast<int>(key[0])));
    c[1] = low[1];
    c[2] = bits_xor(bits_xor(high[0], c[3]), spread_int(static_cast<int>(key[1])));
    c[3] = low[0];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const Ints dropped = spread_int(d.levels), half = spread_int(0xffff);
  for (int i = 0; i < 4; ++i) {
    kept[2 * i] = at_least(bits_and(c[i], half), dropped);
    kept[2 * i + 1] = at_least(shift_right(c[i], 16), dropped);
  }
}

// out = x + dropout(y), or dropout(y) if x is null, for n elements from block `block` on.
template <typename Y, typename Out>
void drop_out(const Out* x, const Y* y, long n, Out* out, const Dropout& d, long block) {
  Where kept[DRAWN / LANES];
  std::fill(kept, kept + DRAWN / LANES, everywhere());
  const Floats scale = spread(d.scale());
  for (long start = 0; start < n; start += DRAWN, ++block) {
    if (d.levels) draw(d, block, kept);
    for (long v = 0; v < DRAWN / LANES && start + v * LANES < n; ++v) {
      const long i = start + v * LANES;
      const Mask m = lanes(n - i);
      Floats found = keep(kept[v], load(y + i, m) * scale);
      if (x) found = load(x + i, m) + found;
      store(out + i, m, found);
    }
  }
}

}  // namespace transformer
