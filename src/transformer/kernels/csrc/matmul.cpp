// C = A B + bias in float32 or bfloat16 for matrices that are not packed in advance. Training uses it, because weights
// change with every step.
//
// The micro-kernel (matmul_tile.h) computes an MR x NR tile of C, whose accumulators stay in registers. MR is 6. NR,
// the width of a panel, is 64, 32 if C has no more columns, or 16 on processors with fewer registers; the last panel
// has as many vectors as it needs. With AMX, a tile is 32 x 32. B is packed into panels: the k-groups of a panel's
// columns are contiguous. A is read in place if its rows are suitable; otherwise the thread that multiplies its rows
// packs them.
//
// A thread multiplies a block of rows (MC), which stays in its L2 cache, by all panels. If rows are read in place and
// short, and columns are many, it instead packs its own block of columns (NC), which stays there while all rows are
// read. K is blocked (KC), with the partial sums in the L2 cache as well. While a tile is multiplied, the memory needed
// next is prefetched. If C is small and K is long, as in gradients of small weights, K is split among the threads and
// the partial sums are added in order (split-K). Every element is summed in the same order for any number of threads.
//
// AMX does not support float32. It multiplies bfloat16 so fast, though, that six products of bfloat16 terms (bf16x3)
// take less time than one product by vector instructions, if the matrices are large enough to amortize the splitting.
// The sums are float32, like those of vector instructions, but in another order.
#include "amx.h"
#include "matmul_tile.h"
#include "packing.h"
#include "parallel.h"

#include <algorithm>
#include <utility>

namespace transformer {
namespace {

constexpr long MAX_MC = 384;  // maximum number of rows in a block
constexpr long BF16_PER_LINE = 2 * LANES;
constexpr long TASKS_PER_THREAD = 16;          // if there are enough rows
constexpr long PACK_K_GROUPS = 64;             // of a panel, packed before those of the next panel; a multiple of LANES
constexpr long MAX_ACCUMULATED_K = 4096;       // elements along K that are summed before the sums are added to C
constexpr long PACKED_B_BYTES = 8 << 20;       // of B, packed at a time
constexpr long SPLIT_K_WAYS = 8;               // number of parts of K for split-K,
constexpr long MIN_SPLIT_K = 2048;             // if K is at least this long
constexpr long MAX_SPLIT_K_BYTES = 256 << 10;  // and C has at most this many bytes
constexpr long MIN_PRODUCTS_PER_SPLIT = 100;   // per float32 element, from which bf16x3 pays
constexpr long MIN_STREAMED_BYTES = 256 << 10;              // of C, for streaming stores by several threads
constexpr long MIN_STREAMED_BYTES_OF_ONE_THREAD = 4 << 20;  // and by one thread, which may read C next

// Packs `columns` columns of B, starting at `first`. If `is_k_contiguous`, each column is contiguous in memory. A task
// packs `pack_width` columns and PACK_K_GROUPS k-groups of each. k-groups beyond K are zero.
template <typename P>
void pack_b(const MatrixView& x, long first, bool is_k_contiguous, long inner, long k_groups, long columns, long panel,
            long pack_width, char* dst, const Thread& thread) {
  k_groups /= P::TERMS;
  const long n_k_blocks = ceil_div(k_groups, PACK_K_GROUPS);
  thread.for_each_task(ceil_div(columns, pack_width) * n_k_blocks, [=](long task) {
    const long column = task / n_k_blocks * pack_width, k_group = task % n_k_blocks * PACK_K_GROUPS;
    const long offset = is_k_contiguous ? (first + column) * x.stride : first + column;
    const PackBlock block{std::min(pack_width, columns - column),     panel, inner, k_groups, k_group,
                          std::min(k_groups, k_group + PACK_K_GROUPS)};
    char* block_dst = dst + 4 * column * k_groups * P::TERMS;
    if constexpr (sizeof(typename P::Input) == 2)
      if (x.is_bfloat16)
        return pack_b<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, is_k_contiguous, block, block_dst);
    const auto* src = static_cast<const float*>(x.data) + offset;
    if constexpr (P::TERMS == 3)
      pack_b_bf16x3(src, x.stride, is_k_contiguous, block, block_dst);
    else
      pack_b<P>(src, x.stride, is_k_contiguous, block, block_dst);
  });
}

void advance(MatrixView& x, long elements) {
  x.data = static_cast<const char*>(x.data) + elements * (x.is_bfloat16 ? 2 : 4);
}

// Advances both operands to element `first` along K.
void advance(MatrixView& a, MatrixView& b, long first) {
  advance(a, a.is_transposed ? first * a.stride : first);
  advance(b, b.is_transposed ? first : first * b.stride);
}

template <typename P, int VECTORS>
struct Gemm {
  using Input = typename P::Input;
  static constexpr long PANEL = VECTORS * LANES;
  MatrixView a, b;
  TileOutput output;
  long m, k, threads;
  const long n = output.columns, k_groups = ceil_div(k, P::K_PER_STEP) * P::K_GROUPS_PER_STEP;
  const long vector_bytes = 4 * std::max(1L, k_groups);  // of a row or column
  const bool is_k_complete = k % P::K_PER_STEP == 0 || (P::K_GROUPS_PER_STEP == 1 && a.is_padded);
  const bool a_has_input_type = Input::TERMS == 1 && a.is_bfloat16 == (sizeof(typename Input::Input) == 2);
  const bool reads_a_in_place =
      READS_A_IN_PLACE && !a.is_transposed && is_k_complete && a_has_input_type && !output.row_sums;
  const bool panel_loop_is_outer = P::PANEL_LOOP_IS_OUTER && reads_a_in_place;
  const bool is_plain_sum = !output.epilogue.bias && !output.has_activation && !output.c_is_bfloat16;
  const bool splits_k =
      P::PANEL_LOOP_IS_OUTER && !reads_a_in_place && is_plain_sum && k >= MIN_SPLIT_K && 4 * m * n <= MAX_SPLIT_K_BYTES;
  const bool shares_columns = reads_a_in_place && k_groups <= P::MAX_COLUMN_TASK_K_GROUPS &&
                              (threads == 1 || n >= P::MIN_PANELS_PER_THREAD * PANEL * threads);
  const long n_k_blocks = P::BLOCKS_K || !reads_a_in_place ? std::max(1L, ceil_div(k_groups, P::MAX_KC_GROUPS)) : 1;
  const long kc = std::max(1L, ceil_div(ceil_div(k_groups, n_k_blocks), P::K_GROUPS_PER_STEP)) * P::K_GROUPS_PER_STEP;
  const long nc = std::max((shares_columns ? P::COLUMN_TASK_BYTES : PACKED_B_BYTES) / vector_bytes / PANEL,
                           shares_columns ? P::MIN_COLUMN_TASK_PANELS : threads) *
                  PANEL;
  // An odd number of lines, so that rows map to different cache sets.
  const long packed_row_bytes = 64 * (ceil_div(k_groups, LANES) | 1);
  const long a_row_bytes = reads_a_in_place ? a.stride * (a.is_bfloat16 ? 2 : 4) : packed_row_bytes;

  void run(const Thread& thread, char* workspace) const {
    if (splits_k) return run_split_k(thread, reinterpret_cast<float*>(workspace));
    P kernel;
    shares_columns ? run_column_blocks(kernel, thread) : run_row_blocks(kernel, thread, workspace);
    kernel.flush_epilogue();
    if (output.uses_streaming_stores) _mm_sfence();
  }

  // Allocates the workspace that threads share: partial sums of split-K, or packed panels.
  char* workspace() const {
    if (splits_k) return scratch<char, 18>(4 * SPLIT_K_WAYS * (m * n + m));
    return shares_columns ? nullptr : scratch<char, 10>(4 * k_groups * std::min(ceil_div(n, PANEL) * PANEL, nc));
  }

 private:
  // Split-K: one thread packs and multiplies each part of K. The partial sums are then added in order.
  void run_split_k(const Thread& thread, float* sums) const {
    static_assert(MAX_ACCUMULATED_K / SPLIT_K_WAYS < MIN_SPLIT_K, "a part of K is not split again");
    const long k_per_split = ceil_div(ceil_div(k, SPLIT_K_WAYS), P::K_PER_STEP) * P::K_PER_STEP,
               n_splits = ceil_div(k, k_per_split), c_size = m * n;
    float* partial_row_sums = sums + SPLIT_K_WAYS * c_size;
    thread.for_each_task(n_splits, [=](long i) {
      MatrixView a_split = a, b_split = b;
      advance(a_split, b_split, i * k_per_split);
      float* split_row_sums = output.row_sums ? partial_row_sums + i * m : nullptr;
      const TileOutput split_output{{},    sums + i * c_size, n,      m, n, false, true, true, false, true,
                                    false, split_row_sums,    nullptr};
      const Gemm split_gemm{a_split, b_split, split_output, m, std::min(k_per_split, k - i * k_per_split), 1};
      split_gemm.run(Thread(), split_gemm.workspace());
    });
    thread.barrier();
    const auto reduce_splits = [=](float* c, const float* partial, long split_stride, long columns) {
      for (long j = 0; j < columns; j += LANES) {
        const Mask mask = tail_mask(columns - j);
        VecF32 sum = broadcast(0.0f);
        for (long i = 0; i < n_splits; ++i) sum = sum + load(partial + i * split_stride + j, mask);
        store(c + j, mask, output.epilogue.accumulate ? sum + load(c + j, mask) : sum);
      }
    };
    thread.for_each_task(
        ceil_div(m, MR),
        [=](long block) {
          for (long r = block * MR; r < std::min(m, (block + 1) * MR); ++r)
            reduce_splits(static_cast<float*>(output.c) + r * output.stride, sums + r * n, c_size, n);
          if (output.row_sums && block == 0) reduce_splits(output.row_sums, partial_row_sums, m, m);
        },
        true);
  }

  void run_row_blocks(P& kernel, const Thread& thread, char* b_panels) const {
    for (long first_column = 0; first_column < n; first_column += nc) {
      if (first_column) thread.barrier();
      pack_b<Input>(b, first_column, b.is_transposed, k, k_groups, std::min(nc, n - first_column), PANEL, P::PACK_WIDTH,
                    b_panels, thread);
      thread.barrier();
      const long panels = ceil_div(std::min(nc, n - first_column), PANEL);
      const long row_block = row_block_size(thread.n_threads, panels), n_row_blocks = ceil_div(m, row_block);
      long packed_first = -1;
      const auto multiply_panel = [&](long g, long panel) {
        const long first = g * row_block, end = std::min(m, first + row_block);
        const char *b_panel = b_panels + 4 * panel * PANEL * k_groups, *a_rows = rows_of_a(first, end, packed_first);
        if (!reads_a_in_place) kernel.set_row_prefetch(next_pack_source((g + 1) * row_block, row_block, a_rows));
        if (output.row_sums && first_column + panel == 0) sum_rows(a_rows, first, end);
        multiply_row_block(kernel, a_rows, first, end, b_panel, first_column + panel * PANEL);
      };
      const auto row_blocks_of = [&](long partition) {
        return thread.first_task(partition + 1, n_row_blocks) - thread.first_task(partition, n_row_blocks);
      };
      if (panel_loop_is_outer) {
        thread.for_each_task_of_parts([&](long partition) { return row_blocks_of(partition) * panels; },
                                      [&](long partition, long i) {
                                        multiply_panel(
                                            thread.first_task(partition, n_row_blocks) + i % row_blocks_of(partition),
                                            i / row_blocks_of(partition));
                                      });
        continue;
      }
      // Packing each block of rows only once is worth waiting for a slower core, provided that rows are packed and
      // every thread has some to pack.
      const bool packs_once =
          panels < MIN_PANELS || (!P::PANEL_LOOP_IS_OUTER && !reads_a_in_place && n_row_blocks >= thread.n_threads);
      const auto whole_row_blocks_of = [&](long partition) {
        return packs_once ? row_blocks_of(partition) : row_blocks_of(partition) * 3 / 4;
      };
      thread.for_each_task_of_parts(whole_row_blocks_of, [&](long partition, long i) {
        for (long panel = 0; panel < panels; ++panel)
          multiply_panel(thread.first_task(partition, n_row_blocks) + i, panel);
      });
      thread.for_each_task_of_parts(
          [&](long partition) { return (row_blocks_of(partition) - whole_row_blocks_of(partition)) * panels; },
          [&](long partition, long i) {
            multiply_panel(thread.first_task(partition, n_row_blocks) + whole_row_blocks_of(partition) + i / panels,
                           i % panels);
          });
    }
  }

  // Each task packs a block of columns and multiplies all rows by it. The block stays in the L2 cache of its core.
  void run_column_blocks(P& kernel, const Thread& thread) const {
    const long column_block = column_block_size(thread.n_threads);
    char* b_panels = scratch<char, 10>(4 * k_groups * column_block);
    thread.for_each_task(ceil_div(n, column_block), [&](long task) {
      const long first = task * column_block, columns = std::min(column_block, n - first);
      pack_b<Input>(b, first, b.is_transposed, k, k_groups, columns, PANEL, P::PACK_WIDTH, b_panels, Thread());
      const auto* a_rows = static_cast<const char*>(a.data);
      const long n_steps = ceil_div(columns, PANEL) * std::max(1L, k_groups / P::K_GROUPS_PER_STEP);
      const bool is_dense = a_row_bytes <= 8 * k_groups;
      for (long i = 0; i < m; i += P::ROWS) {
        kernel.set_row_prefetch({a_rows + (i + P::ROWS) * a_row_bytes, P::ROWS, a_row_bytes});
        const bool prefetches = is_dense && i + P::ROWS < m;
        // The next rows, evenly over the steps.
        Prefetcher prefetcher{a_rows + (i + P::ROWS) * a_row_bytes,
                              prefetches ? ceil_div(P::ROWS * a_row_bytes / 64, n_steps) : 0};
        for (long j = 0; j < columns; j += PANEL)
          kernel.template compute_tile<PANEL, VECTORS>(std::min<long>(P::ROWS, m - i), a_rows + i * a_row_bytes,
                                                       a_row_bytes, b_panels + 4 * j * k_groups, k_groups, output, i,
                                                       first + j, false, prefetcher);
      }
    });
  }

  // Returns the number of columns per task, which stay in the L2 cache. Vector kernels have several tasks per thread;
  // AMX has one, because larger blocks are worth waiting for a slower core.
  long column_block_size(long n_threads) const {
    const long panels = std::max(1L, ceil_div(n, PANEL));
    if (!P::PANEL_LOOP_IS_OUTER) return std::clamp(ceil_div(panels, n_threads) * PANEL, PANEL, nc);
    const long min_tasks = std::max(ceil_div(panels * PANEL, nc), n_threads > 1 ? std::min(4 * n_threads, panels) : 1);
    return ceil_div(panels, ceil_div(min_tasks, n_threads) * n_threads) * PANEL;
  }

  // Returns MC: few enough rows for the number of tasks and for the cache that holds packed rows, in blocks of similar
  // size.
  long row_block_size(long n_threads, long panels) const {
    const long rows_for_tasks = ceil_div(ceil_div(m, ceil_div(TASKS_PER_THREAD * n_threads, panels)), MIN_MC) * MIN_MC;
    if (panel_loop_is_outer) return std::clamp(rows_for_tasks, MIN_MC, MAX_MC);
    const long max_rows = std::clamp(std::min(rows_for_tasks, P::L2_BYTES / vector_bytes), MIN_MC, MAX_MC);
    const long min_blocks = std::max(1L, ceil_div(m, max_rows)),
               n_row_blocks = min_blocks < n_threads ? min_blocks : ceil_div(min_blocks, n_threads) * n_threads;
    const long rows = std::max(1L, ceil_div(ceil_div(m, n_row_blocks), P::ROWS)) * P::ROWS;
    // If A is transposed, rows in the same cache lines are packed together: a few rows more would make packing take
    // half as long again.
    const auto rows_of_busiest = [=](long row_block) {
      return ceil_div(ceil_div(m, row_block), n_threads) * row_block;
    };
    const bool may_pack_lines = a.is_transposed && a.is_bfloat16 && P::ROWS < BF16_PER_LINE && rows < 2 * BF16_PER_LINE;
    return may_pack_lines && rows_of_busiest(BF16_PER_LINE) <= rows_of_busiest(rows) ? BF16_PER_LINE : rows;
  }

  // Returns rows of A from `first` on: in place, or packed in the thread's memory, where they may already be.
  const char* rows_of_a(long first, long end, long& packed_first) const {
    if (reads_a_in_place) return static_cast<const char*>(a.data) + first * a_row_bytes;
    char* packed = scratch<char, 11>(MAX_MC * packed_row_bytes);
    if (std::exchange(packed_first, first) != first) pack_a<Input>(a, first, k, end - first, packed, packed_row_bytes);
    return packed;
  }

  // Returns the rows of A that the thread probably packs next.
  RowPrefetch next_pack_source(long first, long rows, const char* any_address) const {
    if (first >= m) return RowPrefetch::none(any_address);
    const long element_size = a.is_bfloat16 ? 2 : 4, stride = a.stride * element_size;
    const char* address = static_cast<const char*>(a.data) + first * (a.is_transposed ? element_size : stride);
    return {address, a.is_transposed ? k : rows, stride};
  }

  // Sums each packed row, for `row_sums`.
  void sum_rows(const char* a_rows, long first, long end) const {
    constexpr long ACCUMULATORS = 4;
    for (; first < end; ++first, a_rows += a_row_bytes) {
      VecF32 sums[ACCUMULATORS] = {};
      for (long u = 0; u < k_groups; u += LANES) {
        VecF32& sum = sums[u / LANES % ACCUMULATORS];
        sum = Input::add_group(sum, load_i32(a_rows + 4 * u));
      }
      const float row_sum = reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
      output.row_sums[first] = output.epilogue.accumulate ? output.row_sums[first] + row_sum : row_sum;
    }
  }

  // Multiplies a block of rows by one panel, one block of K after another.
  void multiply_row_block(P& kernel, const char* a_rows, long first, long end, const char* b_panel, long column) const {
    TileOutput tile_output = output;
    float* partial_sums = scratch<float, 12>(MAX_MC * PANEL);
    Prefetcher prefetcher{};  // empty, because the hardware prefetcher recognizes that panels are contiguous
    const bool prefetches_rows =
        reads_a_in_place && m * a_row_bytes > P::L2_BYTES;  // evicted from L2 before the next panel
    if (reads_a_in_place) kernel.set_row_prefetch(RowPrefetch::none(a_rows));
    for (long k_begin = 0; k_begin < k_groups || k_begin == 0; k_begin += kc) {
      tile_output.is_first_k_block = k_begin == 0;
      tile_output.is_last_k_block = k_begin + kc >= k_groups;
      for (long i = first; i < end; i += P::ROWS) {
        tile_output.partial_sums = partial_sums + (n_k_blocks > 1 ? (i - first) * PANEL : 0);
        if (prefetches_rows)
          kernel.set_row_prefetch({a_rows + (i - first + P::ROWS) * a_row_bytes + 4 * k_begin, P::ROWS, a_row_bytes});
        kernel.template compute_tile<PANEL, VECTORS>(
            std::min<long>(P::ROWS, end - i), a_rows + (i - first) * a_row_bytes + 4 * k_begin, a_row_bytes,
            b_panel + 4 * k_begin * PANEL, std::min(kc, k_groups - k_begin), tile_output, i, column, true, prefetcher);
      }
    }
  }
};

template <typename P, int VECTORS>
void matmul(const MatrixView& a, const MatrixView& b, const TileOutput& output, long m, long k, int threads) {
  const Gemm<P, VECTORS> gemm{a, b, output, m, k, threads};
  char* workspace = gemm.workspace();
  parallel_region(threads, [&](const Thread& thread) { gemm.run(thread, workspace); });
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_matrix_view() { return sizeof(transformer::MatrixView); }
extern "C" long transformer_size_of_epilogue() { return sizeof(transformer::Epilogue); }

// C (m, n) = A (m, k) B (k, n) with the epilogue applied. Rows of C are `stride` elements apart.
extern "C" void transformer_matmul(const transformer::MatrixView* a, const transformer::MatrixView* b,
                                   const transformer::Epilogue* epilogue, void* c, int c_is_bfloat16, long stride,
                                   long m, long n, long k, int is_bfloat16, int threads) {
  using namespace transformer;
  MatrixView a_block = *a, b_block = *b;
  const long c_element_size = c_is_bfloat16 ? 2 : 4;
  const bool uses_amx = amx_enabled && (is_bfloat16 || m * n >= MIN_PRODUCTS_PER_SPLIT * (m + n));
  const bool is_line_aligned =
      (reinterpret_cast<uintptr_t>(c) | static_cast<uintptr_t>(stride * c_element_size)) % 64 == 0;
  TileOutput output{{},     c, stride, m, n, c_is_bfloat16 != 0, true, true, false, false, false, epilogue->row_sums,
                    nullptr};
  const long max_k = c_is_bfloat16 ? std::max(1L, k) : MAX_ACCUMULATED_K;
  output.uses_streaming_stores =
      uses_amx && is_line_aligned && k <= max_k && !epilogue->accumulate &&
      m * n * c_element_size >= (threads > 1 ? MIN_STREAMED_BYTES : MIN_STREAMED_BYTES_OF_ONE_THREAD);
  for (long k_begin = 0; k_begin < k || k_begin == 0; k_begin += max_k) {
    const long k_block = std::min(max_k, k - k_begin);
    if (k_begin + k_block >= k) output.epilogue = *epilogue;  // until the last block, C holds partial sums
    output.epilogue.accumulate = k_begin > 0 || epilogue->accumulate;
    output.has_activation = output.epilogue.relu || output.epilogue.factor_matrix;
    output.is_bias_only = !output.has_activation && !output.epilogue.accumulate;
    constexpr int WIDE = NR_VECTORS, NARROW = std::min(2, WIDE);
    const auto choose_width = [n](auto wide, auto narrow) { return n > NARROW * LANES ? wide : narrow; };
    const auto run = uses_amx ? is_bfloat16 ? matmul<AmxKernel<Bfloat16>, AMX_NR_VECTORS>
                                            : matmul<AmxKernel<Float32AsBf16x3>, AMX_NR_VECTORS>
                     : is_bfloat16
                         ? choose_width(matmul<VectorKernel<Bfloat16>, WIDE>, matmul<VectorKernel<Bfloat16>, NARROW>)
                         : choose_width(matmul<VectorKernel<Float32>, WIDE>, matmul<VectorKernel<Float32>, NARROW>);
    run(a_block, b_block, output, m, k_block, threads);
    advance(a_block, b_block, k_block);
  }
}
