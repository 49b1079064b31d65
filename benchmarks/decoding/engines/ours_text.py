"""Translator of this project, text to text, for `benchmarks/decoding/text_files.py`."""

from pathlib import Path
from typing import Any

import torch
from decoder import Engine, run

from transformer import load
from transformer.decoding import Search, length_normalization
from transformer.pipelines.translation.translator import Translator
from transformer.runtime.allocator import freeze_gc
from transformer.text.lines import read_lines


class Ours(Engine):
    """The same as `transformer translate`, with its default batch size."""

    def __init__(self, order: dict[str, Any]) -> None:
        torch.set_num_threads(order["workers"] * order["threads"])
        self.order = order
        self.translators: dict[int, Translator] = {}

    def translate_file(self, case: dict[str, Any]) -> None:
        """Reads, encodes, translates, decodes and writes."""
        if case["beam"] not in self.translators:
            search = Search(
                beam=case["beam"], length_penalty=length_normalization(1.0), max_tokens=case["limit"],
                retry_degenerate=False, allow_unknown=True,
            )  # fmt: skip
            self.translators[case["beam"]] = load(
                self.order["model"], search=search, precision=self.order["precision"], workers=self.order["workers"],
                max_source_tokens=case["longest"],
            )  # fmt: skip
            freeze_gc()  # as the command does
        lines = list(read_lines(Path(case["input"])))
        requests = [[line] for line in lines] if case["each"] else [lines]
        results = [result for request in requests for result in self.translators[case["beam"]].translations(request)]
        Path(case["output"]).write_bytes("".join(f"{result.text}\n" for result in results).encode())


if __name__ == "__main__":
    run(Ours, ("torch",))
