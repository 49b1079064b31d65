// Description of models for kernels that compute whole stacks of layers instead of single layers.
#pragma once
#include "kernels.h"

#include <functional>
#include <new>

namespace transformer {

// Fields of `EmbeddingArgs` in compiled_model.py, in its order.
struct Embedding {
  const PackedMatrix* tokens;
  const float* positions;  // one row per position; or null
  float scale;             // factor of the rows of `tokens`
};

// Fields of `EncoderArgs` in compiled_model.py, in its order.
struct Encoder {
  const Layer* layers;
  Norm norm;  // after the last layer; `alpha` is null without one
  long n_layers, d_model, heads, key_heads, head_width;
  int is_causal;   // positions attend to themselves and those before
  int is_rounded;  // weights are bfloat16 or int8, so that attention may be computed in bfloat16
};

// Fields of `DecoderArgs` in compiled_model.py, in its order.
struct Decoder {
  const Layer* layers;
  const PackedMatrix* const* source_keys_values;  // of each layer: keys and values of cross-attention; or null
  const Encoder* prompt_encoder;  // the same layers over whole prompts, without cross-attention; or null
  Norm norm;                      // after the last layer; `alpha` is null without one
  long n_layers, d_model, heads, key_heads, head_width;
  int is_rounded;  // keys and values are bfloat16
};

// Fields of `ModelArgs` in compiled_model.py, in its order.
struct Model {
  Embedding source, target;  // the same for a model without an encoder
  const Encoder* encoder;    // null for a decoder-only model
  const Decoder* decoder;
  const PackedMatrix* projection;  // to the logits
};

// Sentences of different lengths, one after the other, without padding.
struct PackedSequences {
  const int64_t* tokens;
  const int64_t* lengths;
  long count;
};

// Receives the queries, keys and values of whole sentences in a layer: one row per token with all heads of each.
using OnProjections =
    std::function<void(long layer, long first_sentence, long count, const void* projections, bool is_bf16)>;

// Looks up the scaled embeddings of n tokens. Returns false if a token is out of range.
bool embed_tokens(const Embedding& embedding, const int64_t* tokens, long n, long d_model, float* x, int threads);

// Adds the vector of a position to each row.
void add_position(const float* position, long rows, long d_model, float* x);

// Embeds whole sentences, each from position 0 on. Returns false if a token is out of range.
bool embed_sentences(const Embedding& embedding, const PackedSequences& sentences, long d_model, float* x, int threads);

// Replaces the embedded tokens of sentences, one row per token, by the output of the encoder.
void encode(const Encoder& encoder, const int64_t* lengths, long count, float* x, int threads,
            const OnProjections& on_projections = nullptr);

// Calls `work`; returns its result, or -1 if there is not enough memory.
template <typename Work>
int catch_out_of_memory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

}  // namespace transformer
