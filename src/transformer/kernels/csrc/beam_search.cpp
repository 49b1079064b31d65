// Greedy and beam search for a batch of sentences, without a return to Python between steps. The same algorithm, step
// by step, is `transformer/decoding/search.py`, which also knows processors of logits, constraints and sampling.
#include "beam_search.h"
#include "decoder_state.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

namespace transformer {
namespace {

constexpr float NEG_INFINITY = -std::numeric_limits<float>::infinity();

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

class BeamSearch {
 public:
  BeamSearch(const Model& model, const SearchArgs& args)
      : model_(model),
        args_(args),
        width_(args.beam),
        n_rows_(args.n_sentences * args.beam),
        d_model_(model.decoder->d_model),
        state_(*model.decoder, args.n_sentences, args.beam) {
    for (long slot = 0; slot < args.n_sentences; ++slot) {
      active_.push_back(Sentence{slot});
      for (long w = 0; w < width_; ++w) {
        scores_.push_back(w ? NEG_INFINITY : 0.0f);  // a sentence begins with one hypothesis, the empty one
        tokens_.push_back(args.start_tokens[slot]);
      }
    }
  }

  // Encodes the sources. Returns false if a token is out of range.
  bool begin(int threads) {
    const PackedSequences source{args_.source, args_.lengths, args_.n_sentences};
    const long n_tokens = std::accumulate(args_.lengths, args_.lengths + args_.n_sentences, 0L);
    std::vector<float, CacheLineAllocator<float>> x(n_tokens * d_model_);
    if (!embed_sentences(model_.source, source, d_model_, x.data(), threads)) return false;
    if (model_.encoder) encode(*model_.encoder, args_.lengths, args_.n_sentences, x.data(), threads);
    state_.begin(x.data(), args_.lengths, threads);
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
  // Computes the k best tokens after each active hypothesis. Returns false if a token is out of range.
  bool compute_top_k(long k, int threads) {
    slots_.clear(), input_tokens_.clear();
    for (const Sentence& sentence : active_) {
      slots_.push_back(sentence.slot);
      const auto first = tokens_.begin() + sentence.slot * width_;
      input_tokens_.insert(input_tokens_.end(), first, first + width_);
    }
    const long rows = input_tokens_.size();
    embedded_.resize(rows * d_model_);
    if (!embed_tokens(model_.target, input_tokens_.data(), rows, d_model_, embedded_.data(), threads)) return false;
    for (size_t i = 0; model_.target.positions && i < slots_.size(); ++i)
      add_position(model_.target.positions + state_.length(slots_[i]) * d_model_, width_, d_model_,
                   embedded_.data() + i * width_ * d_model_);
    const float* x = state_.step(slots_.data(), slots_.size(), embedded_.data(), threads);
    top_log_p_.resize(rows * k), top_tokens_.resize(rows * k);
    transformer_packed_linear_topk(
        model_.projection, x, rows, k, length_ < args_.min_tokens ? args_.forbidden_early : args_.forbidden,
        top_log_p_.data(), top_tokens_.data(), threads_for(rows * d_model_ * model_.projection->columns, threads));
    return true;
  }

  bool is_end(int64_t token) const {
    return std::find(args_.ends, args_.ends + args_.n_ends, token) != args_.ends + args_.n_ends;
  }

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
    parents_.resize(width_), new_scores_.resize(width_);
    for (long w = 0; w < width_; ++w) {
      const Candidate missing{NEG_INFINITY, w, tokens_[row + w]};
      const Candidate& candidate = w < static_cast<long>(selected_.size()) ? selected_[w] : missing;
      parents_[w] = candidate.parent;
      history_.back()[row + w] = {static_cast<int32_t>(row + candidate.parent), static_cast<int32_t>(candidate.token)};
      new_scores_[w] = candidate.score;
    }
    for (long w = 0; w < width_; ++w) {
      scores_[row + w] = new_scores_[w];
      tokens_[row + w] = history_.back()[row + w].token;
    }
    state_.reorder(row / width_, parents_.data());
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
  const long width_, n_rows_, d_model_;
  DecoderState state_;
  long length_ = 0;  // number of tokens generated so far
  std::vector<Sentence> active_, done_;
  std::vector<std::vector<Step>> history_;  // of each step, for each row of the caches
  std::vector<float> scores_;               // of each row, as are the tokens
  std::vector<int64_t> tokens_;

  // Of one step, for each active sentence or hypothesis.
  std::vector<int32_t> slots_, parents_;
  std::vector<int64_t> input_tokens_, top_tokens_;
  std::vector<float, CacheLineAllocator<float>> embedded_;
  std::vector<float> top_log_p_, new_scores_;
  std::vector<std::vector<int64_t>> repetitions_;
  std::vector<Candidate> candidates_, selected_;

  std::vector<int64_t> integers_;
  std::vector<float> result_scores_;
};

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
