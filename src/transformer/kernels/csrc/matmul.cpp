// C = A B + bias in float32 or bfloat16 for matrices that are not packed in advance. Training uses it, because weights
// change with every step.
//
// A tile of C has six rows and one panel of columns, and its accumulators stay in registers. A panel has 64 columns, 32
// if C has no more, or 16 on processors with fewer registers; the last panel has as many vectors as it needs. With AMX,
// a tile has 32 rows and 32 columns. B is packed in panels: for each unit along the inner axis, the units of the
// panel's columns are contiguous. A is read in place if its rows are suitable; otherwise the thread that multiplies its
// rows packs them.
//
// A thread takes a group of rows, which stays in its L2 cache, through all panels. If rows are read in place and short,
// and columns are many, it instead packs its own block of columns, which stays there while all rows pass. Parts of the
// inner axis are multiplied one after another, with their partial sums in the L2 cache as well. While a tile is
// multiplied, the memory needed next is prefetched. If there are few results of many inputs, as in gradients of small
// weights, the inputs are split among the threads and the partial sums are added in order. Every element is summed in
// the same order for any number of threads.
//
// AMX does not support float32. It multiplies bfloat16 so fast, though, that six products of the parts of float32
// numbers take less time than one product by vector instructions, if the matrices are large enough to amortize the
// splitting. The sums are float32, like those of vector instructions, but in another order.
#include "layouts.h"
#include "sharing.h"
#include "tiles.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace transformer {
namespace {

constexpr long GROUP = 384;              // maximum number of rows in a group
constexpr long OF_A_LINE = 2 * LANES;    // bfloat16 elements per cache line
constexpr long TASKS = 16;               // tasks per thread, if there are enough rows
constexpr long FEW = 8;                  // with fewer panels, two threads should not pack the same rows
constexpr long STRETCH = 64;             // units of a panel packed before the next panel's, a multiple of LANES
constexpr long MOST_INPUTS = 4096;       // maximum number of inputs summed before the sums are added to C
constexpr long ROOM = 8 << 20;           // bytes of B that are packed at a time
constexpr long SHARES = 8;               // shares into which the inputs are split among threads,
constexpr long MANY_INPUTS = 2048;       // if there are at least this many inputs
constexpr long SMALL = 256 << 10;        // and at most this many bytes of sums
constexpr long MIN_PRODUCTS_PER_SPLIT = 100;  // minimum average number of products per float32 input for splitting
constexpr long PASSED_ON = 256 << 10;    // minimum size of C in bytes for non-temporal stores by several threads
constexpr long PASSED_ON_BY_ONE = 4 << 20;  // and by one thread, which may read C next

// Packs `width` columns of the matrix, starting at `first`. If `is_k_contiguous`, each column is contiguous in memory. A task
// packs `swath` columns and STRETCH units of each. Units beyond the inputs are zero.
template <typename P>
void pack_b(const MatrixView& x, long first, bool is_k_contiguous, long inner, long units, long width, long panel, long swath,
             char* to, const Thread& thread) {
  units /= P::TERMS;
  const long stretches = ceil_div(units, STRETCH);
  thread.for_each_task(ceil_div(width, swath) * stretches, [=](long task) {
    const long column = task / stretches * swath, unit = task % stretches * STRETCH;
    const long offset = is_k_contiguous ? (first + column) * x.stride : first + column;
    const PackBlock block{std::min(swath, width - column), panel, inner, units, unit, std::min(units, unit + STRETCH)};
    char* own = to + 4 * column * units * P::TERMS;
    if constexpr (sizeof(typename P::Input) == 2)
      if (x.is_bfloat16) return pack_b<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, is_k_contiguous, block, own);
    const auto* from = static_cast<const float*>(x.data) + offset;
    if constexpr (P::TERMS == 3)
      pack_b_bf16x3(from, x.stride, is_k_contiguous, block, own);
    else
      pack_b<P>(from, x.stride, is_k_contiguous, block, own);
  });
}

// Cache lines needed next, prefetched one by one while a tile is multiplied: the first line of each row, then the
// second line of each row, and so on.
struct Wanted {
  const char* line;
  long rows, stride;  // in bytes, from row to row
  const char* end = line + rows * stride;

  static Wanted nothing(const char* at_hand) { return {at_hand, 1, 0}; }

  // Advances to the prefetches of the next tile. `asked` is the line after the last prefetched one.
  void go_on(const char* asked) {
    line = asked;
    if (line < end) return;
    line += 64 - rows * stride;
    end += 64;
  }
};

void move(MatrixView& x, long elements) { x.data = static_cast<const char*>(x.data) + elements * (x.is_bfloat16 ? 2 : 4); }

// Advances both factors to input `first`.
void move(MatrixView& a, MatrixView& b, long first) {
  move(a, a.is_transposed ? first * a.stride : first);
  move(b, b.is_transposed ? first : first * b.stride);
}

// Destination of a tile's sums, and the buffer that holds partial sums between parts of the inner axis.
struct Sums {
  Epilogue finish;
  void* c;
  long stride, rows, columns;
  bool c_is_bfloat16, is_first, is_last;
  bool is_bent;    // ReLU or a gate is applied
  bool is_plain;   // without ReLU, gate or accumulation into C
  bool passes_on;  // non-temporal stores of whole lines: other stores would first read the lines, and displace others
  float* row_sums;  // output for the sums of A's rows, or null
  float* waiting;

  VecF32 bias(long column, Mask m) const { return is_last && finish.bias ? load(finish.bias + column, m) : broadcast(0.0f); }

  // Prefetches the operands of the epilogue and its destination, whose rows lie far apart. T is the element type of a
  // gate.
  template <typename T>
  void ask_ahead(long rows, long i, long j, long width, bool wants_room) const {
    for (long r = i; r < i + rows; ++r) {
      if (finish.factor_matrix) prefetch(static_cast<const T*>(finish.factor_matrix) + r * finish.factor_stride + j, width);
      if (!finish.accumulate && !wants_room) continue;
      if (c_is_bfloat16)
        prefetch(static_cast<const uint16_t*>(c) + r * stride + j, width);
      else
        prefetch(static_cast<const float*>(c) + r * stride + j, width);
    }
  }
};

// Applies ReLU and the gate to row i, columns from j on. T is the element type of the gate. A call would spill the
// tile's registers, so this is always inlined.
template <typename T>
__attribute__((always_inline)) inline VecF32 bent(VecF32 y, const Epilogue& f, long i, long j, Mask m) {
  if (f.relu) y = max(broadcast(0.0f), y);  // this operand order preserves NaN
  if (!f.factor_matrix) return y;
  const VecF32 factors = load(static_cast<const T*>(f.factor_matrix) + i * f.factor_stride + j, m);
  if (f.has_derivatives) return y * factors;
  return maskz(cmp_nle(factors, broadcast(0.0f)), y * broadcast(f.factor));
}

// Applies the epilogue, except for the bias, to row i, columns from j on, after the last part of the inner axis.
template <typename T>
__attribute__((always_inline)) inline VecF32 finished(const Sums& s, VecF32 y, long i, long j, Mask m) {
  if (s.finish.accumulate) y = y + load(static_cast<float*>(s.c) + i * s.stride + j, m);
  return s.is_bent ? bent<T>(y, s.finish, i, j, m) : y;
}

template <typename T>
__attribute__((always_inline)) inline void write(const Sums& s, VecF32 sum, long i, long j, Mask m) {
  const long place = i * s.stride + j;
  const VecF32 y = finished<T>(s, sum, i, j, m);
  s.c_is_bfloat16 ? store(static_cast<uint16_t*>(s.c) + place, m, y) : store(static_cast<float*>(s.c) + place, m, y);
}

// Writes sums plus bias, without any other epilogue, for whole vectors of columns.
template <int VECTORS, int R>
__attribute__((always_inline)) inline void write_plain(const Sums& s, const VecF32 (&sums)[R][VECTORS], long i, long j) {
  VecF32 bias[VECTORS];
  for (int v = 0; v < VECTORS; ++v) bias[v] = s.bias(j + v * LANES, tail_mask(LANES));
  const long first = i * s.stride + j;
  if (!s.c_is_bfloat16) {
    float* to = static_cast<float*>(s.c) + first;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r, to += s.stride)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) store(to + v * LANES, sums[r][v] + bias[v]);
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(s.c) + first;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r, to += s.stride) {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < VECTORS; v += 2)
      store_i32(to + v * LANES, to_bf16_pairs(sums[r][v] + bias[v], sums[r][v + 1] + bias[v + 1]));
    constexpr int LAST = VECTORS - 1;
    if (VECTORS % 2) store(to + LAST * LANES, tail_mask(LANES), sums[r][LAST] + bias[LAST]);
  }
}

// The micro-kernel: multiplies R rows of A, `row` bytes apart, by the first VECTORS vectors of one panel.
template <typename P, long PANEL, int VECTORS, int R>
void multiply(const char* a, long row, const char* b, long units, const Sums& s, long i, long j, float* waiting,
              Wanted& wanted) {
  VecF32 sums[R][VECTORS];
  Mask m[VECTORS];
  for (int v = 0; v < VECTORS; ++v) m[v] = tail_mask(std::clamp(s.columns - j - v * LANES, 0L, LANES));
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = s.is_first ? broadcast(0.0f) : load(waiting + r * PANEL + v * LANES);
  if (s.is_last) s.ask_ahead<typename P::Input>(R, i, j, PANEL, !s.c_is_bfloat16);
  const auto multiply_unit = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v)
        sums[r][v] = P::multiply_add_group(sums[r][v], a + r * row, load_i32(b + v * 64));
    a += 4, b += 4 * PANEL;
  };
  // If as many rows are prefetched as the tile has, all their lines are. Otherwise one line per row is, for as many
  // rows as there are steps.
  const char* line = wanted.line;
  const long to_row = wanted.stride, to_line = wanted.rows == R ? 64 - (R - 1) * to_row : to_row;
  int left = R;
  for (long u = 2; u <= units; u += 2) {
    _mm_prefetch(line, _MM_HINT_T0);
    line += --left ? to_row : to_line;
    left = left ? left : R;
    multiply_unit();
    multiply_unit();
  }
  if (units % 2) multiply_unit();
  wanted.go_on(line);
  if (s.is_last && s.is_plain && s.columns - j >= VECTORS * LANES) return write_plain<VECTORS, R>(s, sums, i, j);
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; ++v) {
    const long column = j + v * LANES;
    const VecF32 bias = s.bias(column, m[v]);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      if (s.is_last)
        write<typename P::Input>(s, sums[r][v] + bias, i + r, column, m[v]);
      else
        store(waiting + r * PANEL + v * LANES, sums[r][v]);
    }
  }
}

template <typename P, long PANEL, int VECTORS>
void multiply(long rows, const char* a, long row, const char* b, long units, const Sums& s, long i, long j,
              float* waiting, Wanted& wanted) {
  if constexpr (VECTORS > 1)  // the last panel may have fewer
    if (s.columns - j <= (VECTORS - 1) * LANES)
      return multiply<P, PANEL, VECTORS - 1>(rows, a, row, b, units, s, i, j, waiting, wanted);
  switch (rows) {
    case 1: return multiply<P, PANEL, VECTORS, 1>(a, row, b, units, s, i, j, waiting, wanted);
    case 2: return multiply<P, PANEL, VECTORS, 2>(a, row, b, units, s, i, j, waiting, wanted);
    case 3: return multiply<P, PANEL, VECTORS, 3>(a, row, b, units, s, i, j, waiting, wanted);
    case 4: return multiply<P, PANEL, VECTORS, 4>(a, row, b, units, s, i, j, waiting, wanted);
    case 5: return multiply<P, PANEL, VECTORS, 5>(a, row, b, units, s, i, j, waiting, wanted);
    default: return multiply<P, PANEL, VECTORS, 6>(a, row, b, units, s, i, j, waiting, wanted);
  }
}

// How a tile of sums is computed: by vector instructions (this struct) or by AMX (the next one). `ROWS` is the height
// of a tile. The number of units along the inner axis is a multiple of `UNITS`, and a part of the axis has at most
// `LONGEST`. If rows are read in place, the axis is cut into parts only if `IS_CUT`, and threads share columns of at
// most `SHORT` units. `HELD` bytes of rows or columns stay in the L2 cache. `SWATH` columns are packed at a time, a
// multiple of every panel's width.
template <typename P>
struct ByVectors {
  using Input = P;
  static constexpr long ROWS = MR, UNITS = 1, INPUTS = P::K_PER_GROUP, LONGEST = KC, HELD = L2_BLOCK_BYTES;
  static constexpr long SHORT = (800 << 10) / (4 * LANES * NR_VECTORS), OF_COLUMNS = HELD, LEAST_PANELS = 1, WORTH_SHARING = 4;
  static constexpr long SWATH = 192;  // what is read and written for it stays in the L1 cache
  static constexpr bool IS_CUT = true, GOES_BY_PANELS = true;

  template <long PANEL, int VECTORS>
  void tile(long rows, const char* a, long row, const char* b, long units, const Sums& s, long i, long j, bool, Prefetcher&) {
    multiply<P, PANEL, VECTORS>(rows, a, row, b, units, s, i, j, s.waiting, wanted);
  }
  void want(const Wanted& next) { wanted = next; }
  void finish() {}

 private:
  Wanted wanted{};
};

// AMX multiplies so fast that it waits for everything beyond the L1 cache. What a thread has packed therefore stays in
// its L2 cache: rows while all panels pass, or columns while all rows pass. Parts of packed rows and panels stay in the
// L1 cache. Rows read in place often map to few sets of that cache, so cutting them into parts gains nothing. Meanwhile
// vector instructions finish the previous tile.
template <typename P>
struct ByTiles {
  using Input = P;
  static constexpr long ROWS = AMX_MR, UNITS = TILE_K_GROUPS * P::TERMS, INPUTS = TILE_K_GROUPS * P::K_PER_GROUP;
  // Six products per step wait less for memory.
  static constexpr long LONGEST = P::TERMS == 1 ? 256 : std::numeric_limits<long>::max();
  static constexpr long SHORT = 1024, HELD = 1 << 20, OF_COLUMNS = HELD / 2, LEAST_PANELS = FEW, WORTH_SHARING = FEW;
  static constexpr long SWATH = 512;  // long pieces of rows are read at memory bandwidth
  static constexpr bool IS_CUT = false, GOES_BY_PANELS = false;

  // `b_stays` has the same meaning as in `TileOperands`.
  template <long PANEL, int VECTORS>
  void tile(long rows, const char* a, long row, const char* b, long units, const Sums& s, long i, long j, bool b_stays,
            Prefetcher& prefetcher) {
    static_assert(PANEL == COLUMNS);
    float* to = s.is_last ? sums[is_second = !is_second] : s.waiting;
    const float* before = s.is_first ? nullptr : s.waiting;
    const long at_once = ceil_div(ROWS, std::max(1L, units / UNITS));
    long asked = i + ROWS;
    constexpr TileType tile_type = P::TERMS == 1 ? TileType::bfloat16 : TileType::bf16x3;
    const auto overlapped = [&] {
      prefetcher.step();
      if (s.is_last) s.ask_ahead<typename P::Input>(std::min(at_once, s.rows - asked), asked, j, PANEL, false);
      asked += at_once;
      finish(at_once);
    };
    tiles.multiply<tile_type>({a, b, nullptr, row, 4 * PANEL, units, b_stays, before}, rows, ceil_div(s.columns - j, LANES), to,
                            4 * PANEL, overlapped);
    if (!s.is_last) return;
    finish();
    of = s, from = to, next = i, end = i + rows, column = j;
  }

  void want(const Wanted&) {}
  void finish() { finish(ROWS); }

 private:
  static constexpr long COLUMNS = AMX_NR_VECTORS * LANES;
  static_assert(AMX_NR_VECTORS == 2);

  // Finishes up to `rows` more rows of the previous tile.
  void finish(long rows) {
    const long last = std::min(end, next + rows);
    if (next == last) return;
    const Mask left = tail_mask(of.columns - column), right = tail_mask(std::max(0L, of.columns - column - LANES));
    const VecF32 left_bias = of.bias(column, left), right_bias = of.bias(column + LANES, right);
    const bool passes_on = of.passes_on && of.columns - column >= COLUMNS;
    for (; next < last; ++next, from += COLUMNS) {
      const VecF32 left_sum = load(from) + left_bias, right_sum = load(from + LANES) + right_bias;
      if (!passes_on) {
        write<typename P::Input>(of, left_sum, next, column, left);
        if (right) write<typename P::Input>(of, right_sum, next, column + LANES, right);
        continue;
      }
      const VecF32 y = finished<typename P::Input>(of, left_sum, next, column, left);
      const VecF32 z = finished<typename P::Input>(of, right_sum, next, column + LANES, right);
      const long place = next * of.stride + column;
      if (of.c_is_bfloat16) {
        stream_store(static_cast<uint16_t*>(of.c) + place, to_bf16_pairs(y, z));
      } else {
        stream_store(static_cast<float*>(of.c) + place, bitcast_i32(y));
        stream_store(static_cast<float*>(of.c) + place + LANES, bitcast_i32(z));
      }
    }
  }

  AmxTiles tiles;
  alignas(64) float sums[2][ROWS * COLUMNS];
  bool is_second = false;
  Sums of;  // the previous tile; the sums of its rows `next` to `end` start at `from`
  const float* from;
  long next = 0, end = 0, column;
};

template <typename P, int VECTORS>
struct Product {
  using Input = typename P::Input;
  static constexpr long PANEL = VECTORS * LANES;
  MatrixView a, b;
  Sums to;
  long m, k, threads;
  const long n = to.columns, units = ceil_div(k, P::INPUTS) * P::UNITS;
  const long bytes = 4 * std::max(1L, units);  // of a row or column
  const bool is_k_complete = k % P::INPUTS == 0 || (P::UNITS == 1 && a.is_padded);
  const bool is_as_taken = Input::TERMS == 1 && a.is_bfloat16 == (sizeof(typename Input::Input) == 2);
  const bool a_lies_right = READS_A_IN_PLACE && !a.is_transposed && is_k_complete && is_as_taken && !to.row_sums;
  const bool by_panels = P::GOES_BY_PANELS && a_lies_right;
  const bool is_sum = !to.finish.bias && !to.is_bent && !to.c_is_bfloat16;
  const bool by_inputs = P::GOES_BY_PANELS && !a_lies_right && is_sum && k >= MANY_INPUTS && 4 * m * n <= SMALL;
  const bool by_columns = a_lies_right && units <= P::SHORT && (threads == 1 || n >= P::WORTH_SHARING * PANEL * threads);
  const long parts = P::IS_CUT || !a_lies_right ? std::max(1L, ceil_div(units, P::LONGEST)) : 1;
  const long depth = std::max(1L, ceil_div(ceil_div(units, parts), P::UNITS)) * P::UNITS;
  const long width = std::max((by_columns ? P::OF_COLUMNS : ROOM) / bytes / PANEL, by_columns ? P::LEAST_PANELS : threads) * PANEL;
  // An odd number of lines, so that rows map to different cache sets.
  const long apart = 64 * (ceil_div(units, LANES) | 1);
  const long row = a_lies_right ? a.stride * (a.is_bfloat16 ? 2 : 4) : apart;

  void share(const Thread& thread, char* room) const {
    if (by_inputs) return share_inputs(thread, reinterpret_cast<float*>(room));
    P by;
    by_columns ? share_columns(by, thread) : share_rows(by, thread, room);
    by.finish();
    if (to.passes_on) _mm_sfence();
  }

  // Returns the memory that threads share: partial sums or packed panels.
  char* room() const {
    if (by_inputs) return scratch<char, 18>(4 * SHARES * (m * n + m));
    return by_columns ? nullptr : scratch<char, 10>(4 * units * std::min(ceil_div(n, PANEL) * PANEL, width));
  }

 private:
  // One thread packs and multiplies each share of the inputs. The partial sums are then added in order.
  void share_inputs(const Thread& thread, float* sums) const {
    static_assert(MOST_INPUTS / SHARES < MANY_INPUTS, "a share is not shared again");
    const long inputs = ceil_div(ceil_div(k, SHARES), P::INPUTS) * P::INPUTS, shares = ceil_div(k, inputs), size = m * n;
    float* of_rows = sums + SHARES * size;
    thread.for_each_task(shares, [=](long i) {
      MatrixView left = a, right = b;
      move(left, right, i * inputs);
      float* own_rows = to.row_sums ? of_rows + i * m : nullptr;
      const Sums own{{}, sums + i * size, n, m, n, false, true, true, false, true, false, own_rows, nullptr};
      const Product part{left, right, own, m, std::min(inputs, k - i * inputs), 1};
      part.share(Thread(), part.room());
    });
    thread.barrier();
    const auto add = [=](float* c, const float* first, long apart, long columns) {
      for (long j = 0; j < columns; j += LANES) {
        const Mask there = tail_mask(columns - j);
        VecF32 sum = broadcast(0.0f);
        for (long i = 0; i < shares; ++i) sum = sum + load(first + i * apart + j, there);
        store(c + j, there, to.finish.accumulate ? sum + load(c + j, there) : sum);
      }
    };
    thread.for_each_task(ceil_div(m, MR), [=](long block) {
      for (long r = block * MR; r < std::min(m, (block + 1) * MR); ++r)
        add(static_cast<float*>(to.c) + r * to.stride, sums + r * n, size, n);
      if (to.row_sums && block == 0) add(to.row_sums, of_rows, m, m);
    }, true);
  }

  void share_rows(P& by, const Thread& thread, char* b_panels) const {
    for (long left = 0; left < n; left += width) {
      if (left) thread.barrier();
      pack_b<Input>(b, left, b.is_transposed, k, units, std::min(width, n - left), PANEL, P::SWATH, b_panels, thread);
      thread.barrier();
      const long panels = ceil_div(std::min(width, n - left), PANEL);
      const long group = rows_of_group(thread.n_threads, panels), groups = ceil_div(m, group);
      long laid_out = -1;
      const auto multiply_one = [&](long g, long panel) {
        const long first = g * group, end = std::min(m, first + group);
        const char *columns = b_panels + 4 * panel * PANEL * units, *rows = rows_of(first, end, laid_out);
        if (!a_lies_right) by.want(to_lay_out((g + 1) * group, group, rows));
        if (to.row_sums && left + panel == 0) sum_rows(rows, first, end);
        multiply_group(by, rows, first, end, columns, left + panel * PANEL);
      };
      const auto groups_of = [&](long part) { return thread.first_task(part + 1, groups) - thread.first_task(part, groups); };
      if (by_panels) {
        thread.for_each_task_of_parts([&](long part) { return groups_of(part) * panels; }, [&](long part, long i) {
          multiply_one(thread.first_task(part, groups) + i % groups_of(part), i / groups_of(part));
        });
        continue;
      }
      // Packing each group only once is worth waiting for a slower core, provided that rows are packed and every thread
      // has some to pack.
      const bool is_once = panels < FEW || (!P::GOES_BY_PANELS && !a_lies_right && groups >= thread.n_threads);
      const auto whole_of = [&](long part) { return is_once ? groups_of(part) : groups_of(part) * 3 / 4; };
      thread.for_each_task_of_parts(whole_of, [&](long part, long i) {
        for (long panel = 0; panel < panels; ++panel) multiply_one(thread.first_task(part, groups) + i, panel);
      });
      thread.for_each_task_of_parts([&](long part) { return (groups_of(part) - whole_of(part)) * panels; }, [&](long part, long i) {
        multiply_one(thread.first_task(part, groups) + whole_of(part) + i / panels, i % panels);
      });
    }
  }

  // Each task packs a block of columns and multiplies all rows by it. The block stays in the L2 cache of its thread.
  void share_columns(P& by, const Thread& thread) const {
    const long most = columns_at_once(thread.n_threads);
    char* own = scratch<char, 10>(4 * units * most);
    thread.for_each_task(ceil_div(n, most), [&](long task) {
      const long first = task * most, columns = std::min(most, n - first);
      pack_b<Input>(b, first, b.is_transposed, k, units, columns, PANEL, P::SWATH, own, Thread());
      const auto* rows = static_cast<const char*>(a.data);
      const long steps = ceil_div(columns, PANEL) * std::max(1L, units / P::UNITS);
      const bool is_dense = row <= 8 * units;
      for (long i = 0; i < m; i += P::ROWS) {
        by.want({rows + (i + P::ROWS) * row, P::ROWS, row});
        const bool asks = is_dense && i + P::ROWS < m;
        // The next rows, in equal parts.
        Prefetcher prefetcher{rows + (i + P::ROWS) * row, asks ? ceil_div(P::ROWS * row / 64, steps) : 0};
        for (long j = 0; j < columns; j += PANEL)
          by.template tile<PANEL, VECTORS>(std::min<long>(P::ROWS, m - i), rows + i * row, row, own + 4 * j * units, units, to,
                                           i, first + j, false, prefetcher);
      }
    });
  }

  // Returns the number of columns per task, which stay in the L2 cache. Vector instructions share the columns equally;
  // with AMX, threads wait for those that take more columns.
  long columns_at_once(long all) const {
    const long panels = std::max(1L, ceil_div(n, PANEL));
    if (!P::GOES_BY_PANELS) return std::clamp(ceil_div(panels, all) * PANEL, PANEL, width);
    const long fewest = std::max(ceil_div(panels * PANEL, width), all > 1 ? std::min(4 * all, panels) : 1);
    return ceil_div(panels, ceil_div(fewest, all) * all) * PANEL;
  }

  // Returns the number of rows per group: few enough for the number of tasks and for the cache that holds packed rows,
  // and such that groups have similar sizes.
  long rows_of_group(long all, long panels) const {
    const long suffice = ceil_div(ceil_div(m, ceil_div(TASKS * all, panels)), MIN_MC) * MIN_MC;
    if (by_panels) return std::clamp(suffice, MIN_MC, GROUP);
    const long most = std::clamp(std::min(suffice, P::HELD / bytes), MIN_MC, GROUP);
    const long fewest = std::max(1L, ceil_div(m, most)), groups = fewest < all ? fewest : ceil_div(fewest, all) * all;
    const long rows = std::max(1L, ceil_div(ceil_div(m, groups), P::ROWS)) * P::ROWS;
    // If A is transposed, rows in the same cache lines are packed together: a few rows more would make packing take
    // half as long again.
    const auto of_busiest = [=](long group) { return ceil_div(ceil_div(m, group), all) * group; };
    const bool may_be_lines = a.is_transposed && a.is_bfloat16 && P::ROWS < OF_A_LINE && rows < 2 * OF_A_LINE;
    return may_be_lines && of_busiest(OF_A_LINE) <= of_busiest(rows) ? OF_A_LINE : rows;
  }

  // Returns rows of A from `first` on: in place, or packed in the thread's memory, where they may already be.
  const char* rows_of(long first, long end, long& laid_out) const {
    if (a_lies_right) return static_cast<const char*>(a.data) + first * row;
    char* own = scratch<char, 11>(GROUP * apart);
    if (std::exchange(laid_out, first) != first) pack_a<Input>(a, first, k, end - first, own, apart);
    return own;
  }

  // Returns the memory that the thread probably packs next.
  Wanted to_lay_out(long first, long rows, const char* at_hand) const {
    if (first >= m) return Wanted::nothing(at_hand);
    const long size = a.is_bfloat16 ? 2 : 4, stride = a.stride * size;
    const char* from = static_cast<const char*>(a.data) + first * (a.is_transposed ? size : stride);
    return {from, a.is_transposed ? k : rows, stride};
  }

  // Adds up the elements of each packed row, for `row_sums`.
  void sum_rows(const char* rows, long first, long end) const {
    constexpr long AT_ONCE = 4;
    for (; first < end; ++first, rows += row) {
      VecF32 sums[AT_ONCE] = {};
      for (long u = 0; u < units; u += LANES) {
        VecF32& sum = sums[u / LANES % AT_ONCE];
        sum = Input::add_group(sum, load_i32(rows + 4 * u));
      }
      const float found = reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
      to.row_sums[first] = to.finish.accumulate ? to.row_sums[first] + found : found;
    }
  }

  // Multiplies the rows of a group by one panel, one part of the inner axis after another.
  void multiply_group(P& by, const char* rows, long first, long end, const char* columns, long column) const {
    Sums s = to;
    float* waiting = scratch<float, 12>(GROUP * PANEL);
    Prefetcher prefetcher{};  // empty, because the hardware prefetcher recognizes that panels are contiguous
    const bool wants_rows = a_lies_right && m * row > P::HELD;  // the L2 cache cannot hold them until the next panel
    if (a_lies_right) by.want(Wanted::nothing(rows));
    for (long from = 0; from < units || from == 0; from += depth) {
      s.is_first = from == 0;
      s.is_last = from + depth >= units;
      for (long i = first; i < end; i += P::ROWS) {
        s.waiting = waiting + (parts > 1 ? (i - first) * PANEL : 0);
        if (wants_rows) by.want({rows + (i - first + P::ROWS) * row + 4 * from, P::ROWS, row});
        by.template tile<PANEL, VECTORS>(std::min<long>(P::ROWS, end - i), rows + (i - first) * row + 4 * from, row,
                                         columns + 4 * from * PANEL, std::min(depth, units - from), s, i, column, true, prefetcher);
      }
    }
  }
};

template <typename P, int VECTORS>
void matmul(const MatrixView& a, const MatrixView& b, const Sums& to, long m, long k, int threads) {
  const Product<P, VECTORS> product{a, b, to, m, k, threads};
  char* room = product.room();
  parallel_region(threads, [&](const Thread& thread) { product.share(thread, room); });
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_layout() { return sizeof(transformer::MatrixView); }
extern "C" long transformer_size_of_finish() { return sizeof(transformer::Epilogue); }

// C (m, n) = A (m, k) B (k, n) with the epilogue applied. Rows of C are `stride` elements apart.
extern "C" void transformer_matmul(const transformer::MatrixView* a, const transformer::MatrixView* b,
                                   const transformer::Epilogue* finish, void* c, int c_is_bfloat16, long stride, long m,
                                   long n, long k, int is_bfloat16, int threads) {
  using namespace transformer;
  MatrixView left = *a, right = *b;
  const long size = c_is_bfloat16 ? 2 : 4;
  const bool by_tiles = amx_enabled && (is_bfloat16 || m * n >= MIN_PRODUCTS_PER_SPLIT * (m + n));
  const bool is_in_lines = (reinterpret_cast<uintptr_t>(c) | static_cast<uintptr_t>(stride * size)) % 64 == 0;
  Sums s{{}, c, stride, m, n, c_is_bfloat16 != 0, true, true, false, false, false, finish->row_sums, nullptr};
  const long most = c_is_bfloat16 ? std::max(1L, k) : MOST_INPUTS;
  s.passes_on = by_tiles && is_in_lines && k <= most && !finish->accumulate &&
                m * n * size >= (threads > 1 ? PASSED_ON : PASSED_ON_BY_ONE);
  for (long from = 0; from < k || from == 0; from += most) {
    const long part = std::min(most, k - from);
    if (from + part >= k) s.finish = *finish;  // until the last part, C holds partial sums
    s.finish.accumulate = from > 0 || finish->accumulate;
    s.is_bent = s.finish.relu || s.finish.factor_matrix;
    s.is_plain = !s.is_bent && !s.finish.accumulate;
    constexpr int WIDE = NR_VECTORS, NARROW = std::min(2, WIDE);
    const auto by_width = [n](auto wide, auto narrow) { return n > NARROW * LANES ? wide : narrow; };
    const auto matrices =
        by_tiles ? is_bfloat16 ? matmul<ByTiles<Bfloat16>, AMX_NR_VECTORS> : matmul<ByTiles<Float32AsBf16x3>, AMX_NR_VECTORS>
        : is_bfloat16 ? by_width(matmul<ByVectors<Bfloat16>, WIDE>, matmul<ByVectors<Bfloat16>, NARROW>)
                      : by_width(matmul<ByVectors<Float32>, WIDE>, matmul<ByVectors<Float32>, NARROW>);
    matrices(left, right, s, m, part, threads);
    move(left, right, part);
  }
}
