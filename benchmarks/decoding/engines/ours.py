"""Search of this project with packed weights, for `benchmarks/decoding/throughput.py`."""

from typing import Any, get_args

import torch
from decoder import Engine, run
from safetensors.torch import load_file

from transformer import build_transformer
from transformer.decoding import (
    Request,
    Search,
    SharedModels,
    Shortlist,
    ShortlistModel,
    Workers,
    length_normalization,
    search_each,
)
from transformer.inference.cpu import pack
from transformer.interfaces import GenerativeModel
from transformer.kernels import unavailable_reason
from transformer.options.search import Average


class Ours(Engine):
    """Sorted by length, as `Translator` does."""

    def __init__(self, order: dict[str, Any]) -> None:
        torch.set_num_threads(order["workers"] * order["threads"])
        if unavailable_reason() is not None:
            raise RuntimeError(f"no compiled kernels: {unavailable_reason()}")
        sizes, self.workers = order["sizes"], order["workers"]
        model = build_transformer(
            sizes["vocabulary"], sizes["vocabulary"], sizes["positions"], sizes["positions"], d_model=sizes["d_model"],
            N=sizes["N"], h=sizes["h"], d_ff=sizes["d_ff"], norm_order=sizes["norm_order"], share_embeddings="all",
        )  # fmt: skip
        model.load_state_dict(load_file(order["weights"]))
        self.model: GenerativeModel = pack(model, order["precision"])
        if (name := order["engine"].split("-")[0]) != "ours":
            lists = load_file(order["lists"][name])
            shortlist = Shortlist(lists["always"].long(), lists["by_token"].long(), sizes["vocabulary"])
            self.model = ShortlistModel(model, shortlist)
        self.pool = Workers(SharedModels(dict.fromkeys(get_args(Average), self.model)), self.workers)

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
        search = Search(beam=beam, min_tokens=least, length_penalty=length_normalization(1.0), allow_unknown=True)
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        requests = [Request(sources[index], limit) for index in order]
        batch_tokens = case["batch"] * (1 if case["by_tokens"] else len(sources[order[0]]) * beam)
        if self.workers == 1:
            results = search_each(self.model, requests, search, batch_tokens=batch_tokens)
        else:
            results = self.pool.search_each(requests, search, batch_tokens)
        tokens: list[list[int]] = [[]] * len(sources)
        for place, hypotheses in results:
            tokens[order[place]] = list(hypotheses[0].tokens)
        return tokens


if __name__ == "__main__":
    run(Ours, ("torch",))
