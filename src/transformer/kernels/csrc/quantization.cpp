// Quantization of weights to int8, and sums of quantized rows, when a model is loaded.
#include "parallel.h"
#include "vectors.h"

#include <algorithm>

// The scale of a row is its largest absolute value / 127.
extern "C" void transformer_quantize_rows(const float* weight, long rows, long inner, int8_t* values, float* scales,
                                          int threads) {
  using namespace transformer;
  parallel_for(rows, threads, [=](long i) {
    const float* row = weight + i * inner;
    VecF32 maxima = broadcast(0.0f);
    for (long k = 0; k < inner; k += LANES) maxima = max(maxima, abs(load(row + k, tail_mask(inner - k))));
    scales[i] = reduce_max(maxima) / 127.0f;
    const VecF32 inverse_scale = broadcast(scales[i] > 0 ? 1.0f / scales[i] : 0.0f);
    for (long k = 0; k < inner; k += LANES) {
      const Mask m = tail_mask(inner - k);
      store_saturated_i8(values + i * inner + k, m, convert_to_i32(load(row + k, m) * inverse_scale));
    }
  });
}

extern "C" void transformer_sum_int8_rows(const int8_t* values, long rows, long inner, int32_t* sums, int threads) {
  transformer::parallel_for(rows, threads, [=](long i) {
    int32_t sum = 0;
    for (long k = 0; k < inner; ++k) sum += values[i * inner + k];
    sums[i] = sum;
  });
}
