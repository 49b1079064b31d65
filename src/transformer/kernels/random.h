// Which elements dropout keeps: 16 random bits decide on one, by Philox4x32-10 (Salmon et al. 2011, "Parallel Random
// Numbers: As Easy as 1, 2, 3", Sec. 3.3). What is drawn for an element depends on the seed and its place alone, so that
// the way back draws it again and nothing is kept.
#pragma once
#include <algorithm>

#include "vectors.h"

namespace transformer {

struct Dropout {
  uint64_t seed;
  int levels;  // of LEVELS that are dropped

  static constexpr int LEVELS = 1 << 16;
  float scale() const { return static_cast<float>(LEVELS) / (LEVELS - levels); }
};

constexpr long DRAWN = 8 * LANES;  // elements that are decided on at a time

// Both halves of the 64 bits of a product, lane by lane; the lanes of b are equal.
inline void multiply_wide(__m512i a, __m512i b, __m512i& high, __m512i& low) {
  const __m512i even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
  low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}

// Of elements DRAWN block to DRAWN (block + 1) - 1. Lane l counts 16 block + l; its four numbers decide on elements l of
// two vectors each, the lower half on the first.
inline void draw(const Dropout& d, long block, __mmask16 (&kept)[DRAWN / LANES]) {
  const uint64_t first = static_cast<uint64_t>(block) * LANES;
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i c[4] = {_mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)), lane),
                  _mm512_set1_epi32(static_cast<int>(first >> 32)), _mm512_setzero_si512(), _mm512_setzero_si512()};
  uint32_t key[2] = {static_cast<uint32_t>(d.seed), static_cast<uint32_t>(d.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    __m512i high[2], low[2];
    multiply_wide(c[0], _mm512_set1_epi32(static_cast<int>(0xD2511F53u)), high[0], low[0]);
    multiply_wide(c[2], _mm512_set1_epi32(static_cast<int>(0xCD9E8D57u)), high[1], low[1]);
    c[0] = _mm512_xor_si512(_mm512_xor_si512(high[1], c[1]), _mm512_set1_epi32(static_cast<int>(key[0])));
    c[1] = low[1];
    c[2] = _mm512_xor_si512(_mm512_xor_si512(high[0], c[3]), _mm512_set1_epi32(static_cast<int>(key[1])));
    c[3] = low[0];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const __m512i dropped = _mm512_set1_epi32(d.levels), half = _mm512_set1_epi32(0xffff);
  for (int i = 0; i < 4; ++i) {
    kept[2 * i] = _mm512_cmpge_epu32_mask(_mm512_and_si512(c[i], half), dropped);
    kept[2 * i + 1] = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(c[i], 16), dropped);
  }
}

// out = x + what dropout leaves of y, or that alone where x is null, for n elements in blocks from `block` on.
template <typename Y, typename Out>
void drop_out(const Out* x, const Y* y, long n, Out* out, const Dropout& d, long block) {
  __mmask16 kept[DRAWN / LANES];
  std::fill(kept, kept + DRAWN / LANES, static_cast<__mmask16>(0xffff));
  const __m512 scale = _mm512_set1_ps(d.scale());
  for (long start = 0; start < n; start += DRAWN, ++block) {
    if (d.levels) draw(d, block, kept);
    for (long v = 0; v < DRAWN / LANES && start + v * LANES < n; ++v) {
      const long i = start + v * LANES;
      const __mmask16 m = lanes(n - i);
      __m512 found = _mm512_maskz_mul_ps(kept[v], load(y + i, m), scale);
      if (x) found = _mm512_add_ps(load(x + i, m), found);
      store(out + i, m, found);
    }
  }
}

}  // namespace transformer
