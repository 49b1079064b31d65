"""Models that are installed as Python packages."""

import importlib.util
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

GROUP: Final = "transformer.models"
"""Group of the entry points: each names a model, and the package with the model's folder `bundle`."""
PROJECT_MODELS: Final = ("de-en", "en-de")
"""Models of this project, each a package in the folder `models` of the sources."""
SOURCES: Final = Path(__file__).parents[3] / "models"
"""Where the sources of the models are, if the program runs from a checkout."""


@dataclass(frozen=True)
class InstalledModel:
    """A model that is installed as a package.

    Attributes:
        name: Name by which commands find it.
        folder: Folder of the bundle.
        distribution: Name and version of the package.
        license: License of the weights, as the package states it.
    """

    name: str
    folder: Path
    distribution: str
    license: str


def installed_models() -> dict[str, InstalledModel]:
    """Returns the installed models by their names. No code of their packages is run."""
    models = filter(None, map(_model, entry_points(group=GROUP)))
    return {model.name: model for model in sorted(models, key=lambda model: model.name)}


def model_installation_hint(name: str) -> str:
    """Says how to get a model of this project: from the sources if they are here, and from a wheel otherwise."""
    if (SOURCES / name).is_dir():
        return f"run make install, or pip install {SOURCES / name}"
    wheel = f"transformer_model_{name.replace('-', '_')}-*.whl"
    return f"pip install {wheel}, a file that comes beside the program's own, or train a model: transformer demo"


def _model(entry: EntryPoint) -> InstalledModel | None:
    try:
        package = importlib.util.find_spec(entry.module)
    except (ImportError, ValueError):  # the package, or one that contains it, was removed by hand
        return None
    if package is None or not package.submodule_search_locations or entry.dist is None:
        return None
    folder = Path(package.submodule_search_locations[0]) / "bundle"
    license = str(entry.dist.metadata.json.get("license_expression", ""))
    return InstalledModel(entry.name, folder, f"{entry.dist.name} {entry.dist.version}", license)
