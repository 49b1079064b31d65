// LayerNorm(x + y) or RMSNorm(x + y), row by row in one pass over memory.
#include "kernels.h"
#include "parallel.h"
#include "vectors.h"

#include <cmath>

namespace transformer {
namespace {

// Without beta, it is RMSNorm: nothing is subtracted or added.
void add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps, long width,
              float* out) {
  VecF32 sum = broadcast(0.0f), square_sums = broadcast(0.0f);
  for (long k = 0; k < width; k += LANES) {
    const Mask m = tail_mask(width - k);
    const VecF32 v = y ? load(x + k, m) + load(y + k, m) : load(x + k, m);
    store(out + k, m, v);
    sum = sum + v;
  }
  const VecF32 mean = broadcast(beta ? reduce_add(sum) / width : 0.0f);
  for (long k = 0; k < width; k += LANES) {
    const Mask m = tail_mask(width - k);
    const VecF32 d = maskz(m, load(out + k, m) - mean);
    square_sums = fmadd(d, d, square_sums);
  }
  const VecF32 inverse_std = broadcast(1.0f / std::sqrt(reduce_add(square_sums) / width + eps));
  for (long k = 0; k < width; k += LANES) {
    const Mask m = tail_mask(width - k);
    const VecF32 d = (load(out + k, m) - mean) * inverse_std;
    store(out + k, m, beta ? fmadd(d, load(alpha + k, m), load(beta + k, m)) : d * load(alpha + k, m));
  }
}

}  // namespace
}  // namespace transformer

extern "C" void transformer_add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps,
                                     long rows, long width, float* out, int threads) {
  transformer::parallel_for(rows, threads, [=](long i) {
    transformer::add_norm(x + i * width, y ? y + i * width : nullptr, alpha, beta, eps, width, out + i * width);
  });
}
