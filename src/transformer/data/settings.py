"""The recipe's `data` section."""

from typing import Literal

from pydantic import Field, model_validator

from transformer.settings import Settings


class DataSettings(Settings):
    """Where the text lies and which pairs are kept.

    Paths are relative to the working directory; `${NAME}` and `${NAME:-default}` in a recipe are replaced from the
    environment. Files may be plain or .gz.
    """

    source: str = Field(description="text to translate from, one sentence a line")
    target: str = Field(description="its translation, line by line")
    validation_source: str | None = Field(default=None, description="held-out source; if not set, pairs are drawn")
    validation_target: str | None = Field(default=None, description="held-out target")
    validation_pairs: int = Field(default=1000, ge=1, description="most sources held out; at most 5 %")
    test_source: str | None = Field(default=None, description="test source, to count overlap with the training text")
    max_length_ratio: float = Field(default=4.0, gt=1, description="drop if longer > ratio * shorter + 5")
    drop_duplicates: bool = Field(default=True, description="keep the first of equal pairs")
    invalid_utf8: Literal["error", "replace"] = Field(
        default="error", description="what to do with bytes that are not UTF-8"
    )

    @model_validator(mode="after")
    def _validation_has_both_sides(self) -> "DataSettings":
        if (self.validation_source is None) != (self.validation_target is None):
            raise ValueError("validation_source and validation_target go together; give both or neither")
        return self
