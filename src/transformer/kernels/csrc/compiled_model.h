// Description of an encoder-decoder model for kernels that compute whole models instead of single layers.
#pragma once
#include "kernels.h"

namespace transformer {

// Fields of `EmbeddingArgs` in compiled_model.py, in its order.
struct Embedding {
  const PackedMatrix* tokens;
  const float* positions;  // one row per position
  float scale;             // factor of the rows of `tokens`
};

// Fields of `EncoderLayerArgs` in compiled_model.py, in its order.
struct EncoderLayer {
  const PackedMatrix *queries_keys_values, *attention_out, *linear_1, *linear_2;
  Norm norms[2];
  int is_pre;
};

// Fields of `ModelArgs` in compiled_model.py, in its order.
struct Model {
  Embedding source, target;
  const EncoderLayer* encoder_layers;
  const DecoderLayer* decoder_layers;
  const PackedMatrix* const* source_keys_values;  // of each decoder layer: keys and values of cross-attention
  const PackedMatrix* projection;                 // to the logits
  Norm encoder_norm, decoder_norm;                // after the last layer; `alpha` is null without one
  long n_encoder_layers, n_decoder_layers, d_model;
  long encoder_heads, encoder_head_width, decoder_heads, decoder_head_width;
  int is_rounded;  // weights are bfloat16 or int8, so that keys and values are bfloat16
};

// Sentences of different lengths, one after the other, without padding.
struct PackedSequences {
  const int64_t* tokens;
  const int64_t* lengths;
  long count;
};

// Looks up the scaled embeddings of n tokens. Returns false if a token is out of range.
bool embed_tokens(const Embedding& embedding, const int64_t* tokens, long n, long d_model, float* x, int threads);

// Adds the vector of a position to each row.
void add_position(const float* position, long rows, long d_model, float* x);

// Computes the encoder's output, one row per token. Returns false if a token is out of range.
bool encode(const Model& model, const PackedSequences& source, float* x, int threads);

}  // namespace transformer
