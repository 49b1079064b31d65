// Products by AMX, on processors that support it. A tile is a register of 16 rows of 64 bytes. One instruction
// multiplies two tiles and adds the product to a third.
#pragma once
#include "vectors.h"

#include <algorithm>
#include <type_traits>

namespace transformer {

extern bool amx_enabled;  // whether the processor supports AMX and its use is enabled

constexpr long TILE_K_GROUPS = 16;  // in a row of a: four bytes each, two bfloat16 or four int8
enum class TileType { int8, bfloat16, bf16x3 };  // the last one is float32, split as in bf16x3.h
constexpr long AMX_MR = 32, AMX_NR_VECTORS = 2;  // size of the block of sums that is computed together

// Two factors: rows of a, `a_stride` bytes apart, and units of b, each of all columns, `b_stride` bytes apart. b has `k_groups`
// units, a multiple of 16, or of 48 if each one is stored as three parts. If `b_tail` is not null, it holds 16 more. The
// factor that is read again soon (b if `b_is_resident`, otherwise a) is kept in the L1 cache; the other one is streamed and
// does not displace it.
struct TileOperands {
  const char *a, *b, *b_tail;
  long a_stride, b_stride, k_groups;
  bool b_is_resident;
  // Partial sums to which the product is added, with the row stride of the result; or null.
  const void* initial_sums = nullptr;
};

// The calling thread's tiles, which are released on destruction.
class AmxTiles {
 public:
  AmxTiles() = default;
  AmxTiles(const AmxTiles&) = delete;
  ~AmxTiles();

  // Multiplies `rows` rows, at most 32, by two vectors of columns, or by one if `vectors` is 1. Rows of sums are
  // `stride` bytes apart. int8 elements of a are unsigned. `overlapped` is called at each step along the inner axis,
  // because the vector units are idle.
  template <TileType type, typename Overlapped>
  void multiply(const TileOperands& f, long rows, long vectors, void* sums, long stride, const Overlapped& overlapped);

 private:
  void configure(long rows);
  template <TileType type, bool b_is_resident, int ROW_TILES, int COLUMN_TILES, typename Overlapped>
  static void multiply_tiles(const TileOperands& f, char* sums, long stride, const Overlapped& overlapped);
  long rows_ = 0;
};

// Memory that is needed later: `lines_per_step` cache lines are prefetched with each step along the inner axis.
struct Prefetcher {
  const char* address;
  long lines_per_step;

  void step() {
    for (long i = 0; i < lines_per_step; ++i, address += 64) _mm_prefetch(address, _MM_HINT_T1);
  }
};

#ifdef TRANSFORMER_AMX

inline AmxTiles::~AmxTiles() {
  if (rows_) _tile_release();
}

// Tiles 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 columns of b.
inline void AmxTiles::configure(long rows) {
  if (rows == rows_) return;
  rows_ = rows;
  struct {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {};
    uint8_t rows[16] = {};
  } config;
  const auto upper = static_cast<uint8_t>(std::min(rows, 16L)), lower = static_cast<uint8_t>(std::max(1L, rows - 16));
  const uint8_t rows_of_each[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
  for (int i = 0; i < 8; ++i) {
    config.bytes_per_row[i] = 64;
    config.rows[i] = rows_of_each[i];
  }
  __asm__ volatile("" ::"r"(&config) : "memory");  // the next line does not declare that it reads the whole struct
  _tile_loadconfig(&config);
}

// These are macros, because tile numbers are immediate operands of the instructions.
#define ADD_PRODUCT(sums, a, b)      \
  do {                               \
    if (type == TileType::int8)    \
      _tile_dpbusd(sums, a, b);      \
    else                             \
      _tile_dpbf16ps(sums, a, b);    \
  } while (false)

#define LOAD(tile, address, stride, resident)       \
  do {                                        \
    if (resident)                                \
      _tile_loadd(tile, address, stride);        \
    else                                      \
      _tile_stream_loadd(tile, address, stride); \
  } while (false)

template <TileType type, bool b_is_resident, int ROW_TILES, int COLUMN_TILES, typename Overlapped>
void AmxTiles::multiply_tiles(const TileOperands& f, char* sums, long stride, const Overlapped& overlapped) {
  constexpr bool has_lower = ROW_TILES == 2, has_right = COLUMN_TILES == 2;
  __asm__ volatile("" ::: "memory");  // stores to the operands must precede the loads of tiles
  if (const auto* initial_sums = static_cast<const char*>(f.initial_sums)) {
    _tile_loadd(0, initial_sums, stride);
    if (has_right) _tile_loadd(1, initial_sums + 64, stride);
    if (has_lower) _tile_loadd(2, initial_sums + 16 * stride, stride);
    if (has_lower && has_right) _tile_loadd(3, initial_sums + 16 * stride + 64, stride);
  } else {
    _tile_zero(0);
    if (has_right) _tile_zero(1);
    if (has_lower) _tile_zero(2);
    if (has_lower && has_right) _tile_zero(3);
  }
  const auto load_a = [&f](const char* a) {
    LOAD(4, a, f.a_stride, !b_is_resident);
    if (has_lower) LOAD(5, a + 16 * f.a_stride, f.a_stride, !b_is_resident);
  };
  const auto load_b = [&f](const char* b) {
    LOAD(6, b, f.b_stride, b_is_resident);
    if (has_right) LOAD(7, b + 64, f.b_stride, b_is_resident);
  };
  const auto accumulate = [] {
    ADD_PRODUCT(0, 4, 6);
    if (has_right) ADD_PRODUCT(1, 4, 7);
    if (has_lower) ADD_PRODUCT(2, 5, 6);
    if (has_lower && has_right) ADD_PRODUCT(3, 5, 7);
  };
  const char* a = f.a;
  if constexpr (type == TileType::bf16x3) {
    const long term_bytes = TILE_K_GROUPS * f.b_stride;
    for (const char *b = f.b, *end = b + f.k_groups * f.b_stride; b < end; a += 3 * 64, b += 3 * term_bytes) {
      // Of the nine products of parts, three are omitted. They amount to at most the last bit of float32.
      load_a(a + 128), load_b(b), accumulate();
      load_a(a + 64), accumulate();
      load_b(b + term_bytes), accumulate();
      load_a(a), accumulate();
      load_b(b), accumulate();
      load_b(b + 2 * term_bytes), accumulate();
      overlapped();
    }
  } else {
    const auto accumulate_step = [&](const char* b) {
      load_b(b), load_a(a), accumulate();
      a += 64;
      overlapped();
    };
    for (long u = 0; u < f.k_groups; u += TILE_K_GROUPS) accumulate_step(f.b + u * f.b_stride);
    if (f.b_tail) accumulate_step(f.b_tail);
  }
  _tile_stored(0, sums, stride);
  if (has_right) _tile_stored(1, sums + 64, stride);
  if (has_lower) _tile_stored(2, sums + 16 * stride, stride);
  if (has_lower && has_right) _tile_stored(3, sums + 16 * stride + 64, stride);
}

#undef ADD_PRODUCT
#undef LOAD

template <TileType type, typename Overlapped>
void AmxTiles::multiply(const TileOperands& f, long rows, long vectors, void* sums, long stride, const Overlapped& overlapped) {
  configure(rows);
  auto* dst = static_cast<char*>(sums);
  const auto multiply = [&](auto resident) {
    constexpr bool b_is_resident = resident;
    const bool has_two_columns = vectors > 1;
    if (rows > 16)
      has_two_columns ? multiply_tiles<type, b_is_resident, 2, 2>(f, dst, stride, overlapped) : multiply_tiles<type, b_is_resident, 2, 1>(f, dst, stride, overlapped);
    else
      has_two_columns ? multiply_tiles<type, b_is_resident, 1, 2>(f, dst, stride, overlapped) : multiply_tiles<type, b_is_resident, 1, 1>(f, dst, stride, overlapped);
  };
  f.b_is_resident ? multiply(std::true_type()) : multiply(std::false_type());
}

#else

inline AmxTiles::~AmxTiles() {}
template <TileType type, typename Overlapped>
void AmxTiles::multiply(const TileOperands&, long, long, void*, long, const Overlapped&) {}

#endif

}  // namespace transformer
