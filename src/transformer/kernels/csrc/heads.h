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
  const TrainingAttention& a;
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
    dropout<T, T>(nullptr, weights<T>(), n, used, {a.seed, a.levels}, number * ((n + MASK_BLOCK - 1) / MASK_BLOCK));
    return used;
  }
  const bool* mask(long query) const {
    return a.mask ? a.mask + batch * a.mask_batch + query * a.mask_query : nullptr;
  }
};

// softmax(scale * scores) of one row; zeros if all positions are masked.
template <typename T>
void softmax(float* scores, const bool* mask, float scale, long n, T* weights) {
  VecF32 most = broadcast(NEVER), total = broadcast(0.0f);
  for (long s = 0; s < n; s += LANES) {
    Mask m = tail_mask(n - s);
    if (mask) m = load_bool_mask(mask + s, m);
    const VecF32 found = select(m, load(scores + s, m) * broadcast(scale), broadcast(NEVER));
    store(scores + s, found);
    most = max(found, most);  // this operand order ignores NaN, which reappears in the sum
  }
  const float largest = reduce_max(most);
  const VecF32 shift = broadcast(largest == NEVER ? 0.0f : largest);
  for (long s = 0; s < n; s += LANES) {
    const VecF32 e = exp(load(scores + s) - shift);
    store(scores + s, e);
    total = total + e;
  }
  const float sum = reduce_add(total);
  const VecF32 factor = broadcast(sum == 0 ? 0.0f : 1.0f / sum);
  for (long s = 0; s < n; s += LANES)
    store(weights + s, tail_mask(even(n) - s), load(scores + s) * factor);
}

// The gradient of the scores: scale * (u du - w * sum of u du), with weights w, weights after dropout u, and the
// gradient du of u. Without dropout u is w; with it, u du is w times the gradient of w.
template <typename T>
void softmax_gradient(const T* weights, const T* used, const float* d_used, float scale, long n, T* d_scores) {
  VecF32 total = broadcast(0.0f);
  for (long s = 0; s < n; s += LANES)
    total = fmadd(load(used + s, tail_mask(n - s)), load(d_used + s, tail_mask(n - s)), total);
  const VecF32 mean = broadcast(reduce_add(total)), factor = broadcast(scale);
  for (long s = 0; s < n; s += LANES) {
    const VecF32 own = load(used + s, tail_mask(n - s)) * load(d_used + s, tail_mask(n - s));
    const VecF32 found = fnmadd(load(weights + s, tail_mask(n - s)), mean, own);
    store(d_scores + s, tail_mask(even(n) - s), found * factor);
  }
}

}  // namespace
}  // namespace transformer
