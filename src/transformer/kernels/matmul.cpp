// C = A B + bias for matrices as they lie in memory, in float32 or bfloat16: what training multiplies, where weights
// change with every step.
//
// A tile of C is six rows and a panel of 64 columns, or of 32 where there are no more, whose 24 sums stay in registers;
// of the last panel, as many vectors as have columns. Inputs are read in units of four bytes: one float32, or two
// bfloat16 that follow each other along the inner axis. B is laid out in panels, for each unit along the inner axis the
// 64 of a panel's columns; A is read where it lies if its rows do, else laid out in panels of 48 rows in the same way.
// Parts of the inner axis are done one after another, so that a part of a panel stays in the second cache; their sums
// wait there too. Every element is summed in the same order, however many threads there are.
#include "kernels.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

namespace transformer {
namespace {

constexpr long TILE_ROWS = 6, A_PANEL = 48;
constexpr long DEPTH = 512;           // most units along the inner axis in one part
constexpr long GROUP = 8 * A_PANEL;   // rows that meet one panel part after part, at most
constexpr long TASKS = 16;            // for each thread, if there are rows enough
constexpr long AHEAD = 16;            // units laid out before which others are asked for
constexpr long STRETCH = 64;          // units of a panel laid out before the next panel's, a multiple of LANES
constexpr long MOST_INPUTS = 4096;    // summed before they are added to C
constexpr long SWATH = 4 * A_PANEL;   // columns laid out in one go, a multiple of both panels
constexpr long ROOM = 8 << 20;        // bytes of panels that are laid out at a time

long blocks(long n, long size) { return (n + size - 1) / size; }

struct Float32 {
  using Input = float;
  static constexpr long INPUTS = 1;
  static __m512 multiply(__m512 sum, const char* a, __m512i b) {
    float x;
    std::memcpy(&x, a, 4);
    return _mm512_fmadd_ps(_mm512_set1_ps(x), _mm512_castsi512_ps(b), sum);
  }
};

struct Bfloat16 {
  using Input = uint16_t;
  static constexpr long INPUTS = 2;
  static __m512 multiply(__m512 sum, const char* a, __m512i b) {
    int32_t pair;
    std::memcpy(&pair, a, 4);
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)), reinterpret_cast<__m512bh>(b));
  }
};

// Sixteen units of neighbouring columns, whose inputs are in `first` and, for bfloat16, in the row after it.
__m512i units_across(Float32, const float* first, long, bool, __mmask16 m) { return _mm512_castps_si512(load(first, m)); }

template <typename T>
__m512i halves(const T* row, __mmask16 m);
template <>
__m512i halves(const uint16_t* row, __mmask16 m) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, row));
}
template <>
__m512i halves(const float* row, __mmask16 m) {
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load(row, m))));
}

template <typename T>
__m512i units_across(Bfloat16, const T* first, long stride, bool has_second, __mmask16 m) {
  const __m512i low = halves(first, m);
  return has_second ? _mm512_or_si512(low, _mm512_slli_epi32(halves(first + stride, m), 16)) : low;
}

// The units of whole vectors of columns, from two rows: what the function above makes, without a mask.
void interleave(const uint16_t* row, long stride, long columns, char* to) {
  alignas(64) static constexpr auto order = [] {
    struct { uint16_t of_one[32]; } places{};
    for (int i = 0; i < 32; ++i) places.of_one[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    return places;
  }();
  const __m512i places = _mm512_load_si512(order.of_one);
  for (long v = 0; v < columns; v += LANES) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + v));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + stride + v));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    _mm512_storeu_si512(to + 4 * v, _mm512_permutexvar_epi16(places, both));
  }
}

// The units of one column that begin with inputs `from` to `from` + n.
__m512i units_along(Float32, const float* from, long n) { return _mm512_castps_si512(load(from, lanes(n))); }

__m512i units_along(Bfloat16, const uint16_t* from, long n) {
  const __mmask32 m = n >= 2 * LANES ? 0xffffffffu : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(m, from);
}

__m512i units_along(Bfloat16, const float* from, long n) {
  const __m512 low = load(from, lanes(n)), high = n > LANES ? load(from + LANES, lanes(n - LANES)) : _mm512_setzero_ps();
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Columns to rows: vector i of the result holds element i of each vector.
void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  // r[4 a + b], quarter q, holds element 4 q + b of vectors 4 a to 4 a + 3
  for (int b = 0; b < 4; ++b) {
    const __m512i even_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0x88), odd_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0xdd);
    t[b] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[8 + b] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[4 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[12 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  std::copy(t, t + 16, r);
}

// What a thread lays out: `width` columns as panels of `panel` columns, of their inputs those of some of the units.
struct Piece {
  long width, panel, inner, first_unit, end_unit;
};

// Asks for what is laid out soon.
template <typename T>
void prefetch(const T* from, long n) {
  for (long i = 0; i < n; i += 64 / static_cast<long>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T0);
}

// Where the inputs of a column lie side by side, `stride` is from column to column, else from input to input.
template <typename P, typename T>
void lay_out(const T* from, long stride, bool is_along, const Piece& piece, char* to) {
  const auto [width, panel, inner, first_unit, end_unit] = piece;
  const long units = blocks(inner, P::INPUTS);
  for (long start = 0; start < width; start += panel) {
    char* own = to + 4 * start * units;
    const long filled = std::min(panel, blocks(width - start, LANES) * LANES);  // nobody reads the vectors after these
    if (!is_along) {
      for (long u = first_unit; u < end_unit; ++u) {
        if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
          if (width - start >= panel && u * 2 + 1 < inner) {
            interleave(from + u * 2 * stride + start, stride, panel, own + 4 * u * panel);
            continue;
          }
        for (long i = 0; i < P::INPUTS; ++i)
          prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride + start, panel);
        for (long v = 0; v < filled; v += LANES)
          _mm512_storeu_si512(own + 4 * (u * panel + v),
                              units_across(P(), from + u * P::INPUTS * stride + start + v, stride, u * P::INPUTS + 1 < inner,
                                           lanes(std::clamp(width - start - v, 0L, LANES))));
      }
      continue;
    }
    for (long v = 0; v < filled; v += LANES)
      for (long u = first_unit; u < end_unit; u += LANES) {
        __m512i found[16];
        for (long i = 0; i < 16; ++i)
          found[i] = start + v + i < width
                         ? units_along(P(), from + (start + v + i) * stride + u * P::INPUTS, inner - u * P::INPUTS)
                         : _mm512_setzero_si512();
        transpose(found);
        for (long i = 0; i < std::min(LANES, end_unit - u); ++i)
          _mm512_storeu_si512(own + 4 * ((u + i) * panel + v), found[i]);
      }
  }
}

// One of the threads that share a product. Each takes further tasks as it gets free, since cores are not equally fast.
struct Thread {
  long all;

  template <typename Work>
  void share(long tasks, Work work) const {
    if (all == 1) {
      for (long i = 0; i < tasks; ++i) work(i);
      return;
    }
#pragma omp for schedule(guided) nowait
    for (long i = 0; i < tasks; ++i) work(i);
  }
  void wait() const {
    if (all > 1) {
#pragma omp barrier
    }
  }
};

// `width` columns of the matrix from `first` on; a column is a row of memory where it is `is_along`. The piece of a
// thread is some columns and a stretch of their inputs, so that what it reads and writes stays in its first cache.
template <typename P>
void lay_out(const Layout& x, long first, bool is_along, long inner, long width, long panel, char* to, Thread thread) {
  const long units = blocks(inner, P::INPUTS), stretches = blocks(units, STRETCH);
  thread.share(blocks(width, SWATH) * stretches, [=](long task) {
    const long column = task / stretches * SWATH, unit = task % stretches * STRETCH;
    const long offset = is_along ? (first + column) * x.stride : first + column;
    const Piece piece{std::min(SWATH, width - column), panel, inner, unit, std::min(units, unit + STRETCH)};
    char* own = to + 4 * column * units;
    if constexpr (P::INPUTS == 2)
      if (x.is_bfloat16) return lay_out<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, is_along, piece, own);
    lay_out<P>(static_cast<const float*>(x.data) + offset, x.stride, is_along, piece, own);
  });
}

// Where the sums of a tile go, and where those of a part of the inner axis wait for the next part.
struct Sums {
  Finish finish;
  void* c;
  long stride, columns;
  bool c_is_bfloat16, is_first, is_last;
  bool is_bent;  // rectified, or gated
  float* waiting;
};

// What is written to row i and the columns from j on; T is the type of a gate. A call would need the tile's registers.
template <typename T>
__attribute__((always_inline)) inline __m512 bent(__m512 y, const Finish& f, long i, long j, __mmask16 m) {
  if (f.is_rectified) y = _mm512_max_ps(_mm512_setzero_ps(), y);  // in this order, NaN stays
  if (!f.gate) return y;
  const __m512 gate = load(static_cast<const T*>(f.gate) + i * f.gate_stride + j, m);
  if (f.is_slope) return _mm512_mul_ps(y, gate);
  const __mmask16 is_open = _mm512_cmp_ps_mask(gate, _mm512_setzero_ps(), _CMP_NLE_UQ);
  return _mm512_maskz_mul_ps(is_open, y, _mm512_set1_ps(f.factor));
}

// R rows of A times the first vectors of one panel. `row` and `unit` are the bytes from row to row and from unit to unit.
template <typename P, long PANEL, int VECTORS, int R>
void multiply(const char* a, long row, long unit, const char* b, long units, const Sums& s, long i, long j,
              float* waiting) {
  __m512 sums[R][VECTORS];
  __mmask16 m[VECTORS];
  for (int v = 0; v < VECTORS; ++v) m[v] = lanes(std::clamp(s.columns - j - v * LANES, 0L, LANES));
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = s.is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(waiting + r * PANEL + v * LANES);
  if (s.is_last)  // rows of what the sums meet lie far apart
    for (int r = 0; r < R; ++r) {
      if (s.finish.gate)
        prefetch(static_cast<const typename P::Input*>(s.finish.gate) + (i + r) * s.finish.gate_stride + j, PANEL);
      if (s.finish.is_added) prefetch(static_cast<const float*>(s.c) + (i + r) * s.stride + j, PANEL);
    }
  for (long u = 0; u < units; ++u, a += unit, b += 4 * PANEL) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v)
        sums[r][v] = P::multiply(sums[r][v], a + r * row, _mm512_loadu_si512(b + v * 64));
  }
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; ++v) {
    const long column = j + v * LANES;
    const __m512 bias = s.is_last && s.finish.bias ? load(s.finish.bias + column, m[v]) : _mm512_setzero_ps();
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      if (!s.is_last) {
        _mm512_storeu_ps(waiting + r * PANEL + v * LANES, sums[r][v]);
        continue;
      }
      const long place = (i + r) * s.stride + column;
      __m512 y = _mm512_add_ps(sums[r][v], bias);
      if (s.finish.is_added) y = _mm512_add_ps(y, load(static_cast<float*>(s.c) + place, m[v]));
      if (s.is_bent) y = bent<typename P::Input>(y, s.finish, i + r, column, m[v]);
      s.c_is_bfloat16 ? store(static_cast<uint16_t*>(s.c) + place, m[v], y)
                      : store(static_cast<float*>(s.c) + place, m[v], y);
    }
  }
}

template <typename P, long PANEL, int VECTORS>
void multiply(long rows, const char* a, long row, long unit, const char* b, long units, const Sums& s, long i, long j,
              float* waiting) {
  if constexpr (VECTORS > 1)  // the last panel may have fewer
    if (s.columns - j <= (VECTORS - 1) * LANES)
      return multiply<P, PANEL, VECTORS - 1>(rows, a, row, unit, b, units, s, i, j, waiting);
  switch (rows) {
    case 1: return multiply<P, PANEL, VECTORS, 1>(a, row, unit, b, units, s, i, j, waiting);
    case 2: return multiply<P, PANEL, VECTORS, 2>(a, row, unit, b, units, s, i, j, waiting);
    case 3: return multiply<P, PANEL, VECTORS, 3>(a, row, unit, b, units, s, i, j, waiting);
    case 4: return multiply<P, PANEL, VECTORS, 4>(a, row, unit, b, units, s, i, j, waiting);
    case 5: return multiply<P, PANEL, VECTORS, 5>(a, row, unit, b, units, s, i, j, waiting);
    default: return multiply<P, PANEL, VECTORS, 6>(a, row, unit, b, units, s, i, j, waiting);
  }
}

template <typename P, int VECTORS>
struct Product {
  static constexpr long PANEL = VECTORS * LANES;
  Layout a, b;
  Sums to;
  long m, k, threads;
  const bool a_lies_right = !a.is_transposed && (P::INPUTS == 1 || (a.is_bfloat16 && (a.is_padded || k % 2 == 0)));
  const long n = to.columns, units = blocks(k, P::INPUTS), parts = std::max(1L, blocks(units, DEPTH));
  const long depth = std::max(1L, blocks(units, parts)), at_once = ROOM / (4 * std::max(1L, units));
  const long width = std::max<long>(at_once / PANEL, threads) * PANEL;
  const long height = a_lies_right ? m : std::max<long>(at_once / A_PANEL, threads) * A_PANEL;
  char* const b_panels = scratch<char, 10>(4 * units * std::min(blocks(n, PANEL) * PANEL, width));
  char* const a_panels =
      a_lies_right ? nullptr : scratch<char, 11>(4 * units * std::min(blocks(m, A_PANEL) * A_PANEL, height));

  void share(Thread thread) const {
    for (long left = 0; left < n; left += width) {
      if (left) thread.wait();
      lay_out<P>(b, left, b.is_transposed, k, std::min(width, n - left), PANEL, b_panels, thread);
      for (long top = 0; top < m; top += height) {
        if (top) thread.wait();
        const long rows = std::min(height, m - top), panels = blocks(std::min(width, n - left), PANEL);
        const long wanted = blocks(rows, blocks(TASKS * thread.all, panels));
        const long group = std::min(GROUP, blocks(wanted, A_PANEL) * A_PANEL), groups = blocks(rows, group);
        if (!a_lies_right) lay_out<P>(a, top, !a.is_transposed, k, rows, A_PANEL, a_panels, thread);
        thread.wait();
        thread.share(panels * groups, [=](long task) {
          const long first = task % groups * group;
          multiply_group(top, first, std::min(rows, first + group), left, task / groups * PANEL);
        });
      }
    }
  }

  // Rows of a group with one panel, part after part of the inner axis.
  void multiply_group(long top, long first, long end, long left, long column) const {
    const long size = a.is_bfloat16 ? 2 : 4;
    const long row = a_lies_right ? a.stride * size : 4, unit = a_lies_right ? 4 : 4 * A_PANEL;
    Sums s = to;
    s.waiting = scratch<float, 12>(GROUP * PANEL);
    for (long from = 0; from < units || from == 0; from += depth) {
      s.is_first = from == 0;
      s.is_last = from + depth >= units;
      const char* panel = b_panels + 4 * (column * units + from * PANEL);
      for (long i = first; i < end; i += TILE_ROWS) {
        const char* own = a_lies_right ? static_cast<const char*>(a.data) + (top + i) * row
                                       : a_panels + 4 * (i / A_PANEL * A_PANEL * units + i % A_PANEL);
        multiply<P, PANEL, VECTORS>(std::min(TILE_ROWS, end - i), own + from * unit, row, unit, panel,
                                    std::min(depth, units - from), s, top + i, left + column,
                                    s.waiting + (i - first) * PANEL);
      }
    }
  }
};

template <typename P, int VECTORS>
void matmul(const Layout& a, const Layout& b, const Sums& to, long m, long k, int threads) {
  const Product<P, VECTORS> product{a, b, to, m, k, threads};
  if (threads == 1) return product.share({1});  // not even a team of one, of which attention would make thousands
#pragma omp parallel num_threads(threads)
  product.share({omp_get_num_threads()});
}

void move(Layout& x, long elements) { x.data = static_cast<const char*>(x.data) + elements * (x.is_bfloat16 ? 2 : 4); }

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_layout() { return sizeof(transformer::Layout); }
extern "C" long transformer_size_of_finish() { return sizeof(transformer::Finish); }

// C (m, n) = A (m, k) B (k, n), finished; rows of C lie `stride` apart.
extern "C" void transformer_matmul(const transformer::Layout* a, const transformer::Layout* b,
                                   const transformer::Finish* finish, void* c, int c_is_bfloat16, long stride, long m,
                                   long n, long k, int is_bfloat16, int threads) {
  using namespace transformer;
  Layout left = *a, right = *b;
  Sums s{{}, c, stride, n, c_is_bfloat16 != 0, true, true, false, nullptr};
  const long most = c_is_bfloat16 ? std::max(1L, k) : MOST_INPUTS;
  for (long from = 0; from < k || from == 0; from += most) {
    const long part = std::min(most, k - from);
    if (from + part >= k) s.finish = *finish;  // until then, C holds sums
    s.finish.is_added = from > 0 || finish->is_added;
    s.is_bent = s.finish.is_rectified || s.finish.gate;
    const auto matrices = n > 2 * LANES ? (is_bfloat16 ? matmul<Bfloat16, 4> : matmul<Float32, 4>)
                                        : (is_bfloat16 ? matmul<Bfloat16, 2> : matmul<Float32, 2>);
    matrices(left, right, s, m, part, threads);
    move(left, left.is_transposed ? part * left.stride : part);
    move(right, right.is_transposed ? part : part * right.stride);
  }
}
