"""Ray Data: a class for `map_batches` that translates a column of a dataset, with a model loaded once an actor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np

from transformer.errors import ConfigError, DataError
from transformer.options.translation import MAX_INPUT_CHARACTERS

if TYPE_CHECKING:
    from transformer.pipelines.auto import LoadOptions

__all__ = ["Translate"]

Row = tuple[str | None, float | None, str | None]
"""Translation, confidence, and the reason why there is none."""
REFUSALS: Final = (DataError, TypeError, ValueError)
"""Errors by which one text is refused; all others, such as a lack of memory, end the job."""


class Translate:
    """Translates a column of texts: `dataset.map_batches(transformer.ray.Translate, fn_constructor_args=("en-de",))`.

    A batch is returned in the format in which it came, with all its columns and three more: the translation, its
    confidence, and for a row that could not be translated the reason. A text of several lines is translated line by
    line; its confidence is the lowest one.

    Args:
        model: Folder or name of the model, which every machine must have.
        text_column: Column of the texts.
        translation_column: New column of the translations; None in a row without one.
        confidence_column: New column of the confidences, between 0 and 1; None (NaN outside of Arrow) without one.
        error_column: New column of the reasons; None in a row that was translated.
        **options: Options of `transformer.load`, e.g. `search=Search(beam=4)` or `device="cuda"`. `workers` is 1
            unless given, because each actor is a process of its own.

    Raises:
        ConfigError: An option is invalid, two columns have one name, or the search samples, which depends on the
            number of each line.
        BundleError: The model cannot be read, or does not translate.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        text_column: str = "text",
        translation_column: str = "translation",
        confidence_column: str = "confidence",
        error_column: str = "error",
        **options: "Unpack[LoadOptions]",
    ) -> None:
        from transformer.pipelines.auto import load_translator
        from transformer.pipelines.translation.directions import check_target_language

        self._text_column = text_column
        self._new_columns = translation_column, confidence_column, error_column
        if len({text_column, *self._new_columns}) <= len(self._new_columns):
            raise ConfigError(f"{', '.join((text_column, *self._new_columns))}: two columns have one name; rename one")
        if "search" in options and options["search"].sampling:
            raise ConfigError(
                "samples depend on the number of each line, which Ray does not know; leave them out, or use --shards"
            )
        options.setdefault("workers", 1)
        self._translator = load_translator(model, **options)
        check_target_language(self._translator.config, self._translator.tokenizers)

    def __call__(self, batch: Any) -> Any:
        """Returns a batch with the columns of translations, confidences and reasons.

        Args:
            batch: NumPy arrays by column, a `pandas.DataFrame` or a `pyarrow.Table`.

        Raises:
            DataError: The batch has no column of texts, or has one of the new columns already.
        """
        from transformer.pipelines.translation.columns import arrow_values, read_text

        is_arrow = hasattr(batch, "column_names")
        self._check_columns([*(batch.column_names if is_arrow else batch)])
        column = batch[self._text_column]
        read = [read_text(value, MAX_INPUT_CHARACTERS) for value in (arrow_values(column) if is_arrow else column)]
        rows = self._translate([text for text, _ in read])
        for index, (_, reason) in enumerate(read):
            if reason:
                rows[index] = None, None, f"the text {reason}"
        columns = dict(zip(self._new_columns, ([row[i] for row in rows] for i in range(3)), strict=True))
        return _with_arrow_columns(batch, columns) if is_arrow else _with_columns(batch, columns)

    def _check_columns(self, names: Sequence[str]) -> None:
        """Checks that the column of the texts is there, and the new ones are not.

        Raises:
            DataError: This is not so.
        """
        if self._text_column not in names:
            raise DataError(
                f"the batch has no column {self._text_column!r}; choose another text_column from "
                f"{', '.join(map(str, names))}"
            )
        for name in self._new_columns:
            if name in names:
                raise DataError(f"there is a column {name!r} already; rename it, or give the new one another name")

    def _translate(self, texts: Sequence[str | None]) -> list[Row]:
        """Returns the row of each text; a text that is refused is found by halves, and does not affect the others."""
        from transformer.pipelines.translation.columns import translate_texts

        try:
            return [(text, confidence, None) for text, confidence in translate_texts(self._translator, texts)]
        except REFUSALS as error:
            if isinstance(error, ConfigError):
                raise
            if len(texts) == 1:
                return [(None, None, f"the text cannot be translated: {' '.join(str(error).split())}")]
        middle = len(texts) // 2
        return self._translate(texts[:middle]) + self._translate(texts[middle:])


def _with_arrow_columns(table: Any, columns: Mapping[str, list[Any]]) -> Any:
    """Returns an Arrow table with the columns of a result, whose types do not depend on their values."""
    import pyarrow as pa

    for (name, values), kind in zip(columns.items(), (pa.string(), pa.float64(), pa.string()), strict=True):
        table = table.append_column(name, pa.array(values, kind))
    return table


def _with_columns(batch: Any, columns: Mapping[str, list[Any]]) -> Any:
    """Returns a data frame or arrays by column with the columns of a result."""
    arrays = {
        name: np.array(values, dtype)
        for (name, values), dtype in zip(columns.items(), (object, float, object), strict=True)
    }
    return batch.assign(**arrays) if hasattr(batch, "assign") else {**batch, **arrays}
