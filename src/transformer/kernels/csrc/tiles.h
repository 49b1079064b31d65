// Products by AMX, on processors that support it. A tile is a register of 16 rows of 64 bytes. One instruction
// multiplies two tiles and adds the product to a third.
#pragma once
#include "vectors.h"

#include <algorithm>
#include <type_traits>

namespace transformer {

extern bool uses_tiles;  // whether the processor supports AMX and its use is enabled

constexpr long UNITS_OF_A_TILE = 16;  // in a row of a: four bytes each, two bfloat16 or four int8
enum class Numbers { int8, bfloat16, three_bfloat16 };  // the last one is float32, split as in three.h
constexpr long ROWS_OF_TILES = 32, VECTORS_OF_TILES = 2;  // size of the block of sums that is computed together

// Two factors: rows of a, `row` bytes apart, and units of b, each of all columns, `unit` bytes apart. b has `units`
// units, a multiple of 16, or of 48 if each one is stored as three parts. If `last` is not null, it holds 16 more. The
// factor that is read again soon (b if `b_stays`, otherwise a) is kept in the L1 cache; the other one is streamed and
// does not displace it.
struct Factors {
  const char *a, *b, *last;
  long row, unit, units;
  bool b_stays;
  // Partial sums to which the product is added, with the row stride of the result; or null.
  const void* before = nullptr;
};

// The calling thread's tiles, which are released on destruction.
class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  ~Tiles();

  // Multiplies `rows` rows, at most 32, by two vectors of columns, or by one if `vectors` is 1. Rows of sums are
  // `stride` bytes apart. int8 elements of a are unsigned. `meanwhile` is called at each step along the inner axis,
  // because the vector units are idle.
  template <Numbers numbers, typename Meanwhile>
  void multiply(const Factors& f, long rows, long vectors, void* sums, long stride, const Meanwhile& meanwhile);

 private:
  void shape(long rows);
  template <Numbers numbers, bool b_stays, int DOWN, int ACROSS, typename Meanwhile>
  static void run(const Factors& f, char* sums, long stride, const Meanwhile& meanwhile);
  long rows_ = 0;
};

// Memory that is needed later: `lines` cache lines are prefetched with each step along the inner axis.
struct Ahead {
  const char* from;
  long lines;

  void ask() {
    for (long i = 0; i < lines; ++i, from += 64) _mm_prefetch(from, _MM_HINT_T1);
  }
};

#ifdef TRANSFORMER_TILES

inline Tiles::~Tiles() {
  if (rows_) _tile_release();
}

// Tiles 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 columns of b.
inline void Tiles::shape(long rows) {
  if (rows == rows_) return;
  rows_ = rows;
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  const auto upper = static_cast<uint8_t>(std::min(rows, 16L)), lower = static_cast<uint8_t>(std::max(1L, rows - 16));
  const uint8_t of_each[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
  for (int i = 0; i < 8; ++i) {
    shapes.bytes[i] = 64;
    shapes.rows[i] = of_each[i];
  }
  __asm__ volatile("" ::"r"(&shapes) : "memory");  // the next line does not declare that it reads the whole struct
  _tile_loadconfig(&shapes);
}

// These are macros, because tile numbers are immediate operands of the instructions.
#define ADD_PRODUCT(sums, a, b)      \
  do {                               \
    if (numbers == Numbers::int8)    \
      _tile_dpbusd(sums, a, b);      \
    else                             \
      _tile_dpbf16ps(sums, a, b);    \
  } while (false)

#define LOAD(tile, from, stride, stays)       \
  do {                                        \
    if (stays)                                \
      _tile_loadd(tile, from, stride);        \
    else                                      \
      _tile_stream_loadd(tile, from, stride); \
  } while (false)

template <Numbers numbers, bool b_stays, int DOWN, int ACROSS, typename Meanwhile>
void Tiles::run(const Factors& f, char* sums, long stride, const Meanwhile& meanwhile) {
  constexpr bool has_lower = DOWN == 2, has_right = ACROSS == 2;
  __asm__ volatile("" ::: "memory");  // stores to the operands must precede the loads of tiles
  if (const auto* before = static_cast<const char*>(f.before)) {
    _tile_loadd(0, before, stride);
    if (has_right) _tile_loadd(1, before + 64, stride);
    if (has_lower) _tile_loadd(2, before + 16 * stride, stride);
    if (has_lower && has_right) _tile_loadd(3, before + 16 * stride + 64, stride);
  } else {
    _tile_zero(0);
    if (has_right) _tile_zero(1);
    if (has_lower) _tile_zero(2);
    if (has_lower && has_right) _tile_zero(3);
  }
  const auto load_a = [&f](const char* a) {
    LOAD(4, a, f.row, !b_stays);
    if (has_lower) LOAD(5, a + 16 * f.row, f.row, !b_stays);
  };
  const auto load_b = [&f](const char* b) {
    LOAD(6, b, f.unit, b_stays);
    if (has_right) LOAD(7, b + 64, f.unit, b_stays);
  };
  const auto add = [] {
    ADD_PRODUCT(0, 4, 6);
    if (has_right) ADD_PRODUCT(1, 4, 7);
    if (has_lower) ADD_PRODUCT(2, 5, 6);
    if (has_lower && has_right) ADD_PRODUCT(3, 5, 7);
  };
  const char* a = f.a;
  if constexpr (numbers == Numbers::three_bfloat16) {
    const long part = UNITS_OF_A_TILE * f.unit;
    for (const char *b = f.b, *end = b + f.units * f.unit; b < end; a += 3 * 64, b += 3 * part) {
      // Of the nine products of parts, three are omitted. They amount to at most the last bit of float32.
      load_a(a + 128), load_b(b), add();
      load_a(a + 64), add();
      load_b(b + part), add();
      load_a(a), add();
      load_b(b), add();
      load_b(b + 2 * part), add();
      meanwhile();
    }
  } else {
    const auto add_tile = [&](const char* b) {
      load_b(b), load_a(a), add();
      a += 64;
      meanwhile();
    };
    for (long u = 0; u < f.units; u += UNITS_OF_A_TILE) add_tile(f.b + u * f.unit);
    if (f.last) add_tile(f.last);
  }
  _tile_stored(0, sums, stride);
  if (has_right) _tile_stored(1, sums + 64, stride);
  if (has_lower) _tile_stored(2, sums + 16 * stride, stride);
  if (has_lower && has_right) _tile_stored(3, sums + 16 * stride + 64, stride);
}

#undef ADD_PRODUCT
#undef LOAD

template <Numbers numbers, typename Meanwhile>
void Tiles::multiply(const Factors& f, long rows, long vectors, void* sums, long stride, const Meanwhile& meanwhile) {
  shape(rows);
  auto* to = static_cast<char*>(sums);
  const auto multiply = [&](auto stays) {
    constexpr bool b_stays = stays;
    const bool is_wide = vectors > 1;
    if (rows > 16)
      is_wide ? run<numbers, b_stays, 2, 2>(f, to, stride, meanwhile) : run<numbers, b_stays, 2, 1>(f, to, stride, meanwhile);
    else
      is_wide ? run<numbers, b_stays, 1, 2>(f, to, stride, meanwhile) : run<numbers, b_stays, 1, 1>(f, to, stride, meanwhile);
  };
  f.b_stays ? multiply(std::true_type()) : multiply(std::false_type());
}

#else

inline Tiles::~Tiles() {}
template <Numbers numbers, typename Meanwhile>
void Tiles::multiply(const Factors&, long, long, void*, long, const Meanwhile&) {}

#endif

}  // namespace transformer
