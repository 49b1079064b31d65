"""The base of every configuration: frozen, closed to unknown keys, equal to its JSON."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen set of values, validated once where it enters the program; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
