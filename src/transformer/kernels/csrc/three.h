// float32 as the sum of three bfloat16, which tiles multiply: its first eight bits, the next eight, and those left. Each
// sixteen units, of two inputs, are there three times, as the first, second and third parts.
#pragma once
#include "vectors.h"

#include <algorithm>

namespace transformer {
namespace {

long blocks(long n, long size) { return (n + size - 1) / size; }

// The three bfloat16, as float32. What is infinite becomes NaN, as does all that it is multiplied with. What is left of
// numbers below 1e-33 may be subnormal, which tiles take for zero.
void take_apart(Floats x, Floats (&parts)[3]) {
  const auto cut = [](Floats y) { return as_floats(bits_and(as_ints(y), spread_int(-65536))); };
  parts[0] = cut(x);
  const Floats rest = x - parts[0];
  parts[1] = cut(as_floats(add_ints(as_ints(rest), spread_int(1 << 15))));  // to the nearest
  parts[2] = cut(rest - parts[1]);
}

// Sixteen units of neighbouring lines, of their two inputs.
Ints paired(Floats first, Floats second) { return bits_or(shift_right(as_ints(first), 16), as_ints(second)); }

// Sixteen units, 32 inputs, of sixteen lines, that are rows of A or columns of B: `parts[p][i]` has all units of line i
// where their inputs lie side by side in memory, else unit i of all lines. Zeros where there are no more.
template <bool is_along>
void take_apart(const float* from, long stride, long inputs, long lines_there, Ints (&parts)[3][16]) {
  for (long i = 0; i < 16; ++i) {
    Floats first[3] = {}, second[3] = {};
    if (is_along ? i < lines_there : 2 * i < inputs) {
      const float* at = from + (is_along ? i : 2 * i) * stride;
      take_apart(load(at, lanes(is_along ? inputs : lines_there)), first);
      if (is_along ? inputs > LANES : 2 * i + 1 < inputs)
        take_apart(is_along ? load(at + LANES, lanes(inputs - LANES)) : load(at + stride, lanes(lines_there)), second);
    }
    for (int p = 0; p < 3; ++p)
      parts[p][i] = is_along ? to_pairs(first[p], second[p]) : paired(first[p], second[p]);
  }
}

// What a thread lays out: `width` columns as panels of `panel` columns, of their inputs those of some of the units, of
// which there may be more than inputs.
struct Piece {
  long width, panel, inner, units, first_unit, end_unit;
};

// Sixteen columns and units of a piece. Where the inputs of a column lie side by side, `stride` is from column to column,
// else from input to input; so below.
void lay_out_three(const float* from, long stride, bool is_along, const Piece& piece, char* to, long column, long u) {
  const long width = piece.width, panel = piece.panel, inner = piece.inner;
  char* own = to + 4 * (column / panel * panel * 3 * piece.units + 3 * u * panel + column % panel);
  if (!is_along && width - column >= LANES && 2 * (u + LANES) <= inner) {  // most of them
    const float* at = from + 2 * u * stride + column;
    for (long i = 0; i < 16; ++i, at += 2 * stride, own += 4 * panel) {
      Floats first[3], second[3];
      take_apart(load(at), first);
      take_apart(load(at + stride), second);
      for (int p = 0; p < 3; ++p) store_ints(own + 64 * p * panel, paired(first[p], second[p]));
    }
    return;
  }
  Ints parts[3][16];
  is_along ? take_apart<true>(from + column * stride + 2 * u, stride, inner - 2 * u, width - column, parts)
           : take_apart<false>(from + 2 * u * stride + column, stride, inner - 2 * u, width - column, parts);
  for (int p = 0; p < 3; ++p) {
    if (is_along) transpose(parts[p]);
    for (long i = 0; i < 16; ++i) store_ints(own + 4 * (16 * p + i) * panel, parts[p][i]);
  }
}

// All of it.
void lay_out_three(const float* from, long stride, bool is_along, const Piece& piece, char* to) {
  if (is_along) {
    for (long column = 0; column < piece.width; column += LANES)
      for (long u = piece.first_unit; u < piece.end_unit; u += LANES) lay_out_three(from, stride, true, piece, to, column, u);
  } else {
    for (long u = piece.first_unit; u < piece.end_unit; u += LANES)
      for (long column = 0; column < piece.width; column += LANES) lay_out_three(from, stride, false, piece, to, column, u);
  }
}

// `rows` rows to rows `apart` bytes apart, of which one is a column of memory where the matrix is transposed. They are
// filled up with zeros to whole tiles.
void lay_out_three_rows(const float* from, long stride, bool is_transposed, long inner, long rows, char* to, long apart) {
  Ints parts[3][16];
  for (long u = 0; 2 * u < inner; u += LANES)
    for (long start = 0; start < rows; start += LANES) {
      const long there = rows - start, inputs = inner - 2 * u;
      is_transposed ? take_apart<false>(from + 2 * u * stride + start, stride, inputs, there, parts)
                    : take_apart<true>(from + start * stride + 2 * u, stride, inputs, there, parts);
      for (int p = 0; p < 3; ++p) {
        if (is_transposed) transpose(parts[p]);
        for (long i = 0; i < std::min(LANES, there); ++i)
          store_ints(to + (start + i) * apart + 4 * (3 * u + 16 * p), parts[p][i]);
      }
    }
}

}  // namespace
}  // namespace transformer
