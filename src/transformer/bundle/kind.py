"""The kind of a model, read from its small files."""

import json
from pathlib import Path

from transformer.bundle.hub_cache import find_model
from transformer.errors import TransformerError
from transformer.models import family, family_names
from transformer.storage.checkpoint_paths import resolve_model
from transformer.storage.verified_folder import MANIFEST


def model_kind(path: Path) -> str | None:
    """Returns the kind of a model, see `Family.kind`, from its small files alone.

    Returns None if they do not suffice, e.g. because the model does not exist; loading it reports what is wrong.
    """
    try:
        folder = resolve_model(find_model(path))
        if (folder / MANIFEST).exists():
            return family(str(json.loads((folder / MANIFEST).read_bytes())["family"])).kind
        model_type = json.loads((folder / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, LookupError, TypeError, TransformerError):
        return None
    return next((family(name).kind for name in family_names() if model_type in family(name).published_types()), None)
