// LayerNorm(x + y), row by row in one pass over memory; for training LayerNorm(x + dropout(y)) and its gradient.
#include "kernels.h"
#include "random.h"
#include "sharing.h"

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

// Statistics of a row: the normalized row is (sum - mean) factor.
struct Statistics {
  float mean, factor;
};

// Calls `work` with the index of each vector of a row and its dropout mask. The width is a multiple of DRAWN.
template <typename Work>
void for_drawn(const Dropout& d, long row, long width, const Work& work) {
  Where kept[DRAWN / LANES];
  std::fill(kept, kept + DRAWN / LANES, everywhere());
  for (long start = 0; start < width; start += DRAWN) {
    if (d.levels) draw(d, (row * width + start) / DRAWN, kept);
    for (long v = 0; v < DRAWN / LANES; ++v) work(start + v * LANES, kept[v]);
  }
}

template <typename Y>
Statistics add_dropped_norm(const float* x, const Y* y, const float* alpha, const float* beta, float eps, long row,
                            long width, const Dropout& d, float* sums, float* out, uint16_t* rounded) {
  const Floats scale = spread(d.scale());
  Floats total = spread(0.0f), squares = spread(0.0f);
  for_drawn(d, row, width, [&](long k, Where kept) {
    const Floats v = load(x + k) + keep(kept, load(y + k, 0xffff) * scale);
    store(sums + k, v);
    total = total + v;
  });
  const float mean = sum_of(total) / width;
  for (long k = 0; k < width; k += LANES) {
    const Floats from_mean = load(sums + k) - spread(mean);
    squares = multiply_add(from_mean, from_mean, squares);
  }
  const float factor = 1.0f / std::sqrt(sum_of(squares) / width + eps);
  for (long k = 0; k < width; k += LANES) {
    const Floats normal = (load(sums + k) - spread(mean)) * spread(factor);
    const Floats found = multiply_add(normal, load(alpha + k), load(beta + k));
    store(out + k, found);
    if (rounded) store(rounded + k, 0xffff, found);
  }
  return {mean, factor};
}

// With n the normalized row and g = alpha d_out, the gradient of the sum is factor (g - mean of g - n mean of g n).
template <typename Y>
void add_dropped_norm_gradient(const float* d_out, const float* sums, Statistics s, const float* alpha, long row, long width,
                               const Dropout& d, float* d_x, Y* d_y, float* d_alpha, float* d_beta) {
  const Floats mean = spread(s.mean), factor = spread(s.factor), scale = spread(d.scale());
  Floats total = spread(0.0f), along = spread(0.0f);
  for (long k = 0; k < width; k += LANES) {
    const Floats own = load(d_out + k), normal = (load(sums + k) - mean) * factor, g = own * load(alpha + k);
    total = total + g;
    along = multiply_add(g, normal, along);
    store(d_alpha + k, multiply_add(own, normal, load(d_alpha + k)));
    store(d_beta + k, own + load(d_beta + k));
  }
  const Floats mean_g = spread(sum_of(total) / width), mean_along = spread(sum_of(along) / width);
  for_drawn(d, row, width, [&](long k, Where kept) {
    const Floats normal = (load(sums + k) - mean) * factor;
    const Floats found = negative_multiply_add(normal, mean_along, load(d_out + k) * load(alpha + k) - mean_g) * factor;
    store(d_x + k, found);
    store(d_y + k, 0xffff, keep(kept, found * scale));
  });
}

constexpr long ROWS_OF_A_PART = 32;  // rows whose gradients of alpha and beta are summed in sequence

template <typename Y>
void all_gradients(const float* d_out, const float* sums, const Statistics* statistics, const float* alpha, long rows,
                   long width, const Dropout& d, float* d_x, Y* d_y, float* d_alpha, float* d_beta, int threads) {
  const long parts = (rows + ROWS_OF_A_PART - 1) / ROWS_OF_A_PART;
  float* of_parts = scratch<float, 16>(parts * 2 * width);
  share(parts, threads, [&](long part) {
    float* own = of_parts + part * 2 * width;
    std::fill(own, own + 2 * width, 0.0f);
    for (long i = part * ROWS_OF_A_PART; i < std::min(rows, (part + 1) * ROWS_OF_A_PART); ++i)
      add_dropped_norm_gradient(d_out + i * width, sums + i * width, statistics[i], alpha, i, width, d, d_x + i * width,
                                d_y + i * width, own, own + width);
  });
  std::fill(d_alpha, d_alpha + width, 0.0f);
  std::fill(d_beta, d_beta + width, 0.0f);
  for (const float* own = of_parts; own < of_parts + parts * 2 * width; own += 2 * width)
    for (long k = 0; k < width; k += LANES) {
      store(d_alpha + k, load(d_alpha + k) + load(own + k));
      store(d_beta + k, load(d_beta + k) + load(own + width + k));
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

extern "C" long transformer_drawn_at_a_time() { return transformer::DRAWN; }

// LayerNorm(x + dropout(y)), the sums x + dropout(y), and a mean and a factor for each row. The width is a multiple of
// DRAWN. If `rounded` is not null, the result is written there in bfloat16 as well.
extern "C" void transformer_add_dropped_norm(const float* x, const void* y, int y_is_bfloat16, const float* alpha,
                                             const float* beta, float eps, int levels, uint64_t seed, long rows, long width,
                                             float* sums, float* statistics, float* out, uint16_t* rounded, int threads) {
  using namespace transformer;
  const Dropout d{seed, levels};
  auto* found = reinterpret_cast<Statistics*>(statistics);
  const auto all = [&](const auto* typed) {
    share(rows, threads, [&](long i) {
      const long at = i * width;
      found[i] = add_dropped_norm(x + at, typed + at, alpha, beta, eps, i, width, d, sums + at, out + at,
                                  rounded ? rounded + at : nullptr);
    });
  };
  y_is_bfloat16 ? all(static_cast<const uint16_t*>(y)) : all(static_cast<const float*>(y));
}

// The gradients of x, y, alpha and beta, from the gradient of the result.
extern "C" void transformer_add_dropped_norm_gradient(const float* d_out, const float* sums, const float* statistics,
                                                      const float* alpha, int levels, uint64_t seed, long rows, long width,
                                                      float* d_x, void* d_y, int y_is_bfloat16, float* d_alpha,
                                                      float* d_beta, int threads) {
  using namespace transformer;
  const auto all = [&](auto* typed) {
    all_gradients(d_out, sums, reinterpret_cast<const Statistics*>(statistics), alpha, rows, width, {seed, levels}, d_x, typed,
                  d_alpha, d_beta, threads);
  };
  y_is_bfloat16 ? all(static_cast<uint16_t*>(d_y)) : all(static_cast<float*>(d_y));
}
