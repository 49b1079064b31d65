// Logits to the gradient of their label-smoothed cross-entropy, row by row in place.
#include <algorithm>
#include <cmath>

#include "vectors.h"

namespace transformer {
namespace {

// A row's softmax is e / sum; `losses` takes the smoothed loss and the plain one.
template <typename T>
struct Row {
  T* logits;
  float* e;
  double sum, log_z, losses[2];
};

// The target is 1 - epsilon on the label and epsilon / V on all.
template <typename T>
Row<T> softmax(T* row, float* e, long size, long label, float epsilon) {
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
  return {row, e, sum, log_z, {(1 - epsilon) * plain + epsilon * (log_z - _mm512_reduce_add_ps(all) / size), plain}};
}

// Overwrites logits by softmax minus target.
template <typename T>
void to_gradient(const Row<T>& row, long size, long label, float epsilon) {
  const __m512 factor = _mm512_set1_ps(static_cast<float>(1 / row.sum)), spread = _mm512_set1_ps(epsilon / size);
  row.e[label] += (epsilon - 1) * static_cast<float>(row.sum);
  for (long j = 0; j < size; j += LANES)
    store(row.logits + j, lanes(size - j),
          _mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(row.e + j), factor), spread));
}

// Two distributions p and q of one label, as `to_gradient`, with `weight` times the mean of KL(p || q) and KL(q || p),
// half of which is added to either loss. With r = log p - log q, the gradient of that mean to the logits of p is
// (p (r - KL(p || q)) + p - q) / 2, and to those of q the same with p and q exchanged.
template <typename T>
void pair_to_gradient(Row<T>& a, Row<T>& b, long size, long label, float epsilon, float weight) {
  const __m512 of_a = _mm512_set1_ps(static_cast<float>(1 / a.sum)), of_b = _mm512_set1_ps(static_cast<float>(1 / b.sum));
  const __m512 shift = _mm512_set1_ps(static_cast<float>(a.log_z - b.log_z));
  __m512 forward = _mm512_setzero_ps(), back = _mm512_setzero_ps();
  for (long j = 0; j < size; j += LANES) {
    const __mmask16 m = lanes(size - j);
    const __m512 p = _mm512_mul_ps(_mm512_loadu_ps(a.e + j), of_a), q = _mm512_mul_ps(_mm512_loadu_ps(b.e + j), of_b);
    const __m512 r = _mm512_sub_ps(_mm512_sub_ps(load(a.logits + j, m), load(b.logits + j, m)), shift);
    forward = _mm512_mask3_fmadd_ps(p, r, forward, m);
    back = _mm512_mask3_fnmadd_ps(q, r, back, m);
  }
  const float kl_a = _mm512_reduce_add_ps(forward), kl_b = _mm512_reduce_add_ps(back);
  a.losses[0] += 0.25 * weight * (kl_a + kl_b);
  b.losses[0] += 0.25 * weight * (kl_a + kl_b);
  const __m512 half = _mm512_set1_ps(0.5F * weight), spread = _mm512_set1_ps(epsilon / size);
  const __m512 mean_a = _mm512_set1_ps(kl_a), mean_b = _mm512_set1_ps(kl_b);
  for (long j = 0; j < size; j += LANES) {
    const __mmask16 m = lanes(size - j);
    const __m512 p = _mm512_mul_ps(_mm512_loadu_ps(a.e + j), of_a), q = _mm512_mul_ps(_mm512_loadu_ps(b.e + j), of_b);
    const __m512 r = _mm512_sub_ps(_mm512_sub_ps(load(a.logits + j, m), load(b.logits + j, m)), shift);
    const __m512 apart = _mm512_sub_ps(p, q);
    const __m512 da = _mm512_fmadd_ps(p, _mm512_sub_ps(r, mean_a), apart);
    const __m512 db = _mm512_fnmsub_ps(q, _mm512_add_ps(r, mean_b), apart);
    _mm512_storeu_ps(a.e + j, _mm512_fmadd_ps(half, da, _mm512_sub_ps(p, spread)));
    _mm512_storeu_ps(b.e + j, _mm512_fmadd_ps(half, db, _mm512_sub_ps(q, spread)));
  }
  for (const Row<T>& row : {a, b}) {
    row.e[label] += epsilon - 1;
    for (long j = 0; j < size; j += LANES) store(row.logits + j, lanes(size - j), _mm512_loadu_ps(row.e + j));
  }
}

template <typename T>
void all_to_gradient(T* logits, long stride, const int64_t* labels, long rows, long size, float epsilon, float weight,
                     double* losses, int threads) {
  const long side_by_side = weight > 0 ? 2 : 1;
#pragma omp parallel for schedule(guided) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; i += side_by_side) {
    float* e = scratch<float, 30>(2 * (size + LANES));
    Row<T> row = softmax(logits + i * stride, e, size, labels[i], epsilon);
    if (side_by_side == 2) {
      Row<T> other = softmax(logits + (i + 1) * stride, e + size + LANES, size, labels[i + 1], epsilon);
      pair_to_gradient(row, other, size, labels[i], epsilon, weight);
      std::copy_n(other.losses, 2, losses + 2 * i + 2);
    } else {
      to_gradient(row, size, labels[i], epsilon);
    }
    std::copy_n(row.losses, 2, losses + 2 * i);
  }
}

}  // namespace
}  // namespace transformer

// With a weight, rows 2i and 2i + 1 are two distributions of one label. Returns 1, and changes nothing, where a label is
// no column.
extern "C" int transformer_cross_entropy(void* logits, long stride, const int64_t* labels, long rows, long size,
                                         float epsilon, float weight, int is_bfloat16, double* losses,
                                         int threads) {
  using namespace transformer;
  if (std::any_of(labels, labels + rows, [size](int64_t label) { return label < 0 || label >= size; })) return 1;
  if (is_bfloat16)
    all_to_gradient(static_cast<uint16_t*>(logits), stride, labels, rows, size, epsilon, weight, losses, threads);
  else
    all_to_gradient(static_cast<float*>(logits), stride, labels, rows, size, epsilon, weight, losses, threads);
  return 0;
}
