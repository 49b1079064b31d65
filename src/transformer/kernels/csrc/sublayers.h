// Sub-layers of encoder and decoder layers: matrix products and residual connections, with intermediate results in
// reused memory.
#pragma once
#include "kernels.h"
#include "parallel.h"

namespace transformer {
namespace {

enum {
  PROJECTIONS = 40,
  ATTENDED,
  SUBLAYER_OUTPUT,
  NORMALIZED,
  INNER,
  GATE
};  // scratch buffers that the called kernels do not use

void multiply(const PackedMatrix& w, const float* x, long rows, float* y, int threads) {
  transformer_packed_linear(&w, x, rows, y, threads_for(rows * w.inner * w.columns, threads));
}

void attend(const Attention& a, int threads) {
  transformer_attention(&a, threads_for(4 * a.batch * a.heads * a.queries * a.positions * a.width, threads));
}

// Multiplies x element by element with y, in place.
void multiply_elements(float* x, const float* y, long n, int threads) {
  parallel_for((n + LANES - 1) / LANES, threads, [=](long vector) {
    const long i = vector * LANES;
    const Mask m = tail_mask(n - i);
    store(x + i, m, load(x + i, m) * load(y + i, m));
  });
}

// Rotates the heads of a query or key at a position, in place: pairs of features half a head apart.
void rotate(const Layer& layer, float* x, long heads, long width, long position) {
  const long half = width / 2;
  const float *cosines = layer.cosines + position * half, *sines = layer.sines + position * half;
  for (long head = 0; head < heads; ++head, x += width)
    for (long e = 0; e < half; e += LANES) {
      const Mask m = tail_mask(half - e);
      const VecF32 first = load(x + e, m), second = load(x + half + e, m);
      const VecF32 cosine = load(cosines + e, m), sine = load(sines + e, m);
      store(x + e, m, first * cosine - second * sine);
      store(x + half + e, m, second * cosine + first * sine);
    }
}

// The feed-forward network in float32.
void feed_forward(const Layer& layer, const float* input, long rows, float* output, int threads) {
  float* inner = scratch<float, INNER>(rows * layer.linear_1->columns);
  multiply(*layer.linear_1, input, rows, inner, threads);
  if (layer.gate) {
    float* gate = scratch<float, GATE>(rows * layer.gate->columns);
    multiply(*layer.gate, input, rows, gate, threads);
    multiply_elements(inner, gate, rows * layer.gate->columns,
                      threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * layer.gate->columns, threads));
  }
  multiply(*layer.linear_2, inner, rows, output, threads);
}

// Applies a sub-layer and its residual connection to the residual stream x. `sublayer` maps its input to its output.
template <typename Sublayer>
void residual_connection(float* x, long rows, long width, const Norm& norm, bool is_pre, int threads,
                         Sublayer sublayer) {
  float* sublayer_output = scratch<float, SUBLAYER_OUTPUT>(rows * width);
  const auto add_norm = [&](const float* summand, float* out) {
    transformer_add_norm(x, summand, norm.alpha, norm.beta, norm.eps, rows, width, out,
                         threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * width, threads));
  };
  if (!is_pre) {
    sublayer(x, sublayer_output);
    add_norm(sublayer_output, x);
    return;
  }
  float* normalized = scratch<float, NORMALIZED>(rows * width);
  add_norm(nullptr, normalized);
  sublayer(normalized, sublayer_output);
  for (long i = 0; i < rows * width; i += LANES) {
    const Mask m = tail_mask(rows * width - i);
    store(x + i, m, load(x + i, m) + load(sublayer_output + i, m));
  }
}

}  // namespace
}  // namespace transformer
