// Sixteen floats at a time (AVX-512), shared by the kernels.
#pragma once
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#include <immintrin.h>

#include <cstdint>
#include <vector>

namespace transformer {

constexpr long LANES = 16;

// The lanes that are left of n elements: all of them, or the first n.
inline __mmask16 lanes(long n) { return n >= LANES ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }

inline __m512 load(const float* x, __mmask16 m) { return _mm512_maskz_loadu_ps(m, x); }

// bfloat16 is the upper half of a float.
inline __m512 load(const uint16_t* x, __mmask16 m) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, x)), 16));
}

inline void store(float* y, __mmask16 m, __m512 v) { _mm512_mask_storeu_ps(y, m, v); }

inline void store(uint16_t* y, __mmask16 m, __m512 v) {
  _mm256_mask_storeu_epi16(y, m, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// e^x for x <= 0, to about one unit in the last place; 0 below the smallest normal number.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series to the seventh power.
inline __m512 exponential(__m512 x) {
  const __m512 log2e = _mm512_set1_ps(1.44269504088896341f);
  const __m512 ln2_high = _mm512_set1_ps(0.693359375f), ln2_low = _mm512_set1_ps(-2.12194440e-4f);
  const __mmask16 tiny = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_LT_OQ);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, ln2_high, x);
  r = _mm512_fnmadd_ps(n, ln2_low, r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), tiny, _mm512_setzero_ps());
}

// Memory of a thread that is kept from call to call.
template <typename T>
T* scratch(long n) {
  thread_local std::vector<T> kept;
  if (static_cast<long>(kept.size()) < n) kept.resize(n);
  return kept.data();
}

}  // namespace transformer
