// LayerNorm(x + y), row by row in one pass over memory.
#include "kernels.h"
#include "vectors.h"

#include <cmath>

namespace transformer {
namespace {

void add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps, long width, float* out) {
  Floats sum = spread(0.0f), squares = spread(0.0f);
  for (long k = 0; k < width; k += LANES) {
    const Mask m = lanes(width - k);
    const Floats v = y ? load(x + k, m) + load(y + k, m) : load(x + k, m);
    store(out + k, m, v);
    sum = sum + v;
  }
  const Floats mean = spread(sum_of(sum) / width);
  for (long k = 0; k < width; k += LANES) {
    const Mask m = lanes(width - k);
    const Floats d = keep(m, load(out + k, m) - mean);
    squares = multiply_add(d, d, squares);
  }
  const Floats factor = spread(1.0f / std::sqrt(sum_of(squares) / width + eps));
  for (long k = 0; k < width; k += LANES) {
    const Mask m = lanes(width - k);
    const Floats d = (load(out + k, m) - mean) * factor;
    store(out + k, m, multiply_add(d, load(alpha + k, m), load(beta + k, m)));
  }
}

}  // namespace
}  // namespace transformer

extern "C" void transformer_add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps,
                                     long rows, long width, float* out, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; ++i)
    transformer::add_norm(x + i * width, y ? y + i * width : nullptr, alpha, beta, eps, width, out + i * width);
}
