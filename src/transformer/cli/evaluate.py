"""`transformer evaluate`: how good a model is on a test set."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.search import EnsembleOption, PrecisionOption, takes_search
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice, print_flags
from transformer.evaluation.scores import Tokenization

if TYPE_CHECKING:
    from transformer.decoding import Search


@takes_search
def evaluate(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="test source, plain or .gz")],
    reference: Annotated[Path, typer.Option(help="its reference translation, line by line")],
    output: Annotated[Path | None, typer.Option(help="also write the translations here")] = None,
    invalid_utf8: InvalidOption = "error",
    tokenize: Annotated[
        Tokenization, typer.Option(help="how BLEU splits words; none for text that is tokenised already")
    ] = "13a",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    ensemble: EnsembleOption = None,
    precision: PrecisionOption = "auto",
    *,
    search: "Search",
) -> None:
    """Translate a test set and score it with BLEU and chrF (sacrebleu, with signatures).

    Example: transformer evaluate runs/first --source test.en --reference test.de
    """
    from transformer.data.readers import read_pairs
    from transformer.evaluation.scores import corpus_scores
    from transformer.loading import load

    pairs = list(read_pairs(source, reference, invalid=invalid_choice(invalid_utf8)))
    if output is not None:
        output.write_bytes(b"")  # a path that cannot be written shows now, not after the work
    translator = load(model, search=search, ensemble=ensemble or (), precision=precision)
    started = time.perf_counter()
    translations = translator.translations([text for text, _ in pairs])
    seconds = time.perf_counter() - started
    texts = [translation.text for translation in translations]
    scores = corpus_scores(texts, [text for _, text in pairs], tokenize, warn=True)
    flagged = sum(bool(translation.flags) for translation in translations)
    for number, translation in enumerate(translations, start=1):
        print_flags(number, translation.flags)
    if output is not None:
        output.write_bytes("".join(f"{text}\n" for text in texts).encode())
    if as_json:
        figures = {score.name: {"score": score.value, "signature": score.signature} for score in scores}
        found = {"lines": len(pairs), "flagged": flagged, "seconds": seconds, "computed": translator.description}
        typer.echo(json.dumps({**found, "scores": figures}))
        return
    for score in scores:
        typer.echo(f"{score.name:<5} {score.value:5.2f}   {score.signature}")
    speed = f"{seconds:.1f} s ({len(pairs) / seconds:.1f} lines/s, {translator.description})"
    typer.echo(f"{len(pairs):,} lines, {flagged} flagged, {speed}")
