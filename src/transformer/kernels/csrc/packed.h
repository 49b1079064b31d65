// Packed weights in three precisions, and conversion of the inputs that are multiplied with them; see product.cpp.
#pragma once
#include "kernels.h"
#include "ranking.h"
#include "three.h"
#include "tiles.h"

#include <cmath>
#include <cstring>

namespace transformer {
namespace {

constexpr long PANEL = 64;
static_assert(PANEL == TILE_COLUMNS);
constexpr int VECTORS = PANEL / LANES;
constexpr long FEWEST_FOR_TILES = 7;   // minimum rows of int8; bfloat16 always uses tiles, whose order of sums differs
constexpr long FEWEST_FOR_THREE = 48;  // minimum rows of float32 for which weights are split into three bfloat16

struct Float32 {
  using Input = float;
  using Sum = Floats;
  static constexpr long GROUP = 1, TILED_FROM = FEWEST_FOR_THREE;  // minimum number of rows for AMX
  static constexpr Numbers NUMBERS = Numbers::three_bfloat16;
  using Number = float;
  static constexpr int REGISTERS = REGISTERS_OF_A_TILE;
  static Sum multiply(Sum sum, const float* x, const char* w) {
    return multiply_add(spread(*x), as_floats(load_ints(w)), sum);
  }
};

struct Bfloat16 {
  using Input = uint16_t;
  using Sum = Floats;
  static constexpr long GROUP = 2, TILED_FROM = 1;
  static constexpr Numbers NUMBERS = Numbers::bfloat16;
  using Number = float;
  static constexpr int REGISTERS = REGISTERS_OF_A_MIXED_TILE;
  static Sum multiply(Sum sum, const uint16_t* x, const char* w) { return add_pair_products(sum, x, load_ints(w)); }
};

struct Int8 {
  using Input = Byte;
  using Sum = Ints;
  static constexpr long GROUP = 4, TILED_FROM = FEWEST_FOR_TILES;
  static constexpr Numbers NUMBERS = Numbers::int8;
  using Number = int32_t;
  static constexpr int REGISTERS = REGISTERS_OF_A_MIXED_TILE;
  static Sum multiply(Sum sum, const Byte* x, const char* w) { return add_four_products(sum, x, w); }
};

// Converts x to the operands of the instructions: unchanged, rounded, or quantized to bytes with an offset of 128.
const float* prepare(const float* x, long, long, float*, float*, Float32) { return x; }

const uint16_t* prepare(const float* x, long inner, long padded, uint16_t* room, float*, Bfloat16) {
  for (long k = 0; k < padded; k += LANES) {
    const Floats v = load(x + k, lanes(std::max(0L, inner - k)));
    store(room + k, lanes(padded - k), v);
  }
  return room;
}

const uint16_t* prepare(const uint16_t* x, long inner, long padded, uint16_t* room, float*, Bfloat16) {
  std::memcpy(room, x, 2 * inner);
  std::memset(room + inner, 0, 2 * (padded - inner));
  return room;
}

template <typename T>
const Byte* prepare(const T* x, long inner, long padded, Byte* room, float* unit, Int8) {
  Floats most = spread(0.0f);
  Mask nan = 0;  // a maximum ignores NaN
  for (long k = 0; k < inner; k += LANES) {
    const Floats v = load(x + k, lanes(inner - k));
    most = larger(most, absolute(v));
    nan |= bits_of(is_nan(v));
  }
  const float largest = largest_of(most);
  *unit = nan || std::isinf(largest) ? std::nanf("") : largest / 127.0f;
  const float per_unit = 127.0f / largest;  // infinite if all are (almost) zero
  const Floats factor = spread(std::isfinite(per_unit) ? per_unit : 0.0f);
  for (long k = 0; k < padded; k += LANES) {
    const Floats v = load(x + k, lanes(std::max(0L, inner - k))) * factor;
    store_bytes(room + k, lanes(padded - k), to_ints(v));
  }
  return room;
}

// Multiplies a vector of sums by the scales of its row and columns and adds the bias.
Floats finish(Floats sum, const Matrix& w, long column, float) {
  return w.bias ? sum + load(w.bias + column) : sum;
}

Floats finish(Ints sum, const Matrix& w, long column, float unit) {
  const Floats whole = to_floats(BYTES_ARE_AROUND_128 ? subtract_ints(sum, load_ints(w.offsets + column)) : sum);
  const Floats scale = load(w.scales + column) * spread(unit);
  return w.bias ? multiply_add(whole, scale, load(w.bias + column)) : whole * scale;
}

Floats load_sums(const float* x) { return load(x); }
Ints load_sums(const int32_t* x) { return load_ints(x); }

}  // namespace
}  // namespace transformer
