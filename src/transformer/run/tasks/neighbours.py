"""Text embeddings, trained on pairs of texts with the same meaning."""

from typing import Final

from torch import nn

from transformer.bundle import Bundle
from transformer.data.labelled import EncodedTexts, NeighbourDataset, max_text_tokens
from transformer.run.recipe import Recipe
from transformer.run.task import TaskData, set_vocab_sizes
from transformer.run.tasks.labels import RowTask
from transformer.training.config import TrainingConfig
from transformer.training.objectives.classification import ContrastiveObjective

COLUMNS: Final = ("first", "second")


class NeighbourTask(RowTask):
    """Trains embeddings in which texts with the same meaning are near each other."""

    column_names = COLUMNS

    def prepare(self, recipe: Recipe, base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`."""
        assert recipe.model is not None
        rows, held_out = self.split_rows()
        tokenizers = self.tokenizers(recipe, base_bundle, [text for row in rows for text in row])
        config = set_vocab_sizes(recipe.model, tokenizers, base_bundle=base_bundle)
        heads = {"labels": (), "masked": False, "next_sentence": False}
        heads["pooler"] = config.model_dump()["embedding"] == "pooled"
        config = type(config).model_validate({**config.model_dump(), **heads})
        max_tokens = max_text_tokens(config.model_dump())
        self._progress("encoding the texts", 0, None)
        splits = [
            [EncodedTexts([row[side] for row in split], tokenizers.source, max_tokens) for side in range(2)]
            for split in (rows, held_out)
        ]
        n_truncated = [sum(texts.n_truncated for texts in split) for split in splits]
        plan = [
            ("pairs", f"{len(rows):,} to train on, {len(held_out):,} held out"),
            ("truncated", f"texts to {max_tokens} tokens: {n_truncated[0]:,} and {n_truncated[1]:,}"),
            ("vocabulary", str(tokenizers)),
        ]
        facts = {"pairs": len(rows), "held_out": len(held_out), "cut": n_truncated[0]}
        train, validation = (NeighbourDataset(*split) for split in splits)
        shares = {name: texts.fallback_share for name, texts in zip(COLUMNS, splits[0], strict=True)}
        return TaskData(config, tokenizers, train, validation, plan, facts, self.notes(), fallback_shares=shares)

    def objective(self, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> nn.Module:
        """Implements `Task.objective`."""
        del task_data
        return ContrastiveObjective(model, activation_checkpointing=training.activation_checkpointing)
