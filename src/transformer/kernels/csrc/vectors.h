// Vectors of sixteen numbers and scratch memory, shared by the kernels.
#pragma once
#ifdef TRANSFORMER_AVX2
#include "vectors_avx2.h"
#else
#include "vectors_avx512.h"
#endif

#include <new>
#include <type_traits>
#include <vector>

namespace transformer {

constexpr long LANES = 16;

// Size of a tile of accumulators that stays in registers: the maximum number of rows, and the number of vectors per
// row.
constexpr int TILE_ROWS = 6;
constexpr int tile_vectors(int rows, int registers = REGISTERS_OF_A_TILE) {
  const int most = registers / REGISTERS_OF_A_VECTOR / rows;
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}
constexpr int TILE_VECTORS = tile_vectors(TILE_ROWS);

// Calls `work` with the number of rows, at most TILE_ROWS of n, as a compile-time constant.
template <typename Work>
void with_rows(long n, const Work& work) {
  static_assert(TILE_ROWS == 6);
  switch (n) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 3: return work(std::integral_constant<int, 3>());
    case 4: return work(std::integral_constant<int, 4>());
    case 5: return work(std::integral_constant<int, 5>());
    default: return work(std::integral_constant<int, 6>());
  }
}

// Mask of the lanes in use if n elements remain: all lanes, or the first n.
inline Mask lanes(long n) { return n >= LANES ? 0xffff : static_cast<Mask>((1u << n) - 1); }

// e^x for x <= 0 or NaN, with a relative error of 2e-7 near 0 and 1e-5 near -87. The result is 0 below that, where it
// would be subnormal: a single subnormal takes some processors a hundred cycles.
//
// Computed as e^x = 2^n 2^f with |f| <= 1/2. 2^f is approximated by the polynomial of degree 5 that is 1 at 0 and has
// the least maximum relative error, 1e-7.
inline Floats exponential(Floats x) {
  const Floats least = spread(-87.3f), t = larger(least, x) * spread(1.44269504f), n = rounded(t), f = t - n;
  Floats p = spread(0.00132647273f);
  p = multiply_add(p, f, spread(0.00967151299f));
  p = multiply_add(p, f, spread(0.0555073358f));
  p = multiply_add(p, f, spread(0.240222424f));
  p = multiply_add(p, f, spread(0.693147004f));
  p = multiply_add(p, f, spread(1.0f));
  return keep(is_above_or_nan(x, least), times_power_of_two(p, n));
}

// 2^x for finite x or NaN, with a relative error of 8e-5, a fraction of the precision of bfloat16; 2^-126 where the
// result would be less. Computed like `exponential`, with a polynomial of degree 3. (The AVX2 version, which is not
// used, requires x <= 0.)
inline Floats rough_power_of_two(Floats x) {
  const Floats t = larger(spread(-126.0f), x), n = rounded(t), f = t - n;
  Floats p = spread(0.0551716685f);
  p = multiply_add(p, f, spread(0.242611125f));
  p = multiply_add(p, f, spread(0.693260968f));
  p = multiply_add(p, f, spread(0.999928057f));
  return times_power_of_two(p, n);
}

// Allocates memory aligned to cache lines, because a vector that spans two lines takes two loads.
template <typename T>
struct InLines {
  using value_type = T;
  static constexpr std::align_val_t LINE{64};
  InLines() = default;
  template <typename U>
  InLines(const InLines<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), LINE)); }
  void deallocate(T* held, size_t) { ::operator delete(held, LINE); }
  bool operator==(const InLines&) const { return true; }
  bool operator!=(const InLines&) const { return false; }
};

// Scratch memory of a thread, reused between calls. Each number identifies a separate buffer.
template <typename T, int number = -1>
T* scratch(long n) {
  thread_local std::vector<T, InLines<T>> kept;
  if (static_cast<long>(kept.size()) < n) kept.resize(n);
  return kept.data();
}

}  // namespace transformer
