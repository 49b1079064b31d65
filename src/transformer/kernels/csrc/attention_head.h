// One head of attention in training, with softmax and its gradient.
#pragma once
#include "kernels.h"
#include "dropout.h"

#include <algorithm>
#include <limits>

namespace transformer {
namespace {

constexpr float NEG_INFINITY = -std::numeric_limits<float>::infinity();

// Rows of weights are padded to an even length with a zero.
long round_up_to_even(long n) { return n + n % 2; }

struct Head {
  const TrainingAttention& a;
  long batch, head;

  template <typename T>
  const T* data(const StridedHeads& x) const {
    return static_cast<const T*>(x.data) + batch * x.batch + head * x.head;
  }
  template <typename T>
  T* mutable_data(const StridedHeads& x) const {
    return const_cast<T*>(data<T>(x));
  }
  // The head within a contiguous tensor of shape (batch, positions, heads, width).
  template <typename T>
  T* data_bshd(const void* data, long positions) const {
    return static_cast<T*>(const_cast<void*>(data)) + (batch * positions * a.heads + head) * a.width;
  }
  template <typename T>
  T* weights() const {
    return static_cast<T*>(a.weights) + (batch * a.heads + head) * a.queries * round_up_to_even(a.positions);
  }
  // The weights after dropout, in scratch memory of the thread; the weights themselves without dropout.
  template <typename T>
  const T* dropped_weights() const {
    const long n = a.queries * round_up_to_even(a.positions), index = batch * a.heads + head;
    if (!a.levels) return weights<T>();
    T* dropped = scratch<T, 22>(n);
    dropout<T, T>(nullptr, weights<T>(), n, dropped, {a.seed, a.levels}, index * ((n + MASK_BLOCK - 1) / MASK_BLOCK));
    return dropped;
  }
  const bool* mask(long query) const { return a.mask ? a.mask + batch * a.mask_batch + query * a.mask_query : nullptr; }
};

// softmax(scale * scores) of one row; zeros if all positions are masked.
template <typename T>
void softmax(float* scores, const bool* mask, float scale, long n, T* weights) {
  VecF32 maxima = broadcast(NEG_INFINITY), exp_sum = broadcast(0.0f);
  for (long s = 0; s < n; s += LANES) {
    Mask m = tail_mask(n - s);
    if (mask) m = load_bool_mask(mask + s, m);
    const VecF32 result = select(m, load(scores + s, m) * broadcast(scale), broadcast(NEG_INFINITY));
    store(scores + s, result);
    maxima = max(result, maxima);  // this operand order ignores NaN, which reappears in the sum
  }
  const float row_max = reduce_max(maxima);
  const VecF32 shift = broadcast(row_max == NEG_INFINITY ? 0.0f : row_max);
  for (long s = 0; s < n; s += LANES) {
    const VecF32 e = exp(load(scores + s) - shift);
    store(scores + s, e);
    exp_sum = exp_sum + e;
  }
  const float sum = reduce_add(exp_sum);
  const VecF32 factor = broadcast(sum == 0 ? 0.0f : 1.0f / sum);
  for (long s = 0; s < n; s += LANES) store(weights + s, tail_mask(round_up_to_even(n) - s), load(scores + s) * factor);
}

// The gradient of the scores: scale * (u du - w * sum of u du), with weights w, weights after dropout u, and the
// gradient du of u. Without dropout u is w; with it, u du is w times the gradient of w.
template <typename T>
void softmax_gradient(const T* weights, const T* dropped, const float* d_dropped, float scale, long n, T* d_scores) {
  VecF32 dot = broadcast(0.0f);
  for (long s = 0; s < n; s += LANES)
    dot = fmadd(load(dropped + s, tail_mask(n - s)), load(d_dropped + s, tail_mask(n - s)), dot);
  const VecF32 weighted_sum = broadcast(reduce_add(dot)), factor = broadcast(scale);
  for (long s = 0; s < n; s += LANES) {
    const VecF32 products = load(dropped + s, tail_mask(n - s)) * load(d_dropped + s, tail_mask(n - s));
    const VecF32 result = fnmadd(load(weights + s, tail_mask(n - s)), weighted_sum, products);
    store(d_scores + s, tail_mask(round_up_to_even(n) - s), result * factor);
  }
}

}  // namespace
}  // namespace transformer
