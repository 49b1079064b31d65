// One head of attention in training, and the operations between its products.
#pragma once
#include "kernels.h"
#include "random.h"

#include <algorithm>
#include <limits>

namespace transformer {
namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();

// Rows of weights are padded to an even length with a zero.
long even(long n) { return n + n % 2; }

struct Head {
  const TrainedAttention& a;
  long batch, head;

  template <typename T>
  const T* of(const Heads& x) const {
    return static_cast<const T*>(x.data) + batch * x.batch + head * x.head;
  }
  template <typename T>
  T* to(const Heads& x) const {
    return const_cast<T*>(of<T>(x));
  }
  // Strides of a tensor of shape (batch, positions, heads, width).
  template <typename T>
  T* within(const void* data, long positions) const {
    return static_cast<T*>(const_cast<void*>(data)) + (batch * positions * a.heads + head) * a.width;
  }
  template <typename T>
  T* weights() const {
    return static_cast<T*>(a.weights) + (batch * a.heads + head) * a.queries * even(a.positions);
  }
  // The weights after dropout, in scratch memory of the thread; the weights themselves without dropout.
  template <typename T>
  const T* used_weights() const {
    const long n = a.queries * even(a.positions), number = batch * a.heads + head;
    if (!a.levels) return weights<T>();
    T* used = scratch<T, 22>(n);
    drop_out<T, T>(nullptr, weights<T>(), n, used, {a.seed, a.levels}, number * ((n + DRAWN - 1) / DRAWN));
    return used;
  }
  const bool* mask(long query) const {
    return a.mask ? a.mask + batch * a.mask_batch + query * a.mask_query : nullptr;
  }
};

// softmax(scale * scores) of one row; zeros if all positions are masked.
template <typename T>
void softmax(float* scores, const bool* mask, float scale, long n, T* weights) {
  Floats most = spread(NEVER), total = spread(0.0f);
  for (long s = 0; s < n; s += LANES) {
    Mask m = lanes(n - s);
    if (mask) m = are_true(mask + s, m);
    const Floats found = choose(m, load(scores + s, m) * spread(scale), spread(NEVER));
    store(scores + s, found);
    most = larger(found, most);  // this operand order ignores NaN, which reappears in the sum
  }
  const float largest = largest_of(most);
  const Floats shift = spread(largest == NEVER ? 0.0f : largest);
  for (long s = 0; s < n; s += LANES) {
    const Floats e = exponential(load(scores + s) - shift);
    store(scores + s, e);
    total = total + e;
  }
  const float sum = sum_of(total);
  const Floats factor = spread(sum == 0 ? 0.0f : 1.0f / sum);
  for (long s = 0; s < n; s += LANES)
    store(weights + s, lanes(even(n) - s), load(scores + s) * factor);
}

// The gradient of the scores: scale * (u du - w * sum of u du), with weights w, weights after dropout u, and the
// gradient du of u. Without dropout u is w; with it, u du is w times the gradient of w.
template <typename T>
void softmax_gradient(const T* weights, const T* used, const float* d_used, float scale, long n, T* d_scores) {
  Floats total = spread(0.0f);
  for (long s = 0; s < n; s += LANES)
    total = multiply_add(load(used + s, lanes(n - s)), load(d_used + s, lanes(n - s)), total);
  const Floats mean = spread(sum_of(total)), factor = spread(scale);
  for (long s = 0; s < n; s += LANES) {
    const Floats own = load(used + s, lanes(n - s)) * load(d_used + s, lanes(n - s));
    const Floats found = negative_multiply_add(load(weights + s, lanes(n - s)), mean, own);
    store(d_scores + s, lanes(even(n) - s), found * factor);
  }
}

}  // namespace
}  // namespace transformer
