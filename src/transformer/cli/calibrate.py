"""`transformer calibrate`: fits the confidence in a model's translations to a held-out text."""

import json
from typing import Annotated

import typer

from transformer.cli.arguments import HeldOutOption, JsonObjectOption, ReferenceOption
from transformer.cli.files import check_files
from transformer.cli.progress import progress_bar
from transformer.cli.search import (
    DeviceOption,
    SourceLanguageOption,
    TargetLanguageOption,
    WorkersOption,
    languages_of,
)
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import takes_verbosity
from transformer.options.translation import Precision


@takes_verbosity
def calibrate(
    model: ModelArgument,
    source: HeldOutOption,
    reference: ReferenceOption,
    precision: Annotated[
        Precision, typer.Option(help="precision to calibrate; auto: that of transformer translate")
    ] = "auto",
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    seed: Annotated[int, typer.Option(help="seed of the spoiled copies of the text")] = 0,
    invalid_utf8: InvalidOption = "error",
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    as_json: JsonObjectOption = False,
) -> None:
    """Fit the confidence in translations, and the threshold below which they are unsure, to a held-out text.

    The text and spoiled copies of it are translated, greedily and with a beam. The result is stored in the model folder
    as calibration.json; no other file changes. Give lines like those that will be translated, at least 100.

    Example: transformer calibrate runs/first --source val.en --reference val.de
    """
    check_files([source, reference])
    from transformer.data.readers import read_all_pairs
    from transformer.pipelines.translation.calibration import N_PASSES, calibrate_folder

    pairs = list(read_all_pairs(source, reference, invalid=invalid_choice(invalid_utf8)))
    with progress_bar("lines", N_PASSES * len(pairs)) as done:
        calibration = calibrate_folder(
            model, pairs, seed, done, precision=precision, device=device, workers=workers,
            **languages_of(source_language, target_language),
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(calibration.to_dict()))
        return
    typer.echo(f"{'':<16}{'lines':>8}{'threshold':>11}{'AUC':>8}")
    for name, fitted in calibration.models.items():
        auc = "-" if fitted.auc is None else f"{fitted.auc:.3f}"
        typer.echo(f"{name:<16}{fitted.lines:>8,}{fitted.threshold:>11.3f}{auc:>8}")
