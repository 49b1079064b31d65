// Attention and its gradient, one head at a time, so that the intermediate results of a head stay in the cache of a
// core. Products take float32 or bfloat16, as in `matmul.cpp`; sums, softmax and its gradient are float32.
#include "parallel.h"
#include "short_attention.h"
#include "amx.h"

namespace transformer {
namespace {

template <typename T>
constexpr int IS_BFLOAT16 = sizeof(T) == 2;

template <typename T>
MatrixView as_rows(const T* data, long stride, int is_padded = 0) {
  return {data, stride, IS_BFLOAT16<T>, 0, is_padded};
}

MatrixView as_transposed(MatrixView x) { return {x.data, x.stride, x.is_bfloat16, 1, 0}; }

template <typename T, typename U>
void multiply(const MatrixView& a, const MatrixView& b, U* c, long stride, long m, long n, long k) {
  const Epilogue no_epilogue{};
  transformer_matmul(&a, &b, &no_epilogue, c, IS_BFLOAT16<U>, stride, m, n, k, IS_BFLOAT16<T>, 1);
}

template <typename T>
void forward(const Head& head) {
  const TrainingAttention& a = head.a;
  const long padded_positions = (a.positions + LANES - 1) / LANES * LANES, stride = round_up_to_even(a.positions);
  float* scores = scratch<float, 20>(a.queries * padded_positions);
  const MatrixView q = as_rows(head.data<T>(a.query), a.query.position),
                   k = as_rows(head.data<T>(a.keys), a.keys.position);
  T* weights = head.weights<T>();
  multiply<T>(q, as_transposed(k), scores, padded_positions, a.queries, a.positions, a.width);
  for (long t = 0; t < a.queries; ++t)
    softmax(scores + t * padded_positions, head.mask(t), a.scale, a.positions, weights + t * stride);
  multiply<T>(as_rows(head.dropped_weights<T>(), stride, 1), as_rows(head.data<T>(a.values), a.values.position),
              head.data_bshd<T>(a.out, a.queries), a.heads * a.width, a.queries, a.width, a.positions);
}

template <typename T>
void backward(const Head& head) {
  const TrainingAttention& a = head.a;
  const long padded_positions = (a.positions + LANES - 1) / LANES * LANES, stride = round_up_to_even(a.positions),
             row_stride = a.heads * a.width;
  float* d_weights = scratch<float, 20>(a.queries * padded_positions);
  T* d_scores = scratch<T, 21>(a.queries * stride);
  const T *weights = head.weights<T>(), *dropped = head.dropped_weights<T>();
  const MatrixView d_out = as_rows(head.data_bshd<T>(a.out, a.queries), row_stride), w = as_rows(dropped, stride, 1);
  const MatrixView q = as_rows(head.data<T>(a.query), a.query.position),
                   k = as_rows(head.data<T>(a.keys), a.keys.position);
  const MatrixView v = as_rows(head.data<T>(a.values), a.values.position), ds = as_rows(d_scores, stride, 1);
  multiply<T>(as_transposed(w), d_out, head.mutable_data<T>(a.d_values), a.d_values.position, a.positions, a.width,
              a.queries);
  multiply<T>(d_out, as_transposed(v), d_weights, padded_positions, a.queries, a.positions, a.width);
  for (long t = 0; t < a.queries; ++t)
    softmax_gradient(weights + t * stride, dropped + t * stride, d_weights + t * padded_positions, a.scale, a.positions,
                     d_scores + t * stride);
  multiply<T>(ds, k, head.mutable_data<T>(a.d_query), a.d_query.position, a.queries, a.width, a.positions);
  multiply<T>(as_transposed(ds), q, head.mutable_data<T>(a.d_keys), a.d_keys.position, a.positions, a.width, a.queries);
}

template <typename T>
void run_all(const TrainingAttention& a, bool is_backward, int threads) {
  parallel_for(a.batch * a.heads, threads, [&](long i) {
    const Head head{a, i / a.heads, i % a.heads};
    if constexpr (HAS_BF16_DOT && IS_BFLOAT16<T>)
      if (!amx_enabled && run_if_short(head, [=](const auto& short_head) {
            is_backward ? short_head.backward() : short_head.forward();
          }))
        return;
    is_backward ? backward<T>(head) : forward<T>(head);
  });
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_training_attention() { return sizeof(transformer::TrainingAttention); }

// The forward pass writes `weights` and `out`. The backward pass reads `weights` and, in `out`, the gradient of the
// result.
extern "C" void transformer_training_attention(const transformer::TrainingAttention* a, int is_backward, int threads) {
  using namespace transformer;
  a->is_bfloat16 ? run_all<uint16_t>(*a, is_backward, threads) : run_all<float>(*a, is_backward, threads);
}
