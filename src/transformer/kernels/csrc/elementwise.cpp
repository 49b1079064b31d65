// Element-wise operations and reductions for training, in float32 or bfloat16: GELU and its derivative, dropout, column
// sums and sums of squares.
#include <algorithm>
#include <numeric>

#include "activations.h"
#include "dropout.h"
#include "parallel.h"

namespace transformer {
namespace {

constexpr long BLOCK = 4096;  // elements per task of a thread

template <typename T, VecF32 function(VecF32), WithDerivative with_derivative(VecF32)>
void apply(const T* x, long n, T* out, T* derivatives, int threads) {
  parallel_for((n + BLOCK - 1) / BLOCK, threads, [=](long block) {
    const long start = block * BLOCK;
    for (long i = start; i < std::min(n, start + BLOCK); i += LANES) {
      const Mask m = tail_mask(n - i);
      const VecF32 y = load(x + i, m);
      if (!derivatives) {
        store(out + i, m, function(y));
        continue;
      }
      const auto [value, derivative] = with_derivative(y);
      store(out + i, m, value);
      store(derivatives + i, m, derivative);
    }
  });
}

template <typename Y, typename Out>
void dropout_all(const void* x, const void* y, long n, void* out, const Dropout& d, int threads) {
  parallel_for((n + BLOCK - 1) / BLOCK, threads, [=](long block) {
    const long start = block * BLOCK;
    const Out* residual = x ? static_cast<const Out*>(x) + start : nullptr;
    dropout(residual, static_cast<const Y*>(y) + start, std::min(BLOCK, n - start), static_cast<Out*>(out) + start, d,
            start / MASK_BLOCK);
  });
}

// Column sums, each added from the first row to the last.
template <typename T>
void sum_columns(const T* x, long stride, long rows, long columns, float* out, int threads) {
  constexpr int VECTORS = 4;
  constexpr long BLOCK_COLUMNS = VECTORS * LANES;
  parallel_for((columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, threads, [=](long block) {
    const long start = block * BLOCK_COLUMNS;
    VecF32 sums[VECTORS] = {};
    const long width = std::min(BLOCK_COLUMNS, columns - start);
    for (long i = 0; i < rows; ++i)
      for (int v = 0; v < VECTORS; ++v)
        if (v * LANES < width)
          sums[v] = sums[v] + load(x + i * stride + start + v * LANES, tail_mask(width - v * LANES));
    for (int v = 0; v < VECTORS; ++v)
      if (v * LANES < width) store(out + start + v * LANES, tail_mask(width - v * LANES), sums[v]);
  });
}

double sum_of_squares(const float* x, long n) {
  constexpr int VECTORS = 4;
  VecF32 sums[VECTORS] = {};
  for (long i = 0; i < n; i += VECTORS * LANES)
    for (int v = 0; v < VECTORS; ++v) {
      const VecF32 value = load(x + i + v * LANES, tail_mask(std::max(0L, n - i - v * LANES)));
      sums[v] = fmadd(value, value, sums[v]);
    }
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace
}  // namespace transformer

// GELU of x, and its derivatives if `derivatives` is not null. `out` may be x.
extern "C" void transformer_gelu(const void* x, long n, void* out, void* derivatives, int is_tanh_approximation,
                                 int is_bfloat16, int threads) {
  using namespace transformer;
  const auto run = [=](auto type) {
    using T = decltype(type);
    const auto kernel =
        is_tanh_approximation ? apply<T, gelu_tanh, gelu_tanh_with_derivative> : apply<T, gelu, gelu_with_derivative>;
    kernel(static_cast<const T*>(x), n, static_cast<T*>(out), static_cast<T*>(derivatives), threads);
  };
  is_bfloat16 ? run(uint16_t()) : run(float());
}

// out = x + dropout(y), or dropout(y) if x is null; x has the type of `out`. The dropout probability is levels / 65536.
extern "C" void transformer_dropout(const void* x, const void* y, long n, void* out, int y_is_bfloat16,
                                    int out_is_bfloat16, int levels, uint64_t seed, int threads) {
  using namespace transformer;
  using BF16 = uint16_t;
  const auto kernel = y_is_bfloat16 ? (out_is_bfloat16 ? dropout_all<BF16, BF16> : dropout_all<BF16, float>)
                                    : (out_is_bfloat16 ? dropout_all<float, BF16> : dropout_all<float, float>);
  kernel(x, y, n, out, {seed, levels}, threads);
}

extern "C" void transformer_column_sums(const void* x, long stride, long rows, long columns, float* out,
                                        int is_bfloat16, int threads) {
  using namespace transformer;
  if (is_bfloat16)
    sum_columns(static_cast<const uint16_t*>(x), stride, rows, columns, out, threads);
  else
    sum_columns(static_cast<const float*>(x), stride, rows, columns, out, threads);
}

// Sum of squares of n vectors. Blocks are added in order, whichever threads computed them.
extern "C" double transformer_sum_of_squares(const float* const* vectors, const long* sizes, long n, int threads) {
  using namespace transformer;
  struct Block {
    const float* values;
    long size;
  };
  long blocks = 0;
  for (long i = 0; i < n; ++i) blocks += (sizes[i] + BLOCK - 1) / BLOCK;
  Block* tasks = scratch<Block, 17>(blocks);
  for (long i = 0, next = 0; i < n; ++i)
    for (long start = 0; start < sizes[i]; start += BLOCK)
      tasks[next++] = {vectors[i] + start, std::min(BLOCK, sizes[i] - start)};
  double* block_sums = scratch<double, 13>(blocks);
  parallel_for(blocks, threads, [=](long i) { block_sums[i] = sum_of_squares(tasks[i].values, tasks[i].size); });
  return std::accumulate(block_sums, block_sums + blocks, 0.0);
}
