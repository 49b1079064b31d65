// Data types of packed weights, with their dot-product instructions and the conversion of inputs; see
// packed_linear.cpp.
#pragma once
#include "kernels.h"
#include "topk.h"
#include "bf16x3.h"
#include "amx.h"

#include <cmath>
#include <cstring>

namespace transformer {
namespace {

constexpr long PANEL = 64;
static_assert(PANEL == PANEL_COLUMNS);
constexpr int VECTORS = PANEL / LANES;
constexpr long MIN_ROWS_FOR_AMX_INT8 = 7;  // bfloat16 always uses AMX, which sums in another order
constexpr long MIN_ROWS_FOR_BF16X3 = 48;   // from which splitting the weights into three bfloat16 terms pays

struct Float32 {
  using Input = float;
  using VectorAccumulator = VecF32;
  static constexpr long K_PER_GROUP = 1, MIN_ROWS_FOR_AMX = MIN_ROWS_FOR_BF16X3;
  static constexpr TileType TILE_TYPE = TileType::bf16x3;
  using Accumulator = float;
  static constexpr int MAX_ACCUMULATOR_REGISTERS = ACCUMULATOR_REGISTERS;
  static VectorAccumulator multiply_add_group(VectorAccumulator sum, const float* x, const char* w) {
    return fmadd(broadcast(*x), bitcast_f32(load_i32(w)), sum);
  }
};

struct Bfloat16 {
  using Input = uint16_t;
  using VectorAccumulator = VecF32;
  static constexpr long K_PER_GROUP = 2, MIN_ROWS_FOR_AMX = 1;
  static constexpr TileType TILE_TYPE = TileType::bfloat16;
  using Accumulator = float;
  static constexpr int MAX_ACCUMULATOR_REGISTERS = ACCUMULATOR_REGISTERS_UNPACKED;
  static VectorAccumulator multiply_add_group(VectorAccumulator sum, const uint16_t* x, const char* w) {
    return dot_bf16_pairs(sum, x, load_i32(w));
  }
};

struct Int8 {
  using Input = QuantizedInput;
  using VectorAccumulator = VecI32;
  static constexpr long K_PER_GROUP = 4, MIN_ROWS_FOR_AMX = MIN_ROWS_FOR_AMX_INT8;
  static constexpr TileType TILE_TYPE = TileType::int8;
  using Accumulator = int32_t;
  static constexpr int MAX_ACCUMULATOR_REGISTERS = ACCUMULATOR_REGISTERS_UNPACKED;
  static VectorAccumulator multiply_add_group(VectorAccumulator sum, const QuantizedInput* x, const char* w) {
    return dot_i8_quads(sum, x, w);
  }
};

// Int8 whose inputs are not negative, as after ReLU. AVX2 multiplies them with fewer instructions; it is a template,
// because other instruction sets lack this product.
template <typename Byte = QuantizedInput>
struct NonNegativeInt8 : Int8 {
  static VectorAccumulator multiply_add_group(VectorAccumulator sum, const Byte* x, const char* w) {
    return dot_i8_quads_non_negative(sum, x, w);
  }
};

bool has_negative(const int8_t* x, long n) {
  int8_t bits = 0;
  for (long i = 0; i < n; ++i) bits |= x[i];
  return bits < 0;
}

// Converts a row of x to the operand type: unchanged, rounded to bfloat16, or dynamically quantized to int8. `padded`
// is the length with padding; `row_scale` receives the scale of a quantized row.
const float* convert_input(const float* x, long, long, float*, float*, Float32) { return x; }

const uint16_t* convert_input(const float* x, long inner, long padded, uint16_t* dst, float*, Bfloat16) {
  for (long k = 0; k < padded; k += LANES) {
    const VecF32 v = load(x + k, tail_mask(std::max(0L, inner - k)));
    store(dst + k, tail_mask(padded - k), v);
  }
  return dst;
}

const uint16_t* convert_input(const uint16_t* x, long inner, long padded, uint16_t* dst, float*, Bfloat16) {
  std::memcpy(dst, x, 2 * inner);
  std::memset(dst + inner, 0, 2 * (padded - inner));
  return dst;
}

template <typename T>
const QuantizedInput* convert_input(const T* x, long inner, long padded, QuantizedInput* dst, float* row_scale, Int8) {
  VecF32 maxima = broadcast(0.0f);
  Mask nan_lanes = 0;  // a maximum ignores NaN
  for (long k = 0; k < inner; k += LANES) {
    const VecF32 v = load(x + k, tail_mask(inner - k));
    maxima = max(maxima, abs(v));
    nan_lanes |= movemask(is_nan(v));
  }
  const float row_max = reduce_max(maxima);
  *row_scale = nan_lanes || std::isinf(row_max) ? std::nanf("") : row_max / 127.0f;
  const float inverse_scale = 127.0f / row_max;  // infinite if all are (almost) zero
  const VecF32 factor = broadcast(std::isfinite(inverse_scale) ? inverse_scale : 0.0f);
  for (long k = 0; k < padded; k += LANES) {
    const VecF32 v = load(x + k, tail_mask(std::max(0L, inner - k))) * factor;
    store_quantized(dst + k, tail_mask(padded - k), convert_to_i32(v));
  }
  return dst;
}

// Dequantizes a vector of accumulators (by the scales of its row and columns, after subtracting the zero point) and
// adds the bias.
VecF32 apply_scales_and_bias(VecF32 sum, const PackedMatrix& w, long column, float) {
  return w.bias ? sum + load(w.bias + column) : sum;
}

VecF32 apply_scales_and_bias(VecI32 sum, const PackedMatrix& w, long column, float row_scale) {
  const VecF32 exact = convert_to_f32(HAS_ZERO_POINT_128 ? sub_i32(sum, load_i32(w.offsets + column)) : sum);
  const VecF32 scale = load(w.scales + column) * broadcast(row_scale);
  return w.bias ? fmadd(exact, scale, load(w.bias + column)) : exact * scale;
}

VecF32 load_accumulators(const float* x) { return load(x); }
VecI32 load_accumulators(const int32_t* x) { return load_i32(x); }

}  // namespace
}  // namespace transformer
