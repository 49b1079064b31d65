// What networks do with their sums, and its slope.
#pragma once
#include "vectors.h"

namespace transformer {

inline __mmask16 is_negative(__m512 y) { return _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LT_OQ); }

// 1 / (1 + e^-y) by e to a power that is never positive: for y < 0 it is e^y / (1 + e^y).
inline __m512 logistic(__m512 y) {
  const __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(y))), one = _mm512_set1_ps(1.0f);
  return _mm512_div_ps(_mm512_mask_mov_ps(one, is_negative(y), e), _mm512_add_ps(one, e));
}

// The share of a normal distribution below y, (1 + erf(y / sqrt 2)) / 2, to 1e-7: Abramowitz and Stegun 1964, 7.1.26.
inline __m512 share_below(__m512 y) {
  const __m512 one = _mm512_set1_ps(1.0f), x = _mm512_mul_ps(_mm512_abs_ps(y), _mm512_set1_ps(0.707106781f));
  const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(_mm512_set1_ps(0.3275911f), x, one));
  __m512 p = _mm512_set1_ps(0.5f * 1.061405429f);
  for (const float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.5f * coefficient));
  p = _mm512_mul_ps(p, t);
  const __m512 above = _mm512_mul_ps(p, exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(x, x))));
  return _mm512_mask_mov_ps(_mm512_sub_ps(one, above), is_negative(y), above);
}

// (1 + tanh u) / 2 = logistic(2 u) for the u of GELU by tanh, sqrt(2 / pi) (y + 0.044715 y^3).
inline __m512 share_by_tanh(__m512 y) {
  const __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(y, y), _mm512_set1_ps(0.044715f), _mm512_set1_ps(1.0f));
  return logistic(_mm512_mul_ps(_mm512_mul_ps(y, cubic), _mm512_set1_ps(1.59576912f)));
}

inline __m512 relu(__m512 y) { return _mm512_max_ps(_mm512_setzero_ps(), y); }  // in this order, NaN stays
inline __m512 silu(__m512 y) { return _mm512_mul_ps(y, logistic(y)); }
inline __m512 gelu(__m512 y) { return _mm512_mul_ps(y, share_below(y)); }

inline __m512 gelu_by_tanh(__m512 y) { return _mm512_mul_ps(y, share_by_tanh(y)); }

// d/dy of y share(y): share(y) + y density(y).
inline __m512 gelu_slope(__m512 y) {
  const __m512 half = _mm512_mul_ps(_mm512_mul_ps(y, y), _mm512_set1_ps(-0.5f));
  return _mm512_fmadd_ps(_mm512_mul_ps(y, _mm512_set1_ps(0.398942280f)), exponential(half), share_below(y));
}

inline __m512 gelu_by_tanh_slope(__m512 y) {
  const __m512 share = share_by_tanh(y), one = _mm512_set1_ps(1.0f);
  const __m512 inside = _mm512_fmadd_ps(_mm512_mul_ps(y, y), _mm512_set1_ps(3 * 0.044715f * 1.59576912f), _mm512_set1_ps(1.59576912f));
  const __m512 slope = _mm512_mul_ps(_mm512_mul_ps(share, _mm512_sub_ps(one, share)), inside);
  return _mm512_fmadd_ps(y, slope, share);
}

}  // namespace transformer
