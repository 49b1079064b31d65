// float32 as the sum of three bfloat16, which AMX can multiply: the first eight bits, the next eight, and the remaining
// ones. Each block of sixteen units (of two inputs) is stored three times: the first, second and third parts.
#pragma once
#include "vectors.h"

#include <algorithm>

namespace transformer {
namespace {

long blocks(long n, long size) { return (n + size - 1) / size; }

// Splits x into three bfloat16, returned as float32. Infinities become NaN, and so do all products with them. The
// smaller parts of numbers below 1e-33 may be subnormal, which AMX treats as zero.
void take_apart(VecF32 x, VecF32 (&parts)[3]) {
  const auto cut = [](VecF32 y) { return bitcast_f32(bits_and(bitcast_i32(y), broadcast_i32(-65536))); };
  parts[0] = cut(x);
  const VecF32 rest = x - parts[0];
  parts[1] = cut(bitcast_f32(add_i32(bitcast_i32(rest), broadcast_i32(1 << 15))));  // rounded to nearest
  parts[2] = cut(rest - parts[1]);
}

// Joins the two inputs of sixteen neighbouring lines into units.
VecI32 paired(VecF32 first, VecF32 second) { return bits_or(shift_right(bitcast_i32(first), 16), bitcast_i32(second)); }

// Splits sixteen units (32 inputs) of sixteen lines, which are rows of A or columns of B. If the inputs of a line are
// contiguous in memory (`is_along`), `parts[p][i]` has all units of line i, otherwise unit i of all lines. Missing
// elements are zero.
template <bool is_along>
void take_apart(const float* from, long stride, long inputs, long lines_there, VecI32 (&parts)[3][16]) {
  for (long i = 0; i < 16; ++i) {
    VecF32 first[3] = {}, second[3] = {};
    if (is_along ? i < lines_there : 2 * i < inputs) {
      const float* at = from + (is_along ? i : 2 * i) * stride;
      take_apart(load(at, tail_mask(is_along ? inputs : lines_there)), first);
      if (is_along ? inputs > LANES : 2 * i + 1 < inputs)
        take_apart(is_along ? load(at + LANES, tail_mask(inputs - LANES)) : load(at + stride, tail_mask(lines_there)), second);
    }
    for (int p = 0; p < 3; ++p)
      parts[p][i] = is_along ? to_bf16_pairs(first[p], second[p]) : paired(first[p], second[p]);
  }
}

// The block of a matrix that one task packs: `width` columns in panels of `panel` columns, and a range of their units.
// There may be more units than `inner` inputs fill.
struct Piece {
  long width, panel, inner, units, first_unit, end_unit;
};

// Packs sixteen columns and units of a block. `stride` is the distance between columns if the inputs of a column are
// contiguous (`is_along`), otherwise between inputs. The same holds below.
[[maybe_unused]] void lay_out_three(const float* from, long stride, bool is_along, const Piece& piece, char* to, long column, long u) {
  const long width = piece.width, panel = piece.panel, inner = piece.inner;
  char* own = to + 4 * (column / panel * panel * 3 * piece.units + 3 * u * panel + column % panel);
  if (!is_along && width - column >= LANES && 2 * (u + LANES) <= inner) {  // the most frequent case
    const float* at = from + 2 * u * stride + column;
    for (long i = 0; i < 16; ++i, at += 2 * stride, own += 4 * panel) {
      VecF32 first[3], second[3];
      take_apart(load(at), first);
      take_apart(load(at + stride), second);
      for (int p = 0; p < 3; ++p) store_i32(own + 64 * p * panel, paired(first[p], second[p]));
    }
    return;
  }
  VecI32 parts[3][16];
  is_along ? take_apart<true>(from + column * stride + 2 * u, stride, inner - 2 * u, width - column, parts)
           : take_apart<false>(from + 2 * u * stride + column, stride, inner - 2 * u, width - column, parts);
  for (int p = 0; p < 3; ++p) {
    if (is_along) transpose(parts[p]);
    for (long i = 0; i < 16; ++i) store_i32(own + 4 * (16 * p + i) * panel, parts[p][i]);
  }
}

// Packs the whole block.
[[maybe_unused]] void lay_out_three(const float* from, long stride, bool is_along, const Piece& piece, char* to) {
  if (is_along) {
    for (long column = 0; column < piece.width; column += LANES)
      for (long u = piece.first_unit; u < piece.end_unit; u += LANES) lay_out_three(from, stride, true, piece, to, column, u);
  } else {
    for (long u = piece.first_unit; u < piece.end_unit; u += LANES)
      for (long column = 0; column < piece.width; column += LANES) lay_out_three(from, stride, false, piece, to, column, u);
  }
}

// Packs `rows` rows, `apart` bytes apart. If the matrix is transposed, each row is a column in memory. Rows are padded
// with zeros to whole tiles.
[[maybe_unused]] void lay_out_three_rows(const float* from, long stride, bool is_transposed, long inner, long rows, char* to, long apart) {
  VecI32 parts[3][16];
  for (long u = 0; 2 * u < inner; u += LANES)
    for (long start = 0; start < rows; start += LANES) {
      const long there = rows - start, inputs = inner - 2 * u;
      is_transposed ? take_apart<false>(from + 2 * u * stride + start, stride, inputs, there, parts)
                    : take_apart<true>(from + start * stride + 2 * u, stride, inputs, there, parts);
      for (int p = 0; p < 3; ++p) {
        if (is_transposed) transpose(parts[p]);
        for (long i = 0; i < std::min(LANES, there); ++i)
          store_i32(to + (start + i) * apart + 4 * (3 * u + 16 * p), parts[p][i]);
      }
    }
}

}  // namespace
}  // namespace transformer
