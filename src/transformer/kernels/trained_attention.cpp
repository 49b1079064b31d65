// Attention and its gradient, one head at a time: the products of a head and what comes between them stay in a core's
// cache. Products take float32 or bfloat16, as `matmul.cpp`; sums, softmax and its gradient are float32.
#include "kernels.h"

#include <algorithm>
#include <limits>

#include "random.h"

namespace transformer {
namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();

// Weights are kept with rows of an even length, whose last element is zero where it is one too many.
long even(long n) { return n + n % 2; }

struct Head {
  const TrainedAttention& a;
  long batch, head;

  template <typename T>
  const T* of(const Heads& x) const {
    return static_cast<const T*>(x.data) + batch * x.batch + head * x.head;
  }
  // Of what is laid out as (batch, positions, heads, width).
  template <typename T>
  T* within(const void* data, long positions) const {
    return static_cast<T*>(const_cast<void*>(data)) + (batch * positions * a.heads + head) * a.width;
  }
  template <typename T>
  T* weights() const {
    return static_cast<T*>(a.weights) + (batch * a.heads + head) * a.queries * even(a.positions);
  }
  // The weights after dropout, in memory of the thread; the weights themselves where nothing is dropped.
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

template <typename T>
constexpr int IS_BFLOAT16 = sizeof(T) == 2;

template <typename T>
Layout rows(const T* data, long stride, int is_padded = 0) {
  return {data, stride, IS_BFLOAT16<T>, 0, is_padded};
}

Layout transposed(Layout x) { return {x.data, x.stride, x.is_bfloat16, 1, 0}; }

template <typename T, typename U>
void multiply(const Layout& a, const Layout& b, U* c, long stride, long m, long n, long k) {
  const Finish nothing{};
  transformer_matmul(&a, &b, &nothing, c, IS_BFLOAT16<U>, stride, m, n, k, IS_BFLOAT16<T>, 1);
}

// softmax(scale * scores) of one row; zeros where nothing may be attended to.
template <typename T>
void softmax(float* scores, const bool* mask, float scale, long n, T* weights) {
  Floats most = spread(NEVER), total = spread(0.0f);
  for (long s = 0; s < n; s += LANES) {
    Mask m = lanes(n - s);
    if (mask) m = are_true(mask + s, m);
    const Floats found = choose(m, load(scores + s, m) * spread(scale), spread(NEVER));
    store(scores + s, found);
    most = larger(found, most);  // in this order, NaN is forgotten here and comes back in the sum
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

// The gradient of the scores: scale * (u du - w * sum of u du), with weights w, what dropout left of them, u, and its
// gradient du. Without dropout u is w; with it, u du is w times the gradient of w.
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

template <typename T>
void forward(const Head& head) {
  const TrainedAttention& a = head.a;
  const long wide = (a.positions + LANES - 1) / LANES * LANES, stride = even(a.positions);
  float* scores = scratch<float, 20>(a.queries * wide);
  const Layout q = rows(head.of<T>(a.query), a.query.position), k = rows(head.of<T>(a.keys), a.keys.position);
  T* weights = head.weights<T>();
  multiply<T>(q, transposed(k), scores, wide, a.queries, a.positions, a.width);
  for (long t = 0; t < a.queries; ++t)
    softmax(scores + t * wide, head.mask(t), a.scale, a.positions, weights + t * stride);
  multiply<T>(rows(head.used_weights<T>(), stride, 1), rows(head.of<T>(a.values), a.values.position), head.within<T>(a.out, a.queries),
              a.heads * a.width, a.queries, a.width, a.positions);
}

template <typename T>
void backward(const Head& head) {
  const TrainedAttention& a = head.a;
  const long wide = (a.positions + LANES - 1) / LANES * LANES, stride = even(a.positions), apart = a.heads * a.width;
  float* d_weights = scratch<float, 20>(a.queries * wide);
  T* d_scores = scratch<T, 21>(a.queries * stride);
  const T *weights = head.weights<T>(), *used = head.used_weights<T>();
  const Layout d_out = rows(head.within<T>(a.out, a.queries), apart), w = rows(used, stride, 1);
  const Layout q = rows(head.of<T>(a.query), a.query.position), k = rows(head.of<T>(a.keys), a.keys.position);
  const Layout v = rows(head.of<T>(a.values), a.values.position), ds = rows(d_scores, stride, 1);
  multiply<T>(transposed(w), d_out, head.within<T>(a.d_values, a.positions), apart, a.positions, a.width, a.queries);
  multiply<T>(d_out, transposed(v), d_weights, wide, a.queries, a.positions, a.width);
  for (long t = 0; t < a.queries; ++t)
    softmax_gradient(weights + t * stride, used + t * stride, d_weights + t * wide, a.scale, a.positions,
                     d_scores + t * stride);
  multiply<T>(ds, k, head.within<T>(a.d_query, a.queries), apart, a.queries, a.width, a.positions);
  multiply<T>(transposed(ds), q, head.within<T>(a.d_keys, a.positions), apart, a.positions, a.width, a.queries);
}

template <typename T>
void all(const TrainedAttention& a, bool is_backward, int threads) {
#pragma omp parallel for schedule(guided) num_threads(threads) if (threads > 1)
  for (long i = 0; i < a.batch * a.heads; ++i) {
    const Head head{a, i / a.heads, i % a.heads};
    is_backward ? backward<T>(head) : forward<T>(head);
  }
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_trained_attention() { return sizeof(transformer::TrainedAttention); }

// Forward writes `weights` and `out`; backward reads `weights`, and in `out` the gradient of what forward wrote there.
extern "C" void transformer_trained_attention(const transformer::TrainedAttention* a, int is_backward, int threads) {
  using namespace transformer;
  a->is_bfloat16 ? all<uint16_t>(*a, is_backward, threads) : all<float>(*a, is_backward, threads);
}
