// AMX micro-kernels (Advanced Matrix Extensions). A tile register has 16 rows of 64 bytes. One instruction multiplies
// two tiles and accumulates the product in a third.
#pragma once
#include "vectors.h"

#include <algorithm>
#include <type_traits>

namespace transformer {

extern bool amx_enabled;  // whether the processor supports AMX and Linux permits its use

constexpr long TILE_K_GROUPS = 16;               // k-groups (four bytes: two bfloat16 or four int8) per tile row
enum class TileType { int8, bfloat16, bf16x3 };  // bf16x3: float32 split into three terms, see bf16x3.h
constexpr long AMX_MR = 32, AMX_NR_VECTORS = 2;  // register block: 2 x 2 tiles of accumulators

// Operands of a micro-kernel. Rows of A are `a_stride` bytes apart. B is in VNNI layout: each of its `k_groups` rows
// holds one k-group of every column, and rows are `b_stride` bytes apart. `k_groups` is a multiple of 16, or of 48 if
// each k-group is stored as three terms. If `b_tail` is not null, it holds 16 more. The operand that is reused soon (B
// if `b_is_resident`, otherwise A) is loaded with a temporal hint and stays in the L1 cache; the other one is streamed.
struct TileOperands {
  const char *a, *b, *b_tail;
  long a_stride, b_stride, k_groups;
  bool b_is_resident;
  // Initial values of the accumulators, with the row stride of the result; or null for zeros.
  const void* initial_sums = nullptr;
};

// The tile registers of the calling thread, which are released on destruction.
class AmxTiles {
 public:
  AmxTiles() = default;
  AmxTiles(const AmxTiles&) = delete;
  ~AmxTiles();

  // Multiplies `rows` rows of A, at most AMX_MR, by two vectors of columns, or by one if `vectors` is 1. Rows of sums
  // are `stride` bytes apart. int8 elements of A are unsigned. `overlapped` is called at each step of the K loop:
  // vector work that overlaps with the tile multiplications.
  template <TileType type, typename Overlapped>
  void multiply(const TileOperands& f, long rows, long vectors, void* sums, long stride, const Overlapped& overlapped);

 private:
  void configure(long rows);
  template <TileType type, bool b_is_resident, int ROW_TILES, int COLUMN_TILES, typename Overlapped>
  static void multiply_tiles(const TileOperands& f, char* sums, long stride, const Overlapped& overlapped);
  long rows_ = 0;
};

// Software prefetch of contiguous memory: `lines_per_step` cache lines with each step of the K loop.
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

// Tiles 0 to 3 are accumulators, 4 and 5 hold rows of A, 6 and 7 columns of B.
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
#define ADD_PRODUCT(sums, a, b)   \
  do {                            \
    if (type == TileType::int8)   \
      _tile_dpbusd(sums, a, b);   \
    else                          \
      _tile_dpbf16ps(sums, a, b); \
  } while (false)

#define LOAD(tile, address, stride, resident)    \
  do {                                           \
    if (resident)                                \
      _tile_loadd(tile, address, stride);        \
    else                                         \
      _tile_stream_loadd(tile, address, stride); \
  } while (false)

template <TileType type, bool b_is_resident, int ROW_TILES, int COLUMN_TILES, typename Overlapped>
void AmxTiles::multiply_tiles(const TileOperands& f, char* sums, long stride, const Overlapped& overlapped) {
  constexpr bool has_lower = ROW_TILES == 2, has_right = COLUMN_TILES == 2;
  __asm__ volatile("" ::: "memory");  // compiler barrier: operands must be stored before tiles are loaded
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
      // Six of the nine products of terms, smallest first. The other three amount to at most the last bit of float32.
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
void AmxTiles::multiply(const TileOperands& f, long rows, long vectors, void* sums, long stride,
                        const Overlapped& overlapped) {
  configure(rows);
  auto* dst = static_cast<char*>(sums);
  const auto multiply = [&](auto resident) {
    constexpr bool b_is_resident = resident;
    const bool has_two_columns = vectors > 1;
    if (rows > 16)
      has_two_columns ? multiply_tiles<type, b_is_resident, 2, 2>(f, dst, stride, overlapped)
                      : multiply_tiles<type, b_is_resident, 2, 1>(f, dst, stride, overlapped);
    else
      has_two_columns ? multiply_tiles<type, b_is_resident, 1, 2>(f, dst, stride, overlapped)
                      : multiply_tiles<type, b_is_resident, 1, 1>(f, dst, stride, overlapped);
  };
  f.b_is_resident ? multiply(std::true_type()) : multiply(std::false_type());
}

#else

inline AmxTiles::~AmxTiles() {}
template <TileType type, typename Overlapped>
void AmxTiles::multiply(const TileOperands&, long, long, void*, long, const Overlapped&) {}

#endif

}  // namespace transformer
