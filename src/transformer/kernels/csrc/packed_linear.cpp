// Linear layers: y = activation(x W^T + b) with a prepacked weight in float32, bfloat16 or int8.
//
// A panel is 64 columns of y: four vectors of 16. Weights are blocked by columns (64, or 16 on processors with few
// registers) in VNNI layout: for each k-group (1 float32, 2 bfloat16 or 4 int8, which one instruction multiplies and
// accumulates), the weights of all columns of the block. The micro-kernel multiplies MR rows of x (6, or 32 with AMX)
// by as many vectors of a panel as there are registers for accumulators.
//
// Each sum has the same order of additions whatever the other rows are, so the result of a row does not depend on its
// batch (batch invariance). The exception is float32 with AMX (bf16x3), which is used for many rows only: its sums
// differ from those of vector instructions in their last bits.
#include "packed_linear_amx.h"
#include "parallel.h"

#include <atomic>

namespace transformer {
namespace {

constexpr long MAX_BLOCK_ROWS = 1024;    // of float32, split into bf16x3 before they are multiplied
constexpr long MAX_ACCUMULATED_K = 512;  // elements along K that are split at a time

template <VecF32 activation(VecF32), typename Y>
void store_activated(const float* sums, int rows, long width, Y* y, long stride) {
  for (; rows; --rows, sums += PANEL, y += stride)
    for (long column = 0; column < width; column += LANES)
      store(y + column, tail_mask(width - column), activation(load(sums + column)));
}

// Applies the activation to the rows of a panel, from a staging buffer, because accumulators may fill all registers.
template <typename Y>
void apply_activation(const float* sums, int rows, long width, Y* y, long stride, int activation) {
  constexpr bool IS_BF16_OUTPUT = std::is_same_v<Y, uint16_t>;
  switch (activation) {
    case 1: return store_activated<relu>(sums, rows, width, y, stride);
    case 2: return store_activated<IS_BF16_OUTPUT ? approx_silu : silu>(sums, rows, width, y, stride);
    case 3: return store_activated<IS_BF16_OUTPUT ? approx_gelu : gelu>(sums, rows, width, y, stride);
    case 4: return store_activated<IS_BF16_OUTPUT ? approx_gelu_tanh : gelu_tanh>(sums, rows, width, y, stride);
  }
}

// Distance in bytes between neighbouring vectors of columns within a panel.
constexpr long vector_stride_bytes(long groups) { return COLUMN_BLOCK < PANEL ? groups * LANES * 4 : LANES * 4; }

// The micro-kernel: multiplies R rows by V vectors of a panel's columns, starting at `column`. Results that need
// further processing are stored in `staging`. One cache line per k-group is prefetched from `prefetch_address` on,
// because the kernel is bound by memory beyond the L2 cache.
template <typename P, int R, int V, typename Y>
void micro_kernel(const typename P::Input* x, long stride, const float* row_scales, const PackedMatrix& w, long column,
                  Y* y, float* staging, const char* prefetch_address) {
  const long n_k_groups = ceil_div(w.inner, P::K_PER_GROUP), vector_stride = vector_stride_bytes(n_k_groups);
  const char* weight = w.weight + column / PANEL * PANEL * n_k_groups * 4 + column % PANEL / LANES * vector_stride;
  typename P::VectorAccumulator sums[R][V] = {};
#pragma GCC unroll K_GROUPS_PER_ITERATION
  for (long g = 0; g < n_k_groups; ++g, weight += COLUMN_BLOCK * 4) {
    _mm_prefetch(prefetch_address + g * 64, _MM_HINT_T1);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sums[r][v] = P::multiply_add_group(sums[r][v], x + r * stride + g * P::K_PER_GROUP, weight + v * vector_stride);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v, column += LANES) {
    if (column >= w.columns) break;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const VecF32 sum = apply_scales_and_bias(sums[r][v], w, column, row_scales ? row_scales[r] : 0.0f);
      if (staging)
        store(staging + r * PANEL + v * LANES, sum);
      else
        store(y + r * w.columns + column, tail_mask(w.columns - column), sum);
    }
  }
}

// Multiplies R rows by one panel. With `chunk`, results are ranked instead of being written to `y`, and `row` is the
// index of the first row.
template <typename P, int R, typename Y>
void multiply_rows(const typename P::Input* x, long stride, const float* row_scales, const PackedMatrix& w, long first,
                   Y* y, const ChunkTopK* chunk, long row, const char* prefetch_address) {
  constexpr int V = nr_vectors(R, P::MAX_ACCUMULATOR_REGISTERS);
  const long width = std::min(PANEL, w.columns - first);
  alignas(64) float staging[R * PANEL];
  float* panel_staging = w.activation || chunk ? staging : nullptr;
  for (long v = 0; v * LANES < width; v += V)
    micro_kernel<P, R, V>(x, stride, row_scales, w, first + v * LANES, y,
                          panel_staging ? panel_staging + v * LANES : nullptr, prefetch_address);
  if (chunk)
    for (int r = 0; r < R; ++r) chunk->add(staging + r * PANEL, row + r, first, width);
  else if (w.activation)
    apply_activation(staging, R, width, y + first, w.columns, w.activation);
}

// Multiplies all rows by one panel.
template <typename P, typename Y>
void multiply_panel(const typename P::Input* inputs, long padded, const float* row_scales, const PackedMatrix& w,
                    long panel, long rows, Y* y, const ChunkTopK* chunk) {
  constexpr long max_rows = std::min(MR, P::MAX_ACCUMULATOR_REGISTERS / REGISTERS_PER_VECTOR);
  const long n_blocks = ceil_div(rows, max_rows), n_k_groups = ceil_div(w.inner, P::K_PER_GROUP);
  const char* weight = w.weight + panel * PANEL * n_k_groups * 4;
  const bool has_next = panel + 1 < ceil_div(w.columns, PANEL);
  for (long block = 0, i = 0; block < n_blocks; ++block) {
    const long n = (rows - i + n_blocks - block - 1) / (n_blocks - block);  // blocks of similar size
    const auto* src = inputs + i * padded;
    const float* block_scales = row_scales ? row_scales + i : nullptr;
    Y* dst = y ? y + i * w.columns : nullptr;
    const char* prefetch_address = weight + (has_next && block < VECTORS ? PANEL + block * LANES : 0) * n_k_groups * 4;
    switch (n) {
      case 1: multiply_rows<P, 1>(src, padded, block_scales, w, panel * PANEL, dst, chunk, i, prefetch_address); break;
      case 2: multiply_rows<P, 2>(src, padded, block_scales, w, panel * PANEL, dst, chunk, i, prefetch_address); break;
      case 3: multiply_rows<P, 3>(src, padded, block_scales, w, panel * PANEL, dst, chunk, i, prefetch_address); break;
      case 4: multiply_rows<P, 4>(src, padded, block_scales, w, panel * PANEL, dst, chunk, i, prefetch_address); break;
      case 5:
        multiply_rows<P, std::min(5L, max_rows)>(src, padded, block_scales, w, panel * PANEL, dst, chunk, i,
                                                 prefetch_address);
        break;
      default: multiply_rows<P, max_rows>(src, padded, block_scales, w, panel * PANEL, dst, chunk, i, prefetch_address);
    }
    i += n;
  }
}

// Distributes the panels among threads. Calls `multiply` with each panel and the end of its range, and `flush` for
// pending epilogues.
template <typename Multiply, typename Flush>
void for_each_panel(const PackedMatrix& w, const TopK* topk, const Thread& thread, const Multiply& multiply,
                    const Flush& flush) {
  const long panels = ceil_div(w.columns, PANEL);
  if (!topk) {
    const long end = thread.first_task(thread.index + 1, panels);
    thread.for_each_own_task(panels, [&](long panel) { multiply(panel, end, nullptr); });
    return flush();
  }
  constexpr long panels_per_chunk = CHUNK_COLUMNS / PANEL;
  thread.for_each_own_task(topk->n_chunks, [&](long chunk_index) {
    const ChunkTopK chunk = topk->begin_chunk(thread.index);
    const long end = std::min(panels, (chunk_index + 1) * panels_per_chunk);
    for (long panel = chunk_index * panels_per_chunk; panel < end; ++panel) multiply(panel, end, &chunk);
    flush();
    topk->end_chunk(chunk, chunk_index);
  });
}

// Computes the layer by vector instructions; writes the result to `y`, or ranks it with `topk`.
template <typename P, typename X, typename Y>
void packed_linear_vector(const PackedMatrix& w, const X* x, long rows, Y* y, const TopK* topk, int threads) {
  using Input = typename P::Input;
  constexpr bool IS_FASTER_WITHOUT_SIGNS = std::is_same_v<P, Int8> && !HAS_ZERO_POINT_128;
  const long padded = ceil_div(w.inner, P::K_PER_GROUP) * P::K_PER_GROUP;
  const bool needs_conversion = !std::is_same_v<X, Input> || padded > w.inner;
  std::atomic<bool> is_signed = false;
  Input* converted = needs_conversion ? scratch<Input>(rows * padded) : nullptr;
  float* row_scales = needs_conversion ? scratch<float>(rows) : nullptr;
  parallel_region(threads, [&](const Thread& thread) {
    if (needs_conversion) {
      bool has_negative_rows = false;
      thread.for_each_own_task(rows, [&](long i) {
        convert_input(x + i * w.inner, w.inner, padded, converted + i * padded, row_scales + i, P());
        if constexpr (IS_FASTER_WITHOUT_SIGNS)
          has_negative_rows = has_negative_rows || has_negative(converted + i * padded, padded);
      });
      if (has_negative_rows) is_signed = true;
      thread.barrier();
    }
    const Input* inputs = needs_conversion ? converted : reinterpret_cast<const Input*>(x);
    const auto multiply_panels = [&](auto product) {
      const auto multiply = [&](long panel, long, const ChunkTopK* chunk) {
        multiply_panel<decltype(product)>(inputs, padded, row_scales, w, panel, rows, y, chunk);
      };
      for_each_panel(w, topk, thread, multiply, [] {});
    };
    if constexpr (IS_FASTER_WITHOUT_SIGNS)
      is_signed ? multiply_panels(P()) : multiply_panels(NonNegativeInt8<>());
    else
      multiply_panels(P());
  });
}

// Multiplies converted rows by the panels of the calling thread with AMX; writes the result to `y`, or ranks it.
template <typename P, typename Y>
void multiply_panels_amx(const PackedMatrix& w, KRange k_range, const typename P::Input* inputs, long padded,
                         const float* row_scales, long rows, Y* y, const TopK* topk, const Thread& thread) {
  AmxPanelKernel<P, Y> kernel(w, k_range);
  if (!topk && rows >= MIN_ROWS_FOR_ROW_BLOCKS) {
    const long panels = ceil_div(w.columns, PANEL);
    kernel.multiply(inputs, padded, row_scales, thread.first_task(thread.index, panels),
                    thread.first_task(thread.index + 1, panels), rows, y);
    return kernel.flush_epilogue();
  }
  const auto multiply = [&](long panel, long end, const ChunkTopK* chunk) {
    kernel.multiply(inputs, padded, row_scales, panel, end, rows, y, chunk);
  };
  for_each_panel(w, topk, thread, multiply, [&] { kernel.flush_epilogue(); });
}

template <typename P, typename X, typename Y>
void packed_linear_amx(const PackedMatrix& w, const X* x, long rows, Y* y, const TopK* topk, int threads) {
  using Input = typename P::Input;
  constexpr long k_per_step = P::K_PER_GROUP * TILE_K_GROUPS;
  const long padded = ceil_div(w.inner, k_per_step) * k_per_step;
  float* row_scales = scratch<float>(rows);
  if constexpr (std::is_same_v<X, Input>)
    if (padded == w.inner) {
      parallel_region(threads, [&](const Thread& thread) {
        multiply_panels_amx<P>(w, {0, w.inner}, x, padded, row_scales, rows, y, topk, thread);
      });
      return;
    }
  Input* converted = scratch<Input>(rows * padded);
  parallel_region(threads, [&](const Thread& thread) {
    thread.for_each_own_task(rows, [&](long i) {
      convert_input(x + i * w.inner, w.inner, padded, converted + i * padded, row_scales + i, P());
    });
    thread.barrier();
    multiply_panels_amx<P>(w, {0, w.inner}, converted, padded, row_scales, rows, y, topk, thread);
  });
}

// float32 as bf16x3: blocked by rows and, if there are many rows, by K, so that split operands stay in the caches.
template <>
void packed_linear_amx<Float32, float, float>(const PackedMatrix& w, const float* x, long rows, float* y,
                                              const TopK* topk, int threads) {
  const long n_k_ranges =
      topk || rows < MIN_ROWS_FOR_ROW_BLOCKS ? 1 : std::max(1L, ceil_div(w.inner, MAX_ACCUMULATED_K));
  const long k_per_range = ceil_div(AmxPanelKernel<Float32>::n_k_steps(w.inner), n_k_ranges) * 2 * TILE_K_GROUPS;
  // An odd number of cache lines, so that rows map to different cache sets.
  const long padded = LANES * (3 * AmxPanelKernel<Float32>::n_k_steps(k_per_range) | 1);
  const long block_rows =
      topk ? rows : ceil_div(rows, std::max(1L, ceil_div(rows, MAX_BLOCK_ROWS)));  // blocks of similar size
  float* converted = scratch<float>(block_rows * padded);
  PackedMatrix unfinished = w;  // without epilogue, for all K blocks but the last
  unfinished.bias = nullptr, unfinished.activation = 0;
  parallel_region(threads, [&](const Thread& thread) {
    for (long first = 0; first < rows; first += block_rows)
      for (long k = 0; k < w.inner || k == 0; k += std::max(1L, k_per_range)) {
        const KRange k_range{k, std::min(k_per_range, w.inner - k)};
        const long n_rows = std::min(block_rows, rows - first);
        const float* src = x + first * w.inner + k;
        if (first || k) thread.barrier();
        thread.for_each_own_task(ceil_div(n_rows, LANES), [&](long block) {
          const long i = block * LANES;
          pack_a_bf16x3(src + i * w.inner, w.inner, false, k_range.count, std::min(LANES, n_rows - i),
                        reinterpret_cast<char*>(converted + i * padded), 4 * padded);
        });
        thread.barrier();
        multiply_panels_amx<Float32>(k + k_per_range < w.inner ? unfinished : w, k_range, converted, padded, nullptr,
                                     n_rows, y ? y + first * w.columns : nullptr, topk, thread);
      }
  });
}

template <typename P>
void packed_linear(const PackedMatrix& w, const float* x, long rows, float* y, const TopK* topk, int threads) {
  constexpr bool IS_SPLIT = AmxPanelKernel<P>::IS_SPLIT;
  const bool amx_is_faster =
      !IS_SPLIT || rows >= MIN_ROWS_FOR_ROW_BLOCKS || SplitPanels(w, {0, w.inner}).two_fit_in_l2();
  amx_enabled&& rows >= P::MIN_ROWS_FOR_AMX&& amx_is_faster ? packed_linear_amx<P>(w, x, rows, y, topk, threads)
                                                            : packed_linear_vector<P>(w, x, rows, y, topk, threads);
}

void packed_linear(const PackedMatrix& w, const float* x, long rows, float* y, const TopK* topk, int threads) {
  if (w.precision == 0) packed_linear<Float32>(w, x, rows, y, topk, threads);
  if (w.precision == 1) packed_linear<Bfloat16>(w, x, rows, y, topk, threads);
  if (w.precision == 2) packed_linear<Int8>(w, x, rows, y, topk, threads);
}

float to_float(const float* k_group, long) { return *k_group; }
float to_float(const int8_t* k_group, long index) { return static_cast<float>(k_group[index]); }
float to_float(const uint16_t* k_group, long index) {
  const uint32_t bits = static_cast<uint32_t>(k_group[index]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Unpacks the weights of one column, multiplied by `factor`.
template <typename T>
void copy_column(const PackedMatrix& w, long column, float factor, float* out) {
  constexpr long k_per_group = 4 / sizeof(T);
  const long n_k_groups = (w.inner + k_per_group - 1) / k_per_group;
  const char* k_group = w.weight + (column / COLUMN_BLOCK * n_k_groups * COLUMN_BLOCK + column % COLUMN_BLOCK) * 4;
  for (long k = 0; k < w.inner; k += k_per_group, k_group += COLUMN_BLOCK * 4)
    for (long index = 0; index < k_per_group && k + index < w.inner; ++index)
      out[k + index] = factor * to_float(reinterpret_cast<const T*>(k_group), index);
}

}  // namespace
}  // namespace transformer

// Embedding lookup: writes the weights of some columns as rows, multiplied by `factor`. Returns 1 and writes nothing if
// a column is out of range.
extern "C" int transformer_embedding_lookup(const transformer::PackedMatrix* w, const int64_t* columns, long n,
                                            float factor, float* out, int threads) {
  using namespace transformer;
  for (long i = 0; i < n; ++i)
    if (columns[i] < 0 || columns[i] >= w->columns) return 1;
  parallel_for(n, threads, [=](long i) {
    const float scale = factor * (w->scales ? w->scales[columns[i]] : 1.0f);
    float* row = out + i * w->inner;
    switch (w->precision) {
      case 0: copy_column<float>(*w, columns[i], scale, row); break;
      case 1: copy_column<uint16_t>(*w, columns[i], scale, row); break;
      default: copy_column<int8_t>(*w, columns[i], scale, row);
    }
  });
  return 0;
}

extern "C" long transformer_packed_column_block() { return transformer::COLUMN_BLOCK; }

extern "C" long transformer_size_of_packed_matrix() { return sizeof(transformer::PackedMatrix); }

extern "C" void transformer_packed_linear(const transformer::PackedMatrix* w, const float* x, long rows, float* y,
                                          int threads) {
  transformer::packed_linear(*w, x, rows, y, nullptr, threads);
}

// Same for weights in bfloat16 or int8, with inputs and outputs in bfloat16 or float32.
extern "C" void transformer_packed_linear_bf16(const transformer::PackedMatrix* w, const void* x, int x_is_bfloat16,
                                               long rows, void* y, int y_is_bfloat16, int threads) {
  using namespace transformer;
  const auto multiply = [&](const auto* rows_of_x, auto* rows_of_y) {
    const auto run_as = [&](auto precision) {
      using P = decltype(precision);
      amx_enabled ? packed_linear_amx<P>(*w, rows_of_x, rows, rows_of_y, nullptr, threads)
                  : packed_linear_vector<P>(*w, rows_of_x, rows, rows_of_y, nullptr, threads);
    };
    w->precision == 1 ? run_as(Bfloat16()) : run_as(Int8());
  };
  const auto run_from = [&](const auto* rows_of_x) {
    y_is_bfloat16 ? multiply(rows_of_x, static_cast<uint16_t*>(y)) : multiply(rows_of_x, static_cast<float*>(y));
  };
  x_is_bfloat16 ? run_from(static_cast<const uint16_t*>(x)) : run_from(static_cast<const float*>(x));
}

// Fused linear layer, log-softmax and top-k: the k largest elements of each row of y and their log-probabilities. y is
// never stored.
extern "C" void transformer_packed_linear_topk(const transformer::PackedMatrix* w, const float* x, long rows, long k,
                                               const bool* forbidden, float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
  const TopK topk(w->columns, rows, k, forbidden, threads);
  packed_linear(*w, x, rows, nullptr, &topk, threads);
  topk.merge(log_p, tokens);
}
