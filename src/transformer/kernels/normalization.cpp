// LayerNorm(x + y), row by row, in one pass over memory.
#include "kernels.h"

#include <cmath>

extern "C" void transformer_add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps,
                                     long rows, long width, float* out) {
  using namespace transformer;
  for (long i = 0; i < rows; ++i, x += width, out += width) {
    __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    for (long k = 0; k < width; k += LANES) {
      const __mmask16 m = lanes(width - k);
      const __m512 v = y ? _mm512_add_ps(load(x + k, m), load(y + k, m)) : load(x + k, m);
      store(out + k, m, v);
      sum = _mm512_add_ps(sum, v);
    }
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width);
    for (long k = 0; k < width; k += LANES) {
      const __mmask16 m = lanes(width - k);
      const __m512 d = _mm512_maskz_sub_ps(m, load(out + k, m), mean);
      squares = _mm512_fmadd_ps(d, d, squares);
    }
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / width + eps));
    for (long k = 0; k < width; k += LANES) {
      const __mmask16 m = lanes(width - k);
      const __m512 d = _mm512_mul_ps(_mm512_sub_ps(load(out + k, m), mean), factor);
      store(out + k, m, _mm512_fmadd_ps(d, load(alpha + k, m), load(beta + k, m)));
    }
    if (y) y += width;
  }
}
