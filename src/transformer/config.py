"""Base class of every configuration: immutable, strict about unknown keys, convertible to and from JSON."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Immutable values that are validated once, when they enter the program; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
