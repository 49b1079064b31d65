// Weights to int8 and back to sums, once a model is loaded.
#include "vectors.h"

#include <algorithm>

// Each row in units of its largest absolute number / 127.
extern "C" void transformer_round_rows(const float* weight, long rows, long inner, int8_t* values, float* scales,
                                       int threads) {
  using namespace transformer;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; ++i) {
    const float* row = weight + i * inner;
    __m512 most = _mm512_setzero_ps();
    for (long k = 0; k < inner; k += LANES) most = _mm512_max_ps(most, _mm512_abs_ps(load(row + k, lanes(inner - k))));
    scales[i] = _mm512_reduce_max_ps(most) / 127.0f;
    const __m512 per_unit = _mm512_set1_ps(scales[i] > 0 ? 1.0f / scales[i] : 0.0f);
    for (long k = 0; k < inner; k += LANES) {
      const __mmask16 m = lanes(inner - k);
      const __m512i units = _mm512_cvtps_epi32(_mm512_mul_ps(load(row + k, m), per_unit));
      _mm_mask_storeu_epi8(values + i * inner + k, m, _mm512_cvtsepi32_epi8(units));
    }
  }
}

extern "C" void transformer_sum_rows(const int8_t* values, long rows, long inner, int32_t* sums, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; ++i) {
    int32_t sum = 0;
    for (long k = 0; k < inner; ++k) sum += values[i * inner + k];
    sums[i] = sum;
  }
}
