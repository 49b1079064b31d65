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

// Of a tile of sums that stays in registers: rows, and vectors where there are so many rows or fewer.
constexpr int TILE_ROWS = 6;
constexpr int tile_vectors(int rows, int registers = REGISTERS_OF_A_TILE) {
  const int most = registers / REGISTERS_OF_A_VECTOR / rows;
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}
constexpr int TILE_VECTORS = tile_vectors(TILE_ROWS);

// Calls `work` with up to TILE_ROWS of n rows, as a constant.
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

// e^x for x <= 0 or NaN, to 2e-7 of it near 0 and 1e-5 near -87; 0 below, where numbers are subnormal, of which one takes
// some processors a hundred cycles.
// e^x = 2^n 2^f with |f| <= 1/2; 2^f by the polynomial of degree 5 that is 1 at 0 and whose largest relative error, 1e-7,
// is least.
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

// 2^x for finite x or NaN to 8e-5 of it, a fraction of what bfloat16 tells apart; 2^-126 where it would be less. As above, with
// a polynomial of degree 3. (By AVX2, which needs it nowhere, for x <= 0.)
inline Floats rough_power_of_two(Floats x) {
  const Floats t = larger(spread(-126.0f), x), n = rounded(t), f = t - n;
  Floats p = spread(0.0551716685f);
  p = multiply_add(p, f, spread(0.242611125f));
  p = multiply_add(p, f, spread(0.693260968f));
  p = multiply_add(p, f, spread(0.999928057f));
  return times_power_of_two(p, n);
}

// Memory aligned to cache lines: a vector that spans two lines takes two loads.
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
