"""Keys and values of a decoder, and one step of it, in the memory of a kernel."""

import ctypes
import weakref
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.kernels.compiled_model import CompiledDecoder, check_memory
from transformer.kernels.library import compiled_library


class CompiledDecoderState:
    """The keys and values of sentences, each of which has a slot with as many hypotheses.

    Hypotheses that continue the same one share its positions, which never move: a table says which hypothesis holds
    each position. TensorRT-LLM calls this table `cache_indirection`.

    Args:
        decoder: The decoder.
        handle: State that a kernel has created, which this object owns.
        beam: Number of hypotheses per slot.
    """

    def __init__(self, decoder: CompiledDecoder, handle: ctypes.c_void_p, beam: int) -> None:
        self.decoder, self.beam, self._handle = decoder, beam, handle
        weakref.finalize(self, compiled_library().transformer_decoder_end, handle)

    @classmethod
    def begin(
        cls, decoder: CompiledDecoder, source: Float[Tensor, "R D"], lengths: Int[Tensor, " N"]
    ) -> "CompiledDecoderState":
        """Reads sources, with one hypothesis each.

        Args:
            decoder: The decoder.
            source: Outputs of the encoder, or embedded prompts of a decoder-only model: one row per token, one sentence
                after the other without padding.
            lengths: Number of tokens of each sentence.

        Raises:
            MemoryError: There is not enough memory.
        """
        handle, source, lengths = ctypes.c_void_p(), source.float().contiguous(), lengths.long().contiguous()
        check_memory(
            compiled_library().transformer_decoder_begin(
                ctypes.byref(decoder.args), source.data_ptr(), lengths.data_ptr(), len(lengths),
                torch.get_num_threads(), ctypes.byref(handle),
            )
        )  # fmt: skip
        return cls(decoder, handle, 1)

    def step(self, slots: Int[Tensor, " N"], x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Appends a token to each hypothesis of some slots, and returns the output of the decoder.

        Args:
            slots: Slots of the step, int32.
            x: Embedded token of each hypothesis.

        Raises:
            MemoryError: There is not enough memory.
        """
        x = x.float().contiguous()
        out = torch.empty(x.shape, dtype=torch.float32, device="cpu")
        check_memory(
            compiled_library().transformer_decoder_step(
                self._handle, slots.data_ptr(), len(slots), x.data_ptr(), out.data_ptr(), torch.get_num_threads()
            )
        )
        return out

    def reorder(self, slots: Int[Tensor, " N"], hypotheses: Int[Tensor, "N W"]) -> None:
        """Replaces the hypotheses of some slots by continuations: hypothesis w continues `hypotheses[:, w]`.

        Raises:
            MemoryError: There is not enough memory.
        """
        hypotheses = hypotheses.int().contiguous()
        check_memory(
            compiled_library().transformer_decoder_reorder(
                self._handle, slots.data_ptr(), len(slots), hypotheses.data_ptr()
            )
        )

    @staticmethod
    def select(
        states: Sequence["CompiledDecoderState"], slots: Int[Tensor, " N"], hypotheses: Int[Tensor, "N W"]
    ) -> "CompiledDecoderState":
        """Returns a new state, whose slots continue hypotheses of other states of the same decoder.

        Args:
            states: State that each new slot continues; at least one.
            slots: Its slot in that state, int32.
            hypotheses: Hypothesis in that slot that each new hypothesis continues.

        Raises:
            MemoryError: There is not enough memory.
        """
        handle, hypotheses = ctypes.c_void_p(), hypotheses.int().contiguous()
        handles = (ctypes.c_void_p * len(states))(*(state._handle.value for state in states))
        check_memory(
            compiled_library().transformer_decoder_select(
                handles, slots.data_ptr(), hypotheses.data_ptr(), len(states), hypotheses.size(1), ctypes.byref(handle)
            )
        )
        return CompiledDecoderState(states[0].decoder, handle, hypotheses.size(1))
