"""Search of this project on a GPU, for `benchmarks/decoding/throughput_gpu.py`."""

from typing import Any

import torch
from decoder import Engine
from safetensors.torch import load_file

from transformer import build_transformer
from transformer.decoding import GraphedSearcher, Request, Search, length_normalization

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


class Ours(Engine):
    """Sorted by length, as `Translator` does."""

    def __init__(self, order: dict[str, Any]) -> None:
        sizes = order["sizes"]
        model = build_transformer(
            sizes["vocabulary"], sizes["vocabulary"], sizes["positions"], sizes["positions"], d_model=sizes["d_model"],
            N=sizes["N"], h=sizes["h"], d_ff=sizes["d_ff"], norm_order=sizes["norm_order"], share_embeddings="all",
        )  # fmt: skip
        model.load_state_dict(load_file(order["weights"]))
        self.longest, self.device = sizes["positions"], torch.device(order["device"])
        self.model = model.eval().to(self.device, DTYPES[order["precision"]])
        if self.device.type == "cuda":
            from transformer.inference.gpu import fuse  # loads triton

            fuse(self.model)
        self.searchers: dict[Search, GraphedSearcher] = {}

    def prepare(self, sources: list[list[int]]) -> list[list[int]]:
        """Returns the token ids unchanged."""
        return sources

    def tokens_of(self, translated: list[list[int]]) -> list[list[int]]:
        """Returns the token ids unchanged."""
        return translated

    def translate(self, sources: list[list[int]], case: dict[str, Any]) -> list[list[int]]:
        """Implements `Engine.translate`."""
        beam, limit = case["beam"], case["limit"]
        least = limit if case["fixed"] else 0
        search = Search(beam=beam, min_tokens=least, length_penalty=PENALTY, allow_unknown=True)
        if search not in self.searchers:
            self.searchers[search] = GraphedSearcher(self.model, search, self.device, self.longest)
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        requests = [Request(sources[index], limit) for index in order]
        batch_tokens = case["batch"] * (1 if case["by_tokens"] else 16 * -(-len(sources[order[0]]) // 16) * beam)
        tokens: list[list[int]] = [[]] * len(sources)
        for place, hypotheses in self.searchers[search].search_each(requests, batch_tokens):
            tokens[order[place]] = list(hypotheses[0].tokens)
        return tokens


PENALTY = length_normalization(1.0)
