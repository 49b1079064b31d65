// Greedy and beam search for a batch of sentences, without a return to Python between steps. The same algorithm, step
// by step, is `transformer/decoding/search.py`, which also knows processors of logits, constraints and sampling.
//
// A sentence has a slot: `beam` neighbouring rows of the caches, one for each hypothesis. Hypotheses that continue the
// same one share its positions, which never move: a table tells which row of the slot holds each position.
#include "compiled_model.h"
#include "beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace transformer {
namespace {

constexpr long MIN_POSITIONS = 32;          // of target caches, which grow by half
constexpr int SOURCE_PROJECTIONS = 50;  // scratch buffer
constexpr float NEG_INFINITY = -std::numeric_limits<float>::infinity();

// Memory aligned to cache lines, not initialized.
struct FreeMemory {
  void operator()(char* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};
using Memory = std::unique_ptr<char, FreeMemory>;
Memory allocate(size_t n) { return Memory(static_cast<char*>(::operator new(n, std::align_val_t{64}))); }

struct Hypothesis {
  std::vector<int64_t> tokens;
  float score;
  long length;  // tokens that the score sums over, the end included
};

struct Sentence {
  long slot;
  std::vector<Hypothesis> finished, truncated;
  bool is_done = false;
};

// Keys and values of one layer, for each row of the caches, head and position.
struct Cache {
  Memory keys, values;
  Attention attention{};
};

class BeamSearch {
 public:
  BeamSearch(const Model& model, const SearchArgs& args) : model_(model), args_(args), width_(args.beam) {
    n_rows_ = args.n_sentences * width_;
    element_size_ = model.is_rounded ? 2 : 4;
    for (long slot = 0; slot < args.n_sentences; ++slot) {
      active_.push_back(Sentence{slot});
      max_limit_ = std::max<long>(max_limit_, args.limits[slot]);
      max_source_ = std::max<long>(max_source_, args.lengths[slot]);
      for (long w = 0; w < width_; ++w) {
        scores_.push_back(w ? NEG_INFINITY : 0.0f);  // a sentence begins with one hypothesis, the empty one
        tokens_.push_back(args.start_tokens[slot]);
      }
    }
    last_source_.resize(args.n_sentences);
    rows_.resize(n_rows_), slots_.resize(args.n_sentences), positions_.resize(n_rows_);
    if (width_ > 1) table_.resize(n_rows_ * (max_limit_ + 1));
  }

  // Encodes the sources. Returns false if a token is out of range.
  bool begin(int threads) {
    long n_tokens = 0;
    for (long i = 0; i < args_.n_sentences; ++i) n_tokens += args_.lengths[i];
    std::vector<float, CacheLineAllocator<float>> encoded(n_tokens * model_.d_model);
    if (!encode(model_, {args_.source, args_.lengths, args_.n_sentences}, encoded.data(), threads)) return false;
    source_.resize(model_.n_decoder_layers), target_.resize(model_.n_decoder_layers);
    for (long layer = 0; layer < model_.n_decoder_layers; ++layer) {
      allocate_cache(source_[layer], args_.n_sentences, max_source_);
      project_source(*model_.source_keys_values[layer], encoded.data(), source_[layer], threads);
    }
    reserve_positions(1);
    return true;
  }

  // Runs up to `max_steps` steps, until a sentence is done. Returns false if a token is out of range.
  bool advance(long max_steps, int threads) {
    done_.clear();
    for (long i = 0; i < max_steps && done_.empty() && !active_.empty(); ++i)
      if (!step(threads)) return false;
    collect_results();
    return true;
  }

  SearchResults results() const {
    return {integers_.data(), result_scores_.data(), static_cast<long>(integers_.size()),
            static_cast<long>(done_.size()), static_cast<long>(active_.size())};
  }

 private:
  void allocate_cache(Cache& cache, long rows, long positions) {
    const long heads = model_.decoder_heads, width = model_.decoder_head_width;
    const size_t n_bytes = static_cast<size_t>(rows) * heads * std::max(1L, positions) * width * element_size_;
    cache.keys = allocate(n_bytes), cache.values = allocate(n_bytes);
    Attention& a = cache.attention;
    a.keys = cache.keys.get(), a.values = cache.values.get();
    a.heads = heads, a.width = width;
    a.key_batch = a.value_batch = heads * positions * width;
    a.key_head = a.value_head = positions * width;
    a.key_stride = a.value_stride = width;
    a.scale = 1 / std::sqrt(static_cast<double>(width));
    a.is_bfloat16 = model_.is_rounded;
  }

  // Stores the keys and values of all sources, which are rows of one matrix.
  void project_source(const PackedMatrix& w, const float* encoded, Cache& cache, int threads) {
    const long d = model_.decoder_heads * model_.decoder_head_width;
    const bool is_bf16 = HAS_BF16_DOT && model_.is_rounded;
    const long rows_at_once = std::max(max_source_, 1024L * threads);
    for (long first = 0, n; first < args_.n_sentences; first += n) {
      long rows = 0;
      for (n = 0; first + n < args_.n_sentences && (!n || rows + args_.lengths[first + n] <= rows_at_once); ++n)
        rows += args_.lengths[first + n];
      const int n_threads = threads_for(rows * w.inner * w.columns, threads);
      if (is_bf16) {
        uint16_t* projected = scratch<uint16_t, SOURCE_PROJECTIONS>(rows * 2 * d);
        transformer_packed_linear_bf16(&w, encoded, 0, rows, projected, 1, n_threads);
        store_source(projected, first, n, cache);
      } else {
        float* projected = scratch<float, SOURCE_PROJECTIONS>(rows * 2 * d);
        transformer_packed_linear(&w, encoded, rows, projected, n_threads);
        store_source(projected, first, n, cache);
      }
      encoded += rows * model_.d_model;
    }
  }

  template <typename T>
  void store_source(const T* projected, long first, long count, Cache& cache) const {
    const long heads = model_.decoder_heads, width = model_.decoder_head_width;
    for (long sentence = first; sentence < first + count; ++sentence)
      for (long position = 0; position < args_.lengths[sentence]; ++position)
        for (const Memory* memory : {&cache.keys, &cache.values})
          for (long head = 0; head < heads; ++head, projected += width) {
            char* target =
                memory->get() + ((sentence * heads + head) * max_source_ + position) * width * element_size_;
            if (std::is_same_v<T, float> && model_.is_rounded)
              for (long e = 0; e < width; e += LANES)
                store(reinterpret_cast<uint16_t*>(target) + e, tail_mask(width - e),
                      load(projected + e, tail_mask(width - e)));
            else
              std::memcpy(target, projected, width * sizeof(T));
          }
  }

  // Enlarges the caches of the target to at least this number of positions.
  void reserve_positions(long positions) {
    if (positions <= capacity_) return;
    const long grown = std::max(MIN_POSITIONS, capacity_ + capacity_ / 2);
    const long capacity = std::max(positions, std::min(grown, max_limit_));
    const long head_bytes = model_.decoder_head_width * element_size_;
    for (Cache& cache : target_) {
      Cache old = std::move(cache);
      cache = Cache();
      allocate_cache(cache, n_rows_, capacity);
      for (long i = 0; capacity_ && i < n_rows_ * model_.decoder_heads; ++i) {
        std::memcpy(cache.keys.get() + i * capacity * head_bytes, old.keys.get() + i * capacity_ * head_bytes,
                    capacity_ * head_bytes);
        std::memcpy(cache.values.get() + i * capacity * head_bytes, old.values.get() + i * capacity_ * head_bytes,
                    capacity_ * head_bytes);
      }
    }
    capacity_ = capacity;
  }

  // Computes one step of the model for all active hypotheses; the k best tokens of each are in `top_tokens_`.
  bool compute_top_k(long k, int threads) {
    const long n = active_.size(), rows = n * width_, d = model_.d_model;
    reserve_positions(length_ + 1);
    input_tokens_.resize(rows);
    for (long i = 0; i < n; ++i) {
      slots_[i] = active_[i].slot;
      last_source_[i] = args_.lengths[active_[i].slot] - 1;
      for (long w = 0; w < width_; ++w) {
        const long row = active_[i].slot * width_ + w;
        rows_[i * width_ + w] = row;
        input_tokens_[i * width_ + w] = tokens_[row];
        positions_[i * width_ + w] = length_;
        if (width_ > 1) table_[row * (max_limit_ + 1) + length_] = row;
      }
    }
    hidden_[0].resize(rows * d), hidden_[1].resize(rows * d);
    float *x = hidden_[0].data(), *y = hidden_[1].data();
    if (!embed_tokens(model_.target, input_tokens_.data(), rows, d, x, threads)) return false;
    add_position(model_.target.positions + length_ * d, rows, d, x);
    for (long layer = 0; layer < model_.n_decoder_layers; ++layer, std::swap(x, y)) {
      Attention &self_attention = target_[layer].attention, &cross_attention = source_[layer].attention;
      self_attention.batch = rows, self_attention.queries = 1, self_attention.positions = length_ + 1;
      self_attention.last = positions_.data(), self_attention.cache_rows = rows_.data();
      self_attention.cache_indirection = width_ > 1 ? table_.data() : nullptr;
      self_attention.indirection_stride = max_limit_ + 1;
      cross_attention.batch = n, cross_attention.queries = width_, cross_attention.positions = max_source_;
      cross_attention.last = last_source_.data(), cross_attention.cache_rows = slots_.data();
      transformer_decoder_layer(model_.decoder_layers + layer, &self_attention, &cross_attention, x, y, rows, threads);
    }
    if (const Norm& norm = model_.decoder_norm; norm.alpha)
      transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, d, x,
                           threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * d, threads));
    top_log_p_.resize(rows * k), top_tokens_.resize(rows * k);
    transformer_packed_linear_topk(
        model_.projection, x, rows, k, length_ < args_.min_tokens ? args_.forbidden_early : args_.forbidden,
        top_log_p_.data(), top_tokens_.data(), threads_for(rows * d * model_.projection->columns, threads));
    return true;
  }

  bool is_end(int64_t token) const { return std::find(args_.ends, args_.ends + args_.n_ends, token) != args_.ends + args_.n_ends; }

  bool step(int threads) {
    const long n_candidates = width_ * std::max(2L, 1 + args_.n_ends);
    const long k = std::min(n_candidates + find_repetitions(), model_.projection->columns);
    if (!compute_top_k(k, threads)) return false;
    history_.emplace_back(n_rows_);
    for (size_t i = 0; i < active_.size(); ++i) select(active_[i], i, k, n_candidates);
    ++length_;
    const auto first_done = std::stable_partition(active_.begin(), active_.end(),
                                                  [](const Sentence& sentence) { return !sentence.is_done; });
    std::move(first_done, active_.end(), std::back_inserter(done_));
    active_.erase(first_done, active_.end());
    return true;
  }

  // Finds the tokens that would repeat an n-gram of each active hypothesis. Returns the largest number of them.
  long find_repetitions() {
    const long n = args_.no_repeat_ngram - 1;  // length of what was generated last and may not be continued again
    if (n < 0) return 0;
    size_t most = 0;
    repetitions_.resize(active_.size() * width_);
    for (size_t i = 0; i < repetitions_.size(); ++i) {
      repetitions_[i].clear();
      const std::vector<int64_t> tokens = tokens_of(active_[i / width_].slot * width_ + i % width_, length_);
      for (long start = 0; start + n < length_; ++start)
        if (std::equal(tokens.end() - n, tokens.end(), tokens.begin() + start))
          repetitions_[i].push_back(tokens[start + n]);
      most = std::max(most, repetitions_[i].size());
    }
    return most;
  }

  bool repeats(long index, int64_t token) const {
    return args_.no_repeat_ngram &&
           std::find(repetitions_[index].begin(), repetitions_[index].end(), token) != repetitions_[index].end();
  }

  // Selects the hypotheses of a sentence that stay active, and stores those that end. `index` is its index in the
  // batch.
  void select(Sentence& sentence, long index, long k, long n_candidates) {
    const long row = sentence.slot * width_;
    candidates_.clear();
    for (long w = 0; w < width_; ++w)
      for (long j = 0; j < k; ++j) {
        const long i = (index * width_ + w) * k + j;
        if (!repeats(index * width_ + w, top_tokens_[i]))
          candidates_.push_back({scores_[row + w] + top_log_p_[i], w, top_tokens_[i]});
      }
    if (width_ > 1)
      std::stable_sort(candidates_.begin(), candidates_.end(),
                       [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    candidates_.resize(std::min<size_t>(candidates_.size(), n_candidates));
    const bool is_last = length_ + 1 == args_.limits[sentence.slot];
    selected_.clear();
    for (size_t rank = 0; rank < candidates_.size(); ++rank) {
      const Candidate& candidate = candidates_[rank];
      if (candidate.score == NEG_INFINITY) continue;
      if (!is_end(candidate.token)) {
        if (static_cast<long>(selected_.size()) < width_) selected_.push_back(candidate);
      } else if (static_cast<long>(rank) < width_) {
        sentence.finished.push_back({tokens_of(row + candidate.parent, length_), candidate.score, length_ + 1});
      }
    }
    if ((selected_.empty() && sentence.finished.empty()) || (is_last && args_.reserves_end[sentence.slot]))
      truncate(sentence, length_);
    append_tokens(row);
    sentence.is_done = can_stop(sentence, selected_.empty() ? NEG_INFINITY : selected_[0].score);
    if (is_last && !sentence.is_done) {
      if (!args_.reserves_end[sentence.slot]) truncate(sentence, length_ + 1);
      sentence.is_done = true;
    }
  }

  // Replaces the hypotheses of a slot by the selected ones. Missing ones have the score -inf.
  void append_tokens(long row) {
    std::vector<float> scores(width_, NEG_INFINITY);
    bool keeps_order = true;
    for (long w = 0; w < width_; ++w) {
      const Candidate missing{NEG_INFINITY, w, tokens_[row + w]};
      const Candidate& candidate = w < static_cast<long>(selected_.size()) ? selected_[w] : missing;
      keeps_order &= candidate.parent == w;
      scores[w] = candidate.score;
      history_.back()[row + w] = {static_cast<int32_t>(row + candidate.parent), static_cast<int32_t>(candidate.token)};
    }
    for (long w = 0; w < width_; ++w) {
      scores_[row + w] = scores[w];
      tokens_[row + w] = history_.back()[row + w].token;
    }
    if (keeps_order) return;
    const long stride = max_limit_ + 1;
    int32_t* table = table_.data() + row * stride;
    old_table_.resize(width_ * (length_ + 1));
    for (long w = 0; w < width_; ++w)
      std::copy_n(table + w * stride, length_ + 1, old_table_.data() + w * (length_ + 1));
    for (long w = 0; w < width_; ++w)
      std::copy_n(old_table_.data() + (history_.back()[row + w].parent - row) * (length_ + 1), length_ + 1,
                  table + w * stride);
  }

  std::vector<int64_t> tokens_of(long row, long length) const {
    std::vector<int64_t> tokens(length);
    for (long i = length - 1; i >= 0; --i) {
      tokens[i] = history_[i][row].token;
      row = history_[i][row].parent;
    }
    return tokens;
  }

  // Stores the active hypotheses as truncated; their tokens are those of the first `length` steps.
  void truncate(Sentence& sentence, long length) {
    sentence.truncated.clear();
    for (long w = 0; w < width_; ++w) {
      const long row = sentence.slot * width_ + w;
      if (scores_[row] != NEG_INFINITY) sentence.truncated.push_back({tokens_of(row, length), scores_[row], length});
    }
  }

  double normalized_score(const Hypothesis& hypothesis) const {
    return hypothesis.score / args_.length_penalties[hypothesis.length];
  }

  // Whether active hypotheses, of which the best has this score, can no longer change the result.
  bool can_stop(const Sentence& sentence, float best_active) {
    if (best_active == NEG_INFINITY) return true;
    if (static_cast<long>(sentence.finished.size()) < width_) return false;
    if (args_.stops_early) return true;
    std::vector<double> scores;
    for (const Hypothesis& hypothesis : sentence.finished) scores.push_back(normalized_score(hypothesis));
    std::nth_element(scores.begin(), scores.begin() + width_ - 1, scores.end(), std::greater<double>());
    return best_active / args_.length_penalties[args_.limits[sentence.slot]] <= scores[width_ - 1];
  }

  // Results of the sentences that are done: slot, numbers of finished and truncated hypotheses, and the number of
  // tokens and the tokens of each.
  void collect_results() {
    integers_.clear(), result_scores_.clear();
    for (const Sentence& sentence : done_) {
      integers_.insert(integers_.end(), {sentence.slot, static_cast<int64_t>(sentence.finished.size()),
                                         static_cast<int64_t>(sentence.truncated.size())});
      for (const auto* hypotheses : {&sentence.finished, &sentence.truncated})
        for (const Hypothesis& hypothesis : *hypotheses) {
          integers_.push_back(hypothesis.tokens.size());
          integers_.insert(integers_.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
          result_scores_.push_back(hypothesis.score);
        }
    }
  }

  struct Candidate {
    float score;
    long parent;  // index of the hypothesis that is continued
    int64_t token;
  };
  struct Step {
    int32_t parent, token;  // row of the hypothesis that was continued, and the token
  };

  const Model& model_;
  const SearchArgs args_;
  const long width_;
  long n_rows_, element_size_, max_limit_ = 0, max_source_ = 0, capacity_ = 0;
  long length_ = 0;  // number of tokens generated so far
  std::vector<Sentence> active_, done_;
  std::vector<Cache> source_, target_;
  std::vector<std::vector<Step>> history_;  // of each step, for each row
  std::vector<float> scores_;               // of each row, as are the tokens
  std::vector<int64_t> tokens_;
  std::vector<int32_t> table_, old_table_;  // rows that hold the positions of each row

  // Of one step, for each active sentence or hypothesis.
  std::vector<int32_t> rows_, slots_;
  std::vector<int64_t> positions_, last_source_, input_tokens_, top_tokens_;
  std::vector<float, CacheLineAllocator<float>> hidden_[2];
  std::vector<float> top_log_p_;
  std::vector<std::vector<int64_t>> repetitions_;
  std::vector<Candidate> candidates_, selected_;

  std::vector<int64_t> integers_;
  std::vector<float> result_scores_;
};

// Calls `work`; returns its result, or -1 if there is not enough memory.
template <typename Work>
int catch_out_of_memory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

}  // namespace
}  // namespace transformer

extern "C" long transformer_size_of_model() { return sizeof(transformer::Model); }
extern "C" long transformer_size_of_search() { return sizeof(transformer::SearchArgs); }

// Encodes the sources and writes a new search to `search`. The model and all arrays must live as long as it. Returns 0;
// 1 if a token is out of range; -1 if there is not enough memory.
extern "C" int transformer_beam_search_begin(const transformer::Model* model, const transformer::SearchArgs* args,
                                             int threads, void** search) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    auto created = std::make_unique<BeamSearch>(*model, *args);
    if (!created->begin(threads)) return 1;
    *search = created.release();
    return 0;
  });
}

// Runs until a sentence is done, at most `max_steps` steps. `results` is valid until the next call. Returns the same as
// `transformer_beam_search_begin`.
extern "C" int transformer_beam_search_advance(void* search, long max_steps, int threads,
                                               transformer::SearchResults* results) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    auto* beam_search = static_cast<BeamSearch*>(search);
    const bool is_valid = beam_search->advance(max_steps, threads);
    *results = beam_search->results();
    return is_valid ? 0 : 1;
  });
}

extern "C" void transformer_beam_search_end(void* search) { delete static_cast<transformer::BeamSearch*>(search); }
