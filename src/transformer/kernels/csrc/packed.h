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
constexpr long MIN_ROWS_FOR_AMX_INT8 = 7;   // minimum rows of int8; bfloat16 always uses tiles, whose order of sums differs
constexpr long MIN_ROWS_FOR_BF16X3 = 48;  // minimum rows of float32 for which weights are split into three bfloat16

struct Float32 {
  using Input = float;
  using Sum = VecF32;
  static constexpr long GROUP = 1, TILED_FROM = MIN_ROWS_FOR_BF16X3;  // minimum number of rows for AMX
  static constexpr TileType TILE_TYPE = TileType::bf16x3;
  using Number = float;
  static constexpr int REGISTERS = ACCUMULATOR_REGISTERS;
  static Sum multiply(Sum sum, const float* x, const char* w) {
    return fmadd(broadcast(*x), bitcast_f32(load_i32(w)), sum);
  }
};

struct Bfloat16 {
  using Input = uint16_t;
  using Sum = VecF32;
  static constexpr long GROUP = 2, TILED_FROM = 1;
  static constexpr TileType TILE_TYPE = TileType::bfloat16;
  using Number = float;
  static constexpr int REGISTERS = ACCUMULATOR_REGISTERS_UNPACKED;
  static Sum multiply(Sum sum, const uint16_t* x, const char* w) { return dot_bf16_pairs(sum, x, load_i32(w)); }
};

struct Int8 {
  using Input = QuantizedInput;
  using Sum = VecI32;
  static constexpr long GROUP = 4, TILED_FROM = MIN_ROWS_FOR_AMX_INT8;
  static constexpr TileType TILE_TYPE = TileType::int8;
  using Number = int32_t;
  static constexpr int REGISTERS = ACCUMULATOR_REGISTERS_UNPACKED;
  static Sum multiply(Sum sum, const QuantizedInput* x, const char* w) { return dot_i8_quads(sum, x, w); }
};

// Converts x to the operands of the instructions: unchanged, rounded, or quantized to bytes with an offset of 128.
const float* prepare(const float* x, long, long, float*, float*, Float32) { return x; }

const uint16_t* prepare(const float* x, long inner, long padded, uint16_t* room, float*, Bfloat16) {
  for (long k = 0; k < padded; k += LANES) {
    const VecF32 v = load(x + k, tail_mask(std::max(0L, inner - k)));
    store(room + k, tail_mask(padded - k), v);
  }
  return room;
}

const uint16_t* prepare(const uint16_t* x, long inner, long padded, uint16_t* room, float*, Bfloat16) {
  std::memcpy(room, x, 2 * inner);
  std::memset(room + inner, 0, 2 * (padded - inner));
  return room;
}

template <typename T>
const QuantizedInput* prepare(const T* x, long inner, long padded, QuantizedInput* room, float* unit, Int8) {
  VecF32 most = broadcast(0.0f);
  Mask nan = 0;  // a maximum ignores NaN
  for (long k = 0; k < inner; k += LANES) {
    const VecF32 v = load(x + k, tail_mask(inner - k));
    most = max(most, abs(v));
    nan |= movemask(is_nan(v));
  }
  const float largest = reduce_max(most);
  *unit = nan || std::isinf(largest) ? std::nanf("") : largest / 127.0f;
  const float per_unit = 127.0f / largest;  // infinite if all are (almost) zero
  const VecF32 factor = broadcast(std::isfinite(per_unit) ? per_unit : 0.0f);
  for (long k = 0; k < padded; k += LANES) {
    const VecF32 v = load(x + k, tail_mask(std::max(0L, inner - k))) * factor;
    store_quantized(room + k, tail_mask(padded - k), convert_to_i32(v));
  }
  return room;
}

// Multiplies a vector of sums by the scales of its row and columns and adds the bias.
VecF32 finish(VecF32 sum, const PackedMatrix& w, long column, float) {
  return w.bias ? sum + load(w.bias + column) : sum;
}

VecF32 finish(VecI32 sum, const PackedMatrix& w, long column, float unit) {
  const VecF32 whole = convert_to_f32(HAS_ZERO_POINT_128 ? sub_i32(sum, load_i32(w.offsets + column)) : sum);
  const VecF32 scale = load(w.scales + column) * broadcast(unit);
  return w.bias ? fmadd(whole, scale, load(w.bias + column)) : whole * scale;
}

VecF32 load_sums(const float* x) { return load(x); }
VecI32 load_sums(const int32_t* x) { return load_i32(x); }

}  // namespace
}  // namespace transformer
