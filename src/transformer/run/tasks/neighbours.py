"""Text embeddings, trained on pairs of texts with the same meaning."""

from typing import Final

from torch import nn

from transformer.bundle import Bundle
from transformer.data.labelled import EncodedTexts, NeighbourDataset
from transformer.models.kinds import EncoderConfig
from transformer.run.defaults import CompleteRecipe
from transformer.run.task import TaskData, set_vocab_sizes
from transformer.run.tasks.labels import RowTask
from transformer.training.config import TrainingSettings
from transformer.training.objectives.classification import ContrastiveObjective

COLUMNS: Final = ("first", "second")


class NeighbourTask(RowTask):
    """Trains embeddings in which texts with the same meaning are near each other."""

    name = "embeddings"
    column_names = COLUMNS

    def prepare(self, recipe: CompleteRecipe[EncoderConfig], base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`."""
        rows, held_out = self.split_rows()
        tokenizers = self.tokenizers(recipe.recipe.tokenizer, base_bundle, [text for row in rows for text in row])
        config = set_vocab_sizes(recipe.model, tokenizers, base_bundle=base_bundle)
        is_pooled = config.embedding == "pooled"
        config = config.updated(labels=(), masked=False, next_sentence=False, pooler=is_pooled)
        max_tokens = config.max_text_tokens
        self._progress("encoding the texts", 0, None)
        splits = [
            [EncodedTexts([row[side] for row in split], tokenizers.source, max_tokens) for side in range(2)]
            for split in (rows, held_out)
        ]
        n_truncated = [sum(texts.n_truncated for texts in split) for split in splits]
        table = [
            ("pairs", f"{len(rows):,} to train on, {len(held_out):,} held out"),
            ("truncated", f"texts to {max_tokens} tokens: {n_truncated[0]:,} and {n_truncated[1]:,}"),
            ("vocabulary", str(tokenizers)),
        ]
        facts = {"pairs": len(rows), "held_out": len(held_out), "cut": n_truncated[0]}
        train, validation = (NeighbourDataset(*split) for split in splits)
        return TaskData(
            config=config, text=tokenizers, objective=self.objective, train=train, validation=validation, rows=table,
            facts=facts, notes=self.notes(), loss_unit="texts",
            fallback_shares={name: texts.fallback_share for name, texts in zip(COLUMNS, splits[0], strict=True)},
        )  # fmt: skip

    def objective(self, model: nn.Module, settings: TrainingSettings) -> nn.Module:
        """Returns the objective of the training, see `TaskData`."""
        return ContrastiveObjective(model, activation_checkpointing=settings.activation_checkpointing)
