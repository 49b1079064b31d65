// Label-smoothed cross-entropy: replaces logits by their gradient, row by row in place.
#include <algorithm>
#include <cmath>

#include "sharing.h"

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
  Floats most = spread(-INFINITY), total = spread(0.0f), all = spread(0.0f);
  const long whole = size / LANES * LANES;
  const Mask all_lanes = lanes(LANES), rest = lanes(size - whole);
  for (long j = 0; j < whole; j += LANES) {
    const Floats x = load(row + j, all_lanes);
    most = larger(most, x);
    all = all + x;
  }
  if (rest) {
    const Floats x = load(row + whole, rest);
    most = choose(rest, larger(most, x), most);
    all = all + x;
  }
  const float largest = largest_of(most);
  const Floats shift = spread(largest);
  for (long j = 0; j < whole; j += LANES) {
    const Floats found = exponential(load(row + j, all_lanes) - shift);
    _mm_prefetch(reinterpret_cast<const char*>(row + next + j), _MM_HINT_T1);
    store(e + j, found);
    total = total + found;
  }
  if (rest) {
    const Floats found = keep(rest, exponential(load(row + whole, rest) - shift));
    store(e + whole, found);
    total = total + found;
  }
  const float chosen = sum_of(load(row + label, lanes(1)));
  const double sum = sum_of(total), log_z = largest + std::log(sum), plain = log_z - chosen;
  return {row, e, sum, log_z, {(1 - epsilon) * plain + epsilon * (log_z - sum_of(all) / size), plain}};
}

// Overwrites logits with softmax minus target.
template <typename T>
void to_gradient(const Row<T>& row, long size, long label, float epsilon) {
  const Floats factor = spread(static_cast<float>(1 / row.sum)), share = spread(epsilon / size);
  row.e[label] += (epsilon - 1) * static_cast<float>(row.sum);
  const auto write = [&](long j, Mask m) __attribute__((always_inline)) {
    store(row.logits + j, m, load(row.e + j) * factor - share);
  };
  long j = 0;
  for (; j + LANES <= size; j += LANES) write(j, lanes(LANES));
  if (j < size) write(j, lanes(size - j));
}

// Same as `to_gradient` for two predictions p and q of one label, plus `weight` times the mean of KL(p || q) and KL(q
// || p), half of which is added to each loss. With r = log p - log q, the gradient of this mean with respect to the
// logits of p is (p (r - KL(p || q)) + p - q) / 2; for the logits of q, p and q are exchanged.
template <typename T>
void pair_to_gradient(Row<T>& a, Row<T>& b, long size, long label, float epsilon, float weight) {
  const Floats of_a = spread(static_cast<float>(1 / a.sum)), of_b = spread(static_cast<float>(1 / b.sum));
  const Floats shift = spread(static_cast<float>(a.log_z - b.log_z));
  Floats forward = spread(0.0f), back = spread(0.0f);
  for (long j = 0; j < size; j += LANES) {
    const Mask m = lanes(size - j);
    const Floats p = load(a.e + j) * of_a, q = load(b.e + j) * of_b;
    const Floats r = load(a.logits + j, m) - load(b.logits + j, m) - shift;
    forward = choose(m, multiply_add(p, r, forward), forward);
    back = choose(m, negative_multiply_add(q, r, back), back);
  }
  const float kl_a = sum_of(forward), kl_b = sum_of(back);
  a.losses[0] += 0.25 * weight * (kl_a + kl_b);
  b.losses[0] += 0.25 * weight * (kl_a + kl_b);
  const Floats half = spread(0.5F * weight), share = spread(epsilon / size);
  const Floats mean_a = spread(kl_a), mean_b = spread(kl_b);
  for (long j = 0; j < size; j += LANES) {
    const Mask m = lanes(size - j);
    const Floats p = load(a.e + j) * of_a, q = load(b.e + j) * of_b;
    const Floats r = load(a.logits + j, m) - load(b.logits + j, m) - shift;
    const Floats apart = p - q;
    const Floats da = multiply_add(p, r - mean_a, apart);
    const Floats db = negative_multiply_subtract(q, r + mean_b, apart);
    store(a.e + j, multiply_add(half, da, p - share));
    store(b.e + j, multiply_add(half, db, q - share));
  }
  for (const Row<T>& row : {a, b}) {
    row.e[label] += epsilon - 1;
    for (long j = 0; j < size; j += LANES) store(row.logits + j, lanes(size - j), load(row.e + j));
  }
}

template <typename T>
void all_to_gradient(T* logits, long stride, const int64_t* labels, long rows, long size, float epsilon, float weight,
                     double* losses, int threads) {
  const long side_by_side = weight > 0 ? 2 : 1, next = side_by_side * stride;
  share((rows + side_by_side - 1) / side_by_side, threads, [=](long task) {
    const long i = task * side_by_side;
    float* e = scratch<float, 30>(2 * (size + LANES));
    Row<T> row = softmax(logits + i * stride, e, size, labels[i], epsilon, next);
    if (side_by_side == 2) {
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
