// What networks do with their sums, and its slope.
#pragma once
#include "vectors.h"

namespace transformer {

inline __mmask16 is_negative(__m512 y) { return _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LT_OQ); }

// 1 / x for 1 <= x < 1e38 or NaN, to 2e-7 of it: an approximation and a step of Newton's take a third of a division.
inline __m512 reciprocal(__m512 x) {
  const __m512 r = _mm512_rcp14_ps(x);
  return _mm512_mul_ps(r, _mm512_fnmadd_ps(x, r, _mm512_set1_ps(2.0f)));
}

// 1 / (1 + e^-y) by e to a power that is never positive: for y < 0 it is e^y / (1 + e^y).
inline __m512 logistic(__m512 y) {
  const __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(y))), one = _mm512_set1_ps(1.0f);
  return _mm512_mul_ps(_mm512_mask_mov_ps(one, is_negative(y), e), reciprocal(_mm512_add_ps(one, e)));
}

// e^(-y^2 / 2), of which both a normal distribution and its density are made.
inline __m512 bell(__m512 y) { return exponential(_mm512_mul_ps(_mm512_mul_ps(y, y), _mm512_set1_ps(-0.5f))); }

// The share of a normal distribution below y, (1 + erf(y / sqrt 2)) / 2, to 1e-7: Abramowitz and Stegun 1964, 7.1.26.
inline __m512 share_below(__m512 y, __m512 bell) {
  const __m512 one = _mm512_set1_ps(1.0f), most = _mm512_set1_ps(1e37f);
  const __m512 t = reciprocal(
      _mm512_min_ps(most, _mm512_fmadd_ps(_mm512_set1_ps(0.3275911f * 0.707106781f), _mm512_abs_ps(y), one)));
  __m512 p = _mm512_set1_ps(0.5f * 1.061405429f);
  for (const float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.5f * coefficient));
  const __m512 above = _mm512_mul_ps(_mm512_mul_ps(p, t), bell);
  return _mm512_mask_mov_ps(_mm512_sub_ps(one, above), is_negative(y), above);
}

// (1 + tanh u) / 2 = logistic(2 u) for the u of GELU by tanh, sqrt(2 / pi) (y + 0.044715 y^3).
inline __m512 share_by_tanh(__m512 y) {
  const __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(y, y), _mm512_set1_ps(0.044715f), _mm512_set1_ps(1.0f));
  return logistic(_mm512_mul_ps(_mm512_mul_ps(y, cubic), _mm512_set1_ps(1.59576912f)));
}

inline __m512 relu(__m512 y) { return _mm512_max_ps(_mm512_setzero_ps(), y); }  // in this order, NaN stays
inline __m512 silu(__m512 y) { return _mm512_mul_ps(y, logistic(y)); }
inline __m512 gelu(__m512 y) { return _mm512_mul_ps(y, share_below(y, bell(y))); }

inline __m512 gelu_by_tanh(__m512 y) { return _mm512_mul_ps(y, share_by_tanh(y)); }

struct WithSlope {
  __m512 value, slope;
};

// y share(y), whose slope is share(y) + y density(y).
inline WithSlope gelu_with_slope(__m512 y) {
  const __m512 e = bell(y), share = share_below(y, e), density = _mm512_mul_ps(e, _mm512_set1_ps(0.398942280f));
  return {_mm512_mul_ps(y, share), _mm512_fmadd_ps(y, density, share)};
}

inline WithSlope gelu_by_tanh_with_slope(__m512 y) {
  const __m512 share = share_by_tanh(y), one = _mm512_set1_ps(1.0f);
  const __m512 inside = _mm512_fmadd_ps(_mm512_mul_ps(y, y), _mm512_set1_ps(3 * 0.044715f * 1.59576912f), _mm512_set1_ps(1.59576912f));
  const __m512 slope = _mm512_mul_ps(_mm512_mul_ps(share, _mm512_sub_ps(one, share)), inside);
  return {_mm512_mul_ps(y, share), _mm512_fmadd_ps(y, slope, share)};
}

}  // namespace transformer
