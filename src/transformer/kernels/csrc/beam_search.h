// Arguments and results of a search.
#pragma once
#include <cstdint>

namespace transformer {

// Fields of `SearchArgs` in beam_search.py, in its order.
struct SearchArgs {
  const int64_t* source;           // tokens of all sentences, one after the other
  const int64_t* lengths;          // of the sources
  const int64_t* limits;           // largest number of tokens of each sentence, at least 1
  const int64_t* start_tokens;     // that the decoder reads first
  const bool* reserves_end;        // whether the last token within the limit may only be an end
  const bool* forbidden;           // tokens that are never generated
  const bool* forbidden_early;     // those, and the ends, for the first `min_tokens` steps
  const int64_t* ends;             // tokens that end a sentence
  const double* length_penalties;  // of each length up to the largest limit
  long n_sentences, n_ends, beam, min_tokens;
  long no_repeat_ngram;  // length of n-grams that are not repeated; or 0
  int stops_early;       // as soon as as many hypotheses as the beam is wide have ended
};

// Fields of `SearchResults` in beam_search.py, in its order.
struct SearchResults {
  const int64_t* integers;  // for each sentence that is done, see `collect_results`
  const float* scores;      // of each of its hypotheses
  long n_integers, n_done, n_active;
};

}  // namespace transformer
