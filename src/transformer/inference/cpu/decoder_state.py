"""Incremental state of packed decoders."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.blocks.cache import IncrementalState, group_rows
from transformer.kernels import CompiledDecoderState


@dataclass
class PackedDecoderState(IncrementalState):
    """The decoding state of a packed model; its rows are hypotheses of sentences, `width` adjacent ones of each.

    Attributes:
        memory: Keys and values.
        slots: Slot of each sentence in `memory`, int32.
        positions: Position of the next token of each row.
        longest: The largest of `positions`.
        width: Number of rows per sentence.
    """

    memory: CompiledDecoderState
    slots: Int[Tensor, " N"]
    positions: Int[Tensor, " B"]
    longest: int
    width: int = 1

    def select(self, rows: Int[Tensor, " R"]) -> "PackedDecoderState":
        """Returns the selected rows, in the order of `rows`; sentences without a row are dropped.

        Nothing is copied if sentences keep their number of rows. This state must not be used afterwards.
        """
        sentences, width = group_rows(rows, self.width)
        slots, hypotheses = self.slots[sentences], (rows % self.width).view(-1, width)
        if width == self.width and len(slots.unique()) == len(slots):
            if width > 1:
                self.memory.reorder(slots, hypotheses)
            memory = self.memory
        else:
            memory = CompiledDecoderState.select([self.memory] * len(slots), slots, hypotheses)
            slots = torch.arange(len(slots), dtype=torch.int32)
        positions = self.positions[rows]
        return PackedDecoderState(memory, slots, positions, max(positions.tolist(), default=0), width)

    def join(self, other: "PackedDecoderState") -> "PackedDecoderState":
        """Returns the rows of both states, which may be at different positions.

        Raises:
            ValueError: The two states have different numbers of rows per sentence.
        """
        if self.width != other.width:
            raise ValueError(
                f"width={other.width} differs from the {self.width} rows per sentence of this state; search with one "
                "beam width"
            )
        slots = torch.cat([self.slots, other.slots])
        memories = [self.memory] * len(self.slots) + [other.memory] * len(other.slots)
        memory = CompiledDecoderState.select(memories, slots, torch.arange(self.width).repeat(len(slots), 1))
        return PackedDecoderState(
            memory,
            torch.arange(len(slots), dtype=torch.int32),
            torch.cat([self.positions, other.positions]),
            max(self.longest, other.longest),
            self.width,
        )
