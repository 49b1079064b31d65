// Logits to the gradient of their label-smoothed cross-entropy, row by row in place.
#include <algorithm>
#include <cmath>

#include "vectors.h"

namespace transformer {
namespace {

// The target is 1 - epsilon on the label and epsilon / V on all. `losses` takes the smoothed loss and the plain one.
template <typename T>
void to_gradient(T* row, long size, long label, float epsilon, double* losses) {
  float* e = scratch<float, 30>(size + LANES);
  __m512 most = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps(), all = _mm512_setzero_ps();
  for (long j = 0; j < size; j += LANES) {
    const __mmask16 m = lanes(size - j);
    const __m512 x = load(row + j, m);
    _mm512_storeu_ps(e + j, _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), m, x));
    most = _mm512_mask_max_ps(most, m, most, x);
    all = _mm512_add_ps(all, x);
  }
  const float largest = _mm512_reduce_max_ps(most), chosen = e[label];
  const __m512 shift = _mm512_set1_ps(largest);
  for (long j = 0; j < size; j += LANES) {
    const __m512 found = exponential(_mm512_sub_ps(_mm512_loadu_ps(e + j), shift));
    _mm512_storeu_ps(e + j, found);
    total = _mm512_add_ps(total, found);
  }
  const double sum = _mm512_reduce_add_ps(total), log_z = largest + std::log(sum), plain = log_z - chosen;
  losses[0] = (1 - epsilon) * plain + epsilon * (log_z - _mm512_reduce_add_ps(all) / size);
  losses[1] = plain;
  const __m512 factor = _mm512_set1_ps(static_cast<float>(1 / sum)), spread = _mm512_set1_ps(epsilon / size);
  e[label] += (epsilon - 1) * static_cast<float>(sum);
  for (long j = 0; j < size; j += LANES)
    store(row + j, lanes(size - j), _mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(e + j), factor), spread));
}

template <typename T>
void all_to_gradient(T* logits, long stride, const int64_t* labels, long rows, long size, float epsilon, double* losses,
                     int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; ++i) to_gradient(logits + i * stride, size, labels[i], epsilon, losses + 2 * i);
}

}  // namespace
}  // namespace transformer

// Returns 1, and changes nothing, where a label is no column.
extern "C" int transformer_cross_entropy(void* logits, long stride, const int64_t* labels, long rows, long size,
                                         float epsilon, int is_bfloat16, double* losses, int threads) {
  using namespace transformer;
  if (std::any_of(labels, labels + rows, [size](int64_t label) { return label < 0 || label >= size; })) return 1;
  if (is_bfloat16)
    all_to_gradient(static_cast<uint16_t*>(logits), stride, labels, rows, size, epsilon, losses, threads);
  else
    all_to_gradient(static_cast<float*>(logits), stride, labels, rows, size, epsilon, losses, threads);
  return 0;
}
