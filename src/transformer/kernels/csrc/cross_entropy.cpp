// Label-smoothed cross-entropy: replaces logits by their gradient, row by row in place.
#include <algorithm>
#include <cmath>

#include "parallel.h"

namespace transformer {
namespace {

// The softmax of a row is e / sum. `losses` holds the smoothed and the unsmoothed loss.
template <typename T>
struct Row {
  T* logits;
  float* e;
  double sum, log_z, losses[2];
};

// The target is 1 - epsilon on the label plus epsilon / V everywhere. The next row of the thread is `next` elements
// away and is prefetched.
template <typename T>
Row<T> softmax(T* row, float* e, long size, long label, float epsilon, long next) {
  VecF32 maxima = broadcast(-INFINITY), exp_sum = broadcast(0.0f), logit_sum = broadcast(0.0f);
  const long full_columns = size / LANES * LANES;
  const Mask all_lanes = tail_mask(LANES), tail = tail_mask(size - full_columns);
  for (long j = 0; j < full_columns; j += LANES) {
    const VecF32 x = load(row + j, all_lanes);
    maxima = max(maxima, x);
    logit_sum = logit_sum + x;
  }
  if (tail) {
    const VecF32 x = load(row + full_columns, tail);
    maxima = select(tail, max(maxima, x), maxima);
    logit_sum = logit_sum + x;
  }
  const float row_max = reduce_max(maxima);
  const VecF32 shift = broadcast(row_max);
  for (long j = 0; j < full_columns; j += LANES) {
    const VecF32 value = exp(load(row + j, all_lanes) - shift);
    _mm_prefetch(reinterpret_cast<const char*>(row + next + j), _MM_HINT_T1);
    store(e + j, value);
    exp_sum = exp_sum + value;
  }
  if (tail) {
    const VecF32 value = maskz(tail, exp(load(row + full_columns, tail) - shift));
    store(e + full_columns, value);
    exp_sum = exp_sum + value;
  }
  const float label_logit = reduce_add(load(row + label, tail_mask(1)));
  const double sum = reduce_add(exp_sum), log_z = row_max + std::log(sum), unsmoothed = log_z - label_logit;
  return {
      row, e, sum, log_z, {(1 - epsilon) * unsmoothed + epsilon * (log_z - reduce_add(logit_sum) / size), unsmoothed}};
}

// Overwrites logits with softmax minus target.
template <typename T>
void to_gradient(const Row<T>& row, long size, long label, float epsilon) {
  const VecF32 factor = broadcast(static_cast<float>(1 / row.sum)), smoothing = broadcast(epsilon / size);
  row.e[label] += (epsilon - 1) * static_cast<float>(row.sum);
  const auto write = [&](long j, Mask m) __attribute__((always_inline)) {
    store(row.logits + j, m, load(row.e + j) * factor - smoothing);
  };
  long j = 0;
  for (; j + LANES <= size; j += LANES) write(j, tail_mask(LANES));
  if (j < size) write(j, tail_mask(size - j));
}

// Same as `to_gradient` for two predictions p and q of one label, plus `weight` times the mean of KL(p || q) and KL(q
// || p), half of which is added to each loss. With r = log p - log q, the gradient of this mean with respect to the
// logits of p is (p (r - KL(p || q)) + p - q) / 2; for the logits of q, p and q are exchanged.
template <typename T>
void pair_to_gradient(Row<T>& a, Row<T>& b, long size, long label, float epsilon, float weight) {
  const VecF32 inverse_a = broadcast(static_cast<float>(1 / a.sum)),
               inverse_b = broadcast(static_cast<float>(1 / b.sum));
  const VecF32 shift = broadcast(static_cast<float>(a.log_z - b.log_z));
  VecF32 kl_a_sums = broadcast(0.0f), kl_b_sums = broadcast(0.0f);
  for (long j = 0; j < size; j += LANES) {
    const Mask m = tail_mask(size - j);
    const VecF32 p = load(a.e + j) * inverse_a, q = load(b.e + j) * inverse_b;
    const VecF32 r = load(a.logits + j, m) - load(b.logits + j, m) - shift;
    kl_a_sums = select(m, fmadd(p, r, kl_a_sums), kl_a_sums);
    kl_b_sums = select(m, fnmadd(q, r, kl_b_sums), kl_b_sums);
  }
  const float kl_a = reduce_add(kl_a_sums), kl_b = reduce_add(kl_b_sums);
  a.losses[0] += 0.25 * weight * (kl_a + kl_b);
  b.losses[0] += 0.25 * weight * (kl_a + kl_b);
  const VecF32 half = broadcast(0.5F * weight), smoothing = broadcast(epsilon / size);
  const VecF32 kl_a_vector = broadcast(kl_a), kl_b_vector = broadcast(kl_b);
  for (long j = 0; j < size; j += LANES) {
    const Mask m = tail_mask(size - j);
    const VecF32 p = load(a.e + j) * inverse_a, q = load(b.e + j) * inverse_b;
    const VecF32 r = load(a.logits + j, m) - load(b.logits + j, m) - shift;
    const VecF32 difference = p - q;
    const VecF32 da = fmadd(p, r - kl_a_vector, difference);
    const VecF32 db = fnmsub(q, r + kl_b_vector, difference);
    store(a.e + j, fmadd(half, da, p - smoothing));
    store(b.e + j, fmadd(half, db, q - smoothing));
  }
  for (const Row<T>& row : {a, b}) {
    row.e[label] += epsilon - 1;
    for (long j = 0; j < size; j += LANES) store(row.logits + j, tail_mask(size - j), load(row.e + j));
  }
}

template <typename T>
void rows_to_gradient(T* logits, long stride, const int64_t* labels, long rows, long size, float epsilon, float weight,
                      double* losses, int threads) {
  const long rows_per_task = weight > 0 ? 2 : 1, next = rows_per_task * stride;
  parallel_for((rows + rows_per_task - 1) / rows_per_task, threads, [=](long task) {
    const long i = task * rows_per_task;
    float* e = scratch<float, 30>(2 * (size + LANES));
    Row<T> row = softmax(logits + i * stride, e, size, labels[i], epsilon, next);
    if (rows_per_task == 2) {
      Row<T> other = softmax(logits + (i + 1) * stride, e + size + LANES, size, labels[i + 1], epsilon, next);
      pair_to_gradient(row, other, size, labels[i], epsilon, weight);
      std::copy_n(other.losses, 2, losses + 2 * i + 2);
    } else {
      to_gradient(row, size, labels[i], epsilon);
    }
    std::copy_n(row.losses, 2, losses + 2 * i);
  });
}

}  // namespace
}  // namespace transformer

// If `weight` is positive, rows 2i and 2i + 1 are two predictions of one label. Returns 1 and changes nothing if a
// label is out of range.
extern "C" int transformer_cross_entropy(void* logits, long stride, const int64_t* labels, long rows, long size,
                                         float epsilon, float weight, int is_bfloat16, double* losses, int threads) {
  using namespace transformer;
  if (std::any_of(labels, labels + rows, [size](int64_t label) { return label < 0 || label >= size; })) return 1;
  if (is_bfloat16)
    rows_to_gradient(static_cast<uint16_t*>(logits), stride, labels, rows, size, epsilon, weight, losses, threads);
  else
    rows_to_gradient(static_cast<float*>(logits), stride, labels, rows, size, epsilon, weight, losses, threads);
  return 0;
}
