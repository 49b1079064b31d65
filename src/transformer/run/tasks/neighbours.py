"""Pairs of texts that mean the same."""

from typing import Final

from torch import nn

from transformer.bundle import Bundle
from transformer.data.labelled import EncodedTexts, NeighbourDataset, max_text_tokens
from transformer.run.recipe import Recipe
from transformer.run.task import TaskData, sized
from transformer.run.tasks.labels import RowTask
from transformer.training.config import TrainingConfig
from transformer.training.objectives.classification import ContrastiveObjective

COLUMNS: Final = ("first", "second")


class NeighbourTask(RowTask):
    """Puts texts that mean the same near each other."""

    names = COLUMNS

    def prepare(self, recipe: Recipe, known: Bundle | None) -> TaskData:
        """As of `Task`."""
        assert recipe.model is not None
        rows, held_out = self.divided()
        tokenizers = self.tokenizers(recipe, known, [text for row in rows for text in row])
        config = sized(recipe.model, tokenizers, known=known)
        heads = {"labels": (), "masked": False, "next_sentence": False}
        heads["pooler"] = config.model_dump()["embedding"] == "pooled"
        config = type(config).model_validate({**config.model_dump(), **heads})
        most = max_text_tokens(config.model_dump())
        sides = [
            [EncodedTexts([row[side] for row in each], tokenizers.source, most) for side in range(2)]
            for each in (rows, held_out)
        ]
        cut = [sum(text.n_truncated for text in each) for each in sides]
        lines = [
            f"pairs: {len(rows):,} to learn from, {len(held_out):,} held out; texts longer than {most} tokens, "
            f"and cut: {cut[0]:,} and {cut[1]:,}"
        ]
        facts = {"pairs": len(rows), "held_out": len(held_out), "cut": cut[0]}
        train, validation = (NeighbourDataset(*each) for each in sides)
        return TaskData(config, tokenizers, train, validation, lines, facts)

    def objective(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> nn.Module:
        """As of `Task`."""
        del material
        return ContrastiveObjective(model, activation_checkpointing=training.activation_checkpointing)
