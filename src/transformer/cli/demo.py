"""`transformer demo`: translates with the installed model, then trains a small one on a built-in corpus."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.paths import folder_option
from transformer.cli.progress import spinner
from transformer.cli.verbosity import say
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.pipelines.translation.translator import Translator
    from transformer.run.recipe import Recipe

REORDERED = ("Today the woman calls the old doctor.", "Heute ruft die Frau den alten Arzt an.")
MODEL = "en-de"
SENTENCES = (
    "Where is the station?",
    "I don't think it will rain tomorrow.",
    "She has been learning German for two years.",
)
"""Everyday sentences for the model that comes with the program."""
N_SHOWN = 8
TREES = {"train": 12000, "validation": 500, "test": 500}
TREE_SEARCH = Search(max_tokens=300, retry_degenerate=False)
"""Trees are longer than sentences, and their brackets look like the repetitions of a degenerate translation."""
Pairs = Sequence[tuple[str, str]]


def demo(
    folder: Annotated[Path, folder_option("folder for the corpus, the model and the figures")] = Path(
        "translator-demo"
    ),
    parsing: Annotated[
        bool, typer.Option("--parsing", help="learn to parse English sentences that a small grammar generates")
    ] = False,
) -> None:
    """Translate with the model that comes with the program, then train a small one and translate with that.

    The small one learns an English-German phrasebook, and translates new combinations of its words. Shows translations
    of held-out sentences, the share of exact matches, a nearest-neighbour baseline, and a figure of the attention,
    which shows how words are reordered. Takes a few minutes on two cores.

    With --parsing, the small one learns instead to write the trees of sentences, and is scored by labelled brackets.

    Example: transformer demo --folder translator-demo
    """
    if parsing:
        _parse(folder)
        return
    from transformer.demo import load_phrasebook, nearest_neighbour

    with spinner("loading PyTorch"):
        from transformer.pipelines.auto import load
        from transformer.run.recipe import parse_recipe

    _translate_everyday_sentences()
    phrasebook = load_phrasebook()
    typer.echo(f"phrasebook: {len(phrasebook.train):,} training pairs, {len(phrasebook.test):,} held out; examples:")
    for english, german in phrasebook.train[:3]:
        typer.echo(f"  {english}  ->  {german}")
    corpus = {"train": phrasebook.train, "validation": phrasebook.validation, "test": phrasebook.test}
    for name, pairs in corpus.items():
        _write(folder / "corpus" / name, pairs)
    translator = load(_train(parse_recipe(demo_recipe(folder / "corpus")), folder / "run"))
    sources, references = zip(*phrasebook.test, strict=True)
    with spinner("translating the held-out sentences"):
        translations = [translation.text for translation in translator.translations(sources)]
    _show(sources, translations, references)
    with spinner("looking up nearest neighbours"):
        baseline = _exact(nearest_neighbour(phrasebook.train, sources), references)
    typer.echo(f"nearest neighbour, for comparison: {baseline:.1f} %")
    typer.echo(f"exact match: {_exact(translations, references):.1f} %")
    with spinner("drawing"):
        figures = _draw(translator, folder)
    for figure in figures:
        typer.echo(
            f"figure: {figure}" if figure else "no figure: install matplotlib to draw it (pip install matplotlib)"
        )
    typer.echo(f'try: echo "{REORDERED[0]}" | transformer translate {folder / "run"}')


def _train(recipe: "Recipe", run: Path) -> Path:
    """Trains the model of a recipe and returns its folder; ends the program if training was stopped."""
    from transformer.run.train import train

    result = train(recipe, run)
    if result.interruption.requested:
        say(f"stopped at step {result.progress.step} and saved; the same command resumes")
        raise typer.Exit(result.interruption.exit_code)
    return result.model


def _parse(folder: Path) -> None:
    """Trains a parser on trees of a small grammar, and scores it on others."""
    from transformer.demo.grammar import treebank
    from transformer.storage.atomic import replace_text
    from transformer.text.trees import bracketed, read_trees

    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    trees = treebank(TREES)
    for name, lines in trees.items():
        replace_text(corpus / f"{name}.trees", "".join(f"{tree}\n" for tree in lines))
    typer.echo(f"treebank: {len(trees['train']):,} trees to train on, {len(trees['test']):,} held out; an example:")
    typer.echo(f"  {trees['train'][0]}")
    with spinner("loading PyTorch"):
        from transformer.evaluation.scores import TREE_METRICS, corpus_scores
        from transformer.pipelines.auto import load

    parser = load(_train(parsing_recipe(corpus), folder / "run"), split="none", copy=False)
    sentences, references = zip(*read_trees(trees["test"], "test"), strict=True)
    with spinner("parsing the held-out sentences"):
        results = parser.translations(sentences, search=TREE_SEARCH)
    parses = [result.text for result in results]
    typer.echo(f"held-out sentence: {sentences[0]}\n  -> {bracketed(sentences[0], parses[0]) or parses[0]}")
    brackets, complete = corpus_scores(parses, references, metrics=TREE_METRICS)
    typer.echo(f"F1 of labelled brackets: {brackets.value:.1f} %; trees without an error: {complete.value:.1f} %")
    typer.echo(f'try: transformer translate {folder / "run"} --no-guard --split none --max-tokens 300 "{sentences[1]}"')


def parsing_recipe(corpus: Path) -> "Recipe":
    """Returns the recipe `parsing-demo` for a folder of trees."""
    from transformer.run.recipe import load_recipe

    validation = str(corpus / "validation.trees")
    data = {
        "pairs": str(corpus / "train.trees"), "validation_source": validation, "validation_target": validation
    }  # fmt: skip
    return load_recipe(Path("parsing-demo"), values={"data": data})


def _translate_everyday_sentences() -> None:
    """Shows translations by the installed model, if there is one."""
    from transformer.bundle.installed import installed_models
    from transformer.pipelines.auto import load

    model = installed_models().get(MODEL)
    if model is None:
        return
    typer.echo(f"{MODEL}, a model that comes with the program, translates:")
    for source, translation in zip(SENTENCES, load(model.folder).translations(SENTENCES), strict=True):
        typer.echo(f"  {source}\n    -> {translation.text}")
    typer.echo(f'try: transformer translate {MODEL} "Your own sentence."\n')
    typer.echo("now a small model learns a phrasebook from nothing")


def demo_recipe(corpus: Path) -> dict[str, Mapping[str, object]]:
    """Returns the recipe of the demo: a small model, trained in few steps."""
    files = {
        f"{prefix}{side}": str(corpus / f"{name}.{language}")
        for prefix, name in (("", "train"), ("validation_", "validation"))
        for side, language in (("source", "en"), ("target", "de"))
    }
    return {
        "data": files,
        "tokenizer": {"vocab_size": 1500},
        "model": {"preset": "mini", "d_ff": 256, "dropout": 0.0},
        "training": {
            "max_steps": 1000,
            "batch_tokens": 1536,
            "learning_rate": 0.004,
            "warmup_steps": 150,
            "schedule": "cosine",
            "validate_every": 500,
            "save_every": 500,
            "log_every": 100,
        },
    }


def _write(stem: Path, pairs: Pairs) -> None:
    from transformer.storage.atomic import replace_text

    stem.parent.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        replace_text(stem.with_name(f"{stem.name}.{language}"), text)


def _show(sources: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> None:
    typer.echo("held-out sentences:")
    rows = list(zip(sources, translations, references, strict=True))
    for source, translation, reference in rows[:N_SHOWN]:
        verdict = "" if translation == reference else f"   (should be: {reference})"
        typer.echo(f"  {source}\n    -> {translation}{verdict}")


def _exact(translations: Sequence[str], references: Sequence[str]) -> float:
    return 100 * sum(map(str.__eq__, translations, references)) / len(references)


def _draw(translator: "Translator", folder: Path) -> list[Path | None]:
    """Draws the attention and the training curve; None for each without matplotlib."""
    from transformer.pipelines.translation.attention_maps import cross_attention
    from transformer.reporting.figures import attention_picture, training_curve

    source = REORDERED[0]
    attention = cross_attention(translator, source, translator.translations([source])[0].text)
    return [attention_picture(attention, folder / "attention.png"), training_curve(folder / "run")]
