// How matrices are laid out before they are multiplied: in units of four bytes, one float32 or two bfloat16 that follow
// each other along the inner axis; columns of B in panels, rows of A side by side. Where float32 is multiplied as the sum
// of three bfloat16, each sixteen units are there three times, as the first, second and third of them.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "three.h"

namespace transformer {
namespace {

constexpr long AHEAD = 16;            // units laid out before which others are asked for

struct Float32 {
  using Input = float;
  static constexpr long INPUTS = 1, PARTS = 1;
  static Floats multiply(Floats sum, const char* a, Ints b) {
    float x;
    std::memcpy(&x, a, 4);
    return multiply_add(spread(x), as_floats(b), sum);
  }
  static Floats add(Floats sum, Ints units) { return sum + as_floats(units); }
};

struct Bfloat16 {
  using Input = uint16_t;
  static constexpr long INPUTS = 2, PARTS = 1;
  static Floats multiply(Floats sum, const char* a, Ints b) { return add_pair_products(sum, a, b); }
  static Floats add(Floats sum, Ints units) {
    constexpr uint16_t ONES[2] = {0x3f80, 0x3f80};
    return multiply(sum, reinterpret_cast<const char*>(ONES), units);
  }
};

// Of float32, three bfloat16 that together are the number: its first eight bits, the next eight, and those left.
struct Float32AsThree {
  using Input = float;
  static constexpr long INPUTS = 2, PARTS = 3;
  static Floats add(Floats sum, Ints units) { return Bfloat16::add(sum, units); }
};

// Sixteen units of neighbouring columns, whose inputs are in `first` and, for bfloat16, in the row after it.
Ints units_across(Float32, const float* first, long, bool, Mask m) { return as_ints(load(first, m)); }

template <typename T>
Ints halves(const T* row, Mask m);
template <>
Ints halves(const uint16_t* row, Mask m) {
  return load_halves(row, m);
}
template <>
Ints halves(const float* row, Mask m) {
  return to_halves(load(row, m));
}

template <typename T>
Ints units_across(Bfloat16, const T* first, long stride, bool has_second, Mask m) {
  const Ints low = halves(first, m);
  return has_second ? bits_or(low, shift_left(halves(first + stride, m), 16)) : low;
}

// The units of whole vectors of columns, from two rows: what the function above makes, without a mask.
void interleave(const uint16_t* row, long stride, long columns, char* to) {
  for (long v = 0; v < columns; v += LANES) store_ints(to + 4 * v, pairs_across(row + v, row + stride + v));
}

// The units of one column that begin with inputs `from` to `from` + n.
Ints units_along(Float32, const float* from, long n) { return as_ints(load(from, lanes(n))); }

Ints units_along(Bfloat16, const uint16_t* from, long n) { return load_pairs(from, n); }

Ints units_along(Bfloat16, const float* from, long n) {
  return to_pairs(load(from, lanes(n)), n > LANES ? load(from + LANES, lanes(n - LANES)) : spread(0.0f));
}

// Asks for what is laid out soon.
template <typename T>
void prefetch(const T* from, long n) {
  for (long i = 0; i < n; i += 64 / static_cast<long>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T0);
}

// Where the inputs of a column lie side by side, `stride` is from column to column, else from input to input.
template <typename P, typename T>
void lay_out(const T* from, long stride, bool is_along, const Piece& piece, char* to) {
  const auto [width, panel, inner, units, first_unit, end_unit] = piece;
  if (!is_along && panel <= 2 * LANES) {  // a line of each panel at a time: what is read lies side by side
    for (long u = first_unit; u < end_unit; ++u) {
      for (long i = 0; i < P::INPUTS; ++i) prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride, width);
      for (long start = 0; start < width; start += panel) {
        char* own = to + 4 * (start * units + u * panel);
        if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
          if (width - start >= panel && u * 2 + 1 < inner) {
            interleave(from + u * 2 * stride + start, stride, panel, own);
            continue;
          }
        for (long v = 0; v < std::min(panel, width - start); v += LANES)
          store_ints(own + 4 * v, units_across(P(), from + u * P::INPUTS * stride + start + v, stride, u * P::INPUTS + 1 < inner,
                                               u * P::INPUTS < inner ? lanes(width - start - v) : 0));
      }
    }
    return;
  }
  for (long start = 0; start < width; start += panel) {
    char* own = to + 4 * start * units;
    const long filled = std::min(panel, blocks(width - start, LANES) * LANES);  // nobody reads the vectors after these
    if (!is_along) {
      for (long u = first_unit; u < end_unit; ++u) {
        if (start == 0)
          for (long i = 0; i < P::INPUTS; ++i)
            prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride, width);
        if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
          if (width - start >= panel && u * 2 + 1 < inner) {
            interleave(from + u * 2 * stride + start, stride, panel, own + 4 * u * panel);
            continue;
          }
        for (long i = 0; i < P::INPUTS; ++i)
          prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride + start, panel);
        for (long v = 0; v < filled; v += LANES)
          store_ints(own + 4 * (u * panel + v),
                     units_across(P(), from + u * P::INPUTS * stride + start + v, stride, u * P::INPUTS + 1 < inner,
                                  u * P::INPUTS < inner ? lanes(std::clamp(width - start - v, 0L, LANES)) : 0));
      }
      continue;
    }
    for (long v = 0; v < filled; v += LANES)
      for (long u = first_unit; u < end_unit; u += LANES) {
        Ints found[16];
        for (long i = 0; i < 16; ++i)
          found[i] = start + v + i < width
                         ? units_along(P(), from + (start + v + i) * stride + u * P::INPUTS, inner - u * P::INPUTS)
                         : spread_int(0);
        transpose(found);
        for (long i = 0; i < std::min(LANES, end_unit - u); ++i)
          store_ints(own + 4 * ((u + i) * panel + v), found[i]);
      }
  }
}

// Sixteen units of 32 neighbouring columns of memory, a line of the cache each, to rows `apart` bytes apart. Lines whose
// distance is a power of two fall on one place of the first cache and do not stay there for a second look.
void lay_out_lines(const uint16_t* from, long stride, char* to, long apart) {
  Ints low[16], high[16];
  for (long i = 0; i < 16; ++i, from += 2 * stride) pairs_across(from, from + stride, low[i], high[i]);
  transpose(low);
  for (long i = 0; i < 16; ++i) store_ints(to + i * apart, low[i]);
  transpose(high);
  for (long i = 0; i < 16; ++i) store_ints(to + (16 + i) * apart, high[i]);
}

// `rows` rows to rows `apart` bytes apart, of which one is a column of memory where the matrix is transposed. Rows are
// filled up with zeros to whole vectors.
template <typename P, typename T>
void lay_out_rows(const T* from, long stride, bool is_transposed, long inner, long rows, char* to, long apart) {
  const long units = blocks(inner, P::INPUTS);
  for (long u = 0; u < units; u += LANES)
    for (long start = 0; start < rows; start += LANES) {
      const long first = u * P::INPUTS;
      if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
        if (is_transposed && start + 2 * LANES <= rows && first + 2 * LANES <= inner) {
          lay_out_lines(from + first * stride + start, stride, to + start * apart + 4 * u, apart);
          start += LANES;
          continue;
        }
      const long width = std::min(LANES, rows - start);
      Ints found[16];
      if (is_transposed) {
        for (long i = 0; i < 16; ++i) {
          const long input = first + i * P::INPUTS;
          found[i] = input < inner
                         ? units_across(P(), from + input * stride + start, stride, input + 1 < inner, lanes(width))
                         : spread_int(0);
        }
        transpose(found);
      } else {
        for (long i = 0; i < width; ++i) found[i] = units_along(P(), from + (start + i) * stride + first, inner - first);
      }
      for (long i = 0; i < width; ++i)
        store_ints(to + (start + i) * apart + 4 * u, found[i]);
    }
}

// `rows` rows of the matrix from `first` on, from input to input, `apart` bytes apart.
template <typename P>
void lay_out_rows(const Layout& x, long first, long inner, long rows, char* to, long apart) {
  const long offset = first * (x.is_transposed ? 1 : x.stride);
  if constexpr (sizeof(typename P::Input) == 2)
    if (x.is_bfloat16)
      return lay_out_rows<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, x.is_transposed, inner, rows, to, apart);
  const auto* from = static_cast<const float*>(x.data) + offset;
  if constexpr (P::PARTS == 3)
    lay_out_three_rows(from, x.stride, x.is_transposed, inner, rows, to, apart);
  else
    lay_out_rows<P>(from, x.stride, x.is_transposed, inner, rows, to, apart);
}

}  // namespace
}  // namespace transformer
