"""Translates and trains in a process of multiprocessing, after this process has done both.

Arguments: start method, number of torch's threads, model folder, recipe, folder for runs. Prints JSON. The translator
is made at the top level, so that processes inherit it with 'fork', and make it again with the other methods.
"""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

import transformer
from transformer.run.recipe import load_recipe

METHOD, THREADS, MODEL, RECIPE, RUNS = sys.argv[1:]
SHORT, LONG = ["one two three", "four"], ["five six seven"] * 1500
"""Texts to translate in one process, and in worker processes."""
torch.set_num_threads(int(THREADS))
translator = transformer.load(MODEL, workers=int(THREADS))


def translate(lines: list[str]) -> list[str]:
    return [translation.text for translation in translator.translations(lines)]


def translate_anew(lines: list[str]) -> list[str]:
    return [translation.text for translation in transformer.load(MODEL).translations(lines)]


def train(name: str, threads: int | None = None) -> str:
    recipe = load_recipe(Path(RECIPE), [f"training.threads={threads}"] if threads else [])
    try:
        result = transformer.train(recipe, Path(RUNS) / name, quiet=True)
    except transformer.TransformerError as error:
        return str(error)
    return f"trained {result.progress.step} steps"


if __name__ == "__main__":
    expected = translate(SHORT), translate(LONG)
    outcome = {"parent": train("parent")}
    context = multiprocessing.get_context(METHOD)
    with context.Pool(2) as pool:  # daemons, which cannot have worker processes
        outcome["pool"] = pool.map(translate, [SHORT, LONG]) == [*expected]
    with ProcessPoolExecutor(1, context) as executor:
        outcome["executor"] = list(executor.map(translate, [SHORT, LONG])) == [*expected]
        outcome["anew"] = executor.submit(translate_anew, SHORT).result() == expected[0]
        outcome["child"] = executor.submit(train, "child").result()
        outcome["two threads"] = executor.submit(train, "two", 2).result()
    print(json.dumps(outcome))
