// Activation functions and their derivatives.
#pragma once
#include "vectors.h"

namespace transformer {

// 1 / (1 + e^-y), computed with a non-positive exponent to avoid overflow: for y < 0 it is e^y / (1 + e^y).
inline Floats logistic(Floats y) {
  const Floats e = exponential(spread(0.0f) - absolute(y)), one = spread(1.0f);
  return choose(is_negative(y), e, one) * reciprocal(one + e);
}

// e^(-y^2 / 2), a factor of both the distribution function and the density of the normal distribution.
inline Floats bell(Floats y) { return exponential(y * y * spread(-0.5f)); }

// The normal distribution function (1 + erf(y / sqrt 2)) / 2, to 1e-7: Abramowitz and Stegun 1964, 7.1.26.
inline Floats share_below(Floats y, Floats bell) {
  const Floats one = spread(1.0f), most = spread(1e37f);
  const Floats t = reciprocal(smaller(most, multiply_add(spread(0.3275911f * 0.707106781f), absolute(y), one)));
  Floats p = spread(0.5f * 1.061405429f);
  for (const float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    p = multiply_add(p, t, spread(0.5f * coefficient));
  const Floats above = p * t * bell;
  return choose(is_negative(y), above, one - above);
}

// (1 + tanh u) / 2 = logistic(2 u), where u is the argument of tanh in the approximation of GELU,
// sqrt(2 / pi) (y + 0.044715 y^3).
inline Floats share_by_tanh(Floats y) {
  const Floats cubic = multiply_add(y * y, spread(0.044715f), spread(1.0f));
  return logistic(y * cubic * spread(1.59576912f));
}

inline Floats relu(Floats y) { return larger(spread(0.0f), y); }  // this operand order preserves NaN
inline Floats silu(Floats y) { return y * logistic(y); }
inline Floats gelu(Floats y) { return y * share_below(y, bell(y)); }

inline Floats gelu_by_tanh(Floats y) { return y * share_by_tanh(y); }

// Approximations for results that are rounded to bfloat16: relative error 1.8e-3, or absolute error 1e-8 for y < -6,
// which is less than rounding loses. The normal distribution function is approximated by 1 / (1 + 2^(y p(y^2))), where
// p is the minimax polynomial of degree 4.
inline Floats rough_share(Floats exponent) {
  const Floats most = spread(200.0f);  // 2^200 is infinite, so that the result is 0
  // This operand order preserves NaN.
  return rough_reciprocal(spread(1.0f) + rough_power_of_two(smaller(most, exponent)));
}

inline Floats rough_silu(Floats y) { return y * rough_share(y * spread(-1.44269504f)); }
inline Floats rough_gelu(Floats y) {
  const Floats square = smaller(spread(36.0f), y * y);  // this operand order preserves NaN
  Floats p = spread(9.43645944e-8f);
  for (const float coefficient : {-1.84615601e-5f, 0.00152330007f, -0.110034443f, -2.29664135f})
    p = multiply_add(p, square, spread(coefficient));
  return y * rough_share(y * p);
}
inline Floats rough_gelu_by_tanh(Floats y) {
  const Floats cubic = multiply_add(y * y, spread(0.044715f), spread(1.0f));
  return y * rough_share(y * cubic * spread(-1.59576912f * 1.44269504f));
}

struct WithSlope {
  Floats value, slope;
};

// GELU(y) = y share(y); its derivative is share(y) + y density(y).
inline WithSlope gelu_with_slope(Floats y) {
  const Floats e = bell(y), share = share_below(y, e), density = e * spread(0.398942280f);
  return {y * share, multiply_add(y, density, share)};
}

inline WithSlope gelu_by_tanh_with_slope(Floats y) {
  const Floats share = share_by_tanh(y), one = spread(1.0f);
  const Floats inside = multiply_add(y * y, spread(3 * 0.044715f * 1.59576912f), spread(1.59576912f));
  const Floats slope = share * (one - share) * inside;
  return {y * share, multiply_add(y, slope, share)};
}

}  // namespace transformer
