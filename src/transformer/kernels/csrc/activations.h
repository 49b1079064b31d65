// Activation functions and their derivatives.
#pragma once
#include "vectors.h"

namespace transformer {

// 1 / (1 + e^-y), computed with a non-positive exponent to avoid overflow: for y < 0 it is e^y / (1 + e^y).
inline VecF32 sigmoid(VecF32 y) {
  const VecF32 e = exp(broadcast(0.0f) - abs(y)), one = broadcast(1.0f);
  return select(is_negative(y), e, one) * reciprocal(one + e);
}

// e^(-y^2 / 2), a factor of both the distribution function and the density of the normal distribution.
inline VecF32 gaussian(VecF32 y) { return exp(y * y * broadcast(-0.5f)); }

// The normal distribution function (1 + erf(y / sqrt 2)) / 2, to 1e-7: Abramowitz and Stegun 1964, 7.1.26.
inline VecF32 normal_cdf(VecF32 y, VecF32 gaussian) {
  const VecF32 one = broadcast(1.0f), limit = broadcast(1e37f);
  const VecF32 t = reciprocal(min(limit, fmadd(broadcast(0.3275911f * 0.707106781f), abs(y), one)));
  VecF32 p = broadcast(0.5f * 1.061405429f);
  for (const float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    p = fmadd(p, t, broadcast(0.5f * coefficient));
  const VecF32 upper_tail = p * t * gaussian;
  return select(is_negative(y), upper_tail, one - upper_tail);
}

// (1 + tanh u) / 2 = sigmoid(2 u), where u is the argument of tanh in the approximation of GELU,
// sqrt(2 / pi) (y + 0.044715 y^3).
inline VecF32 normal_cdf_tanh(VecF32 y) {
  const VecF32 cubic = fmadd(y * y, broadcast(0.044715f), broadcast(1.0f));
  return sigmoid(y * cubic * broadcast(1.59576912f));
}

inline VecF32 relu(VecF32 y) { return max(broadcast(0.0f), y); }  // this operand order preserves NaN
inline VecF32 silu(VecF32 y) { return y * sigmoid(y); }
inline VecF32 gelu(VecF32 y) { return y * normal_cdf(y, gaussian(y)); }

inline VecF32 gelu_tanh(VecF32 y) { return y * normal_cdf_tanh(y); }

// Approximations for results that are rounded to bfloat16: relative error 1.8e-3, or absolute error 1e-8 for y < -6,
// which is less than the rounding error. The normal distribution function is approximated by 1 / (1 + 2^(y p(y^2))),
// where p is the minimax polynomial of degree 4.
inline VecF32 approx_logistic_exp2(VecF32 x) {
  const VecF32 limit = broadcast(200.0f);  // 2^200 is infinite, so that the result is 0
  // This operand order preserves NaN.
  return approx_reciprocal(broadcast(1.0f) + approx_exp2(min(limit, x)));
}

inline VecF32 approx_silu(VecF32 y) { return y * approx_logistic_exp2(y * broadcast(-1.44269504f)); }
inline VecF32 approx_gelu(VecF32 y) {
  const VecF32 square = min(broadcast(36.0f), y * y);  // this operand order preserves NaN
  VecF32 p = broadcast(9.43645944e-8f);
  for (const float coefficient : {-1.84615601e-5f, 0.00152330007f, -0.110034443f, -2.29664135f})
    p = fmadd(p, square, broadcast(coefficient));
  return y * approx_logistic_exp2(y * p);
}
inline VecF32 approx_gelu_tanh(VecF32 y) {
  const VecF32 cubic = fmadd(y * y, broadcast(0.044715f), broadcast(1.0f));
  return y * approx_logistic_exp2(y * cubic * broadcast(-1.59576912f * 1.44269504f));
}

struct WithDerivative {
  VecF32 value, derivative;
};

// GELU(y) = y cdf(y); its derivative is cdf(y) + y pdf(y).
inline WithDerivative gelu_with_derivative(VecF32 y) {
  const VecF32 e = gaussian(y), cdf = normal_cdf(y, e), pdf = e * broadcast(0.398942280f);
  return {y * cdf, fmadd(y, pdf, cdf)};
}

inline WithDerivative gelu_tanh_with_derivative(VecF32 y) {
  const VecF32 cdf = normal_cdf_tanh(y), one = broadcast(1.0f);
  const VecF32 d_argument = fmadd(y * y, broadcast(3 * 0.044715f * 1.59576912f), broadcast(1.59576912f));
  const VecF32 derivative = cdf * (one - cdf) * d_argument;
  return {y * cdf, fmadd(y, derivative, cdf)};
}

}  // namespace transformer
