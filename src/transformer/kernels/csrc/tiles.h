// Products by AMX, where a processor has it: registers of 16 rows of 64 bytes, tiles, of which one instruction multiplies
// two and adds the result to a third.
#pragma once
#include "vectors.h"

#include <algorithm>
#include <type_traits>

namespace transformer {

extern bool uses_tiles;  // whether the processor has them, and they are wanted

constexpr long UNITS_OF_A_TILE = 16;  // of a row of a: four bytes each, two bfloat16 or four int8
enum class Numbers { int8, bfloat16, three_bfloat16 };  // the last: float32, in three.h
constexpr long ROWS_OF_TILES = 32, VECTORS_OF_TILES = 2;  // of sums that are computed together

// Two factors: rows of a, `row` bytes apart, and units of b, of all columns, `unit` bytes apart. Of these there are
// `units`, a multiple of 16, or of 48 where each is there three times, in b, and after those 16 in `last` if that is not
// null. What is read again soon is to stay in the first cache, b or a; the other one does not displace it.
struct Factors {
  const char *a, *b, *last;
  long row, unit, units;
  bool b_stays;
  const void* before = nullptr;  // sums that the product is added to, in rows as the result's
};

// The tiles of this thread, for as long as this lives.
class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  ~Tiles();

  // The product of `rows` rows, at most 32, with one vector of columns, or two if there are; rows of sums are `stride`
  // bytes apart. Numbers of a are unsigned where they are int8. With all units of a tile, `meanwhile` is called: vectors are
  // idle.
  template <Numbers numbers, typename Meanwhile>
  void multiply(const Factors& f, long rows, long vectors, void* sums, long stride, const Meanwhile& meanwhile);

 private:
  void shape(long rows);
  template <Numbers numbers, bool b_stays, int DOWN, int ACROSS, typename Meanwhile>
  static void run(const Factors& f, char* sums, long stride, const Meanwhile& meanwhile);
  long rows_ = 0;
};

// What is needed later: so many lines of the cache are asked for with each step along the inner axis.
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

// Tiles 0 to 3 are for sums, 4 and 5 for rows of a, 6 and 7 for columns of b.
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
  __asm__ volatile("" ::"r"(&shapes) : "memory");  // all of it is read, of which the next line does not say so
  _tile_loadconfig(&shapes);
}

// The numbers of tiles are part of the instructions.
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
  __asm__ volatile("" ::: "memory");  // what is loaded has been written
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
      // Of nine products of parts, the three that are left out come to the last bit of float32 at most.
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
