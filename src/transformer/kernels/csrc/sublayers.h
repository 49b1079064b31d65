// Sub-layers of encoder and decoder layers: matrix products and residual connections, with intermediate results in
// reused memory.
#pragma once
#include "kernels.h"

namespace transformer {
namespace {

enum {
  PROJECTIONS = 40,
  ATTENDED,
  SUBLAYER_OUTPUT,
  NORMALIZED,
  INNER
};  // scratch buffers that the called kernels do not use

void multiply(const PackedMatrix& w, const float* x, long rows, float* y, int threads) {
  transformer_packed_linear(&w, x, rows, y, threads_for(rows * w.inner * w.columns, threads));
}

void attend(const Attention& a, int threads) {
  transformer_attention(&a, threads_for(4 * a.batch * a.heads * a.queries * a.positions * a.width, threads));
}

// Applies a sub-layer and its residual connection to the residual stream x. `sublayer` maps its input to its output.
template <typename Sublayer>
void residual_connection(float* x, long rows, long width, const Norm& norm, bool is_pre, int threads,
                         Sublayer sublayer) {
  float* sublayer_output = scratch<float, SUBLAYER_OUTPUT>(rows * width);
  threads = threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * width, threads);
  if (!is_pre) {
    sublayer(x, sublayer_output);
    transformer_add_norm(x, sublayer_output, norm.alpha, norm.beta, norm.eps, rows, width, x, threads);
    return;
  }
  float* normalized = scratch<float, NORMALIZED>(rows * width);
  transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, width, normalized, threads);
  sublayer(normalized, sublayer_output);
  for (long i = 0; i < rows * width; i += LANES) {
    const Mask m = tail_mask(rows * width - i);
    store(x + i, m, load(x + i, m) + load(sublayer_output + i, m));
  }
}

}  // namespace
}  // namespace transformer
