"""Models on the Hugging Face Hub: what is known of a model, and the download of the files that it needs.

Requests go through `huggingface_hub`, so its environment variables apply: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from transformer.bundle.huggingface import CONFIG, INDEX, MAX_BYTES, PICKLED, SMALL_FILES, WEIGHTS
from transformer.errors import BundleError
from transformer.storage.atomic import FOLDER_ADVICE, NO_SPACE, named_errors

FORMATS: Final = ((WEIGHTS, INDEX), PICKLED)
"""Names of the weights in one file, and of the index of their shards, by preference."""
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/config\.json)?", re.ASCII)
"""Names of files that are downloaded: no other subfolders, no hidden files, no way out of the folder."""
SHARD: Final = re.compile(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)", re.ASCII)
REVISION: Final = re.compile(r"[0-9a-f]{40,64}", re.ASCII)
BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class PublishedFile:
    """A file of a published model.

    Attributes:
        name: Path in the repository.
        size: Size in bytes.
        sha256: SHA-256 of the content; None for small files, which git stores.
        git_id: Id of the content in git (SHA-1 of a header and the content); None for large files.
    """

    name: str
    size: int
    sha256: str | None
    git_id: str | None

    def check(self, path: Path) -> None:
        """Checks the content of a downloaded file.

        Raises:
            BundleError: It is not the published one; the file is removed.
        """
        digest = hashlib.sha256() if self.sha256 else hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
        if path.stat().st_size != self.size or digest.hexdigest() != (self.sha256 or self.git_id):
            path.unlink()
            raise BundleError(f"{self.name} was damaged during the download: its size or checksum differs; try again")


@dataclass(frozen=True)
class PublishedModel:
    """A model on the Hub, at one revision.

    Attributes:
        name: Name of the repository, e.g. `Helsinki-NLP/opus-mt-en-de`.
        host: Where it is, e.g. `huggingface.co`.
        revision: Commit that is downloaded.
        files: The files that are needed.
        task: Task that the authors state; empty if they state none.
        license: License that the authors state; likewise.
        languages: Languages that the authors state.
    """

    name: str
    host: str
    revision: str
    files: Sequence[PublishedFile]
    task: str
    license: str
    languages: Sequence[str]

    @property
    def size(self) -> int:
        """Total size of the needed files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def is_pickled(self) -> bool:
        """Whether the weights are pickled."""
        return any(file.name.endswith(".bin") for file in self.files)


def find_published(name: str, revision: str | None = None) -> PublishedModel:
    """Asks the Hub for a model.

    Args:
        name: Name of the repository.
        revision: Branch, tag or commit; the main branch if not given.

    Raises:
        BundleError: The model does not exist or may not be read, has no weights that are read, or the Hub cannot be
            reached.
    """
    from huggingface_hub import HfApi

    host = urlsplit(_endpoint()).netloc
    with _reported_errors(name, host):
        info: Any = HfApi(_endpoint()).model_info(name, revision=revision, files_metadata=True)
    commit = str(info.sha or "")
    if not REVISION.fullmatch(commit):
        raise BundleError(f"{host} names no revision of {name}; try again, or give another endpoint")
    listed = [_file(sibling) for sibling in info.siblings or ()]
    files = [file for file in listed if file is not None]
    chosen = needed_files({file.name for file in files})
    if CONFIG not in chosen or not any(file.name in chosen and _is_weights(file.name) for file in files):
        others = ", ".join(sorted(sibling.rfilename for sibling in info.siblings or ())[:8])
        raise BundleError(
            f"{name} has no {CONFIG} with {WEIGHTS} or {PICKLED[0]}, which alone are read; "
            f"it has {others or 'no files'}"
        )
    card: Any = info.card_data or {}
    return PublishedModel(
        name, host, commit, sorted((file for file in files if file.name in chosen), key=lambda file: file.size),
        str(info.pipeline_tag or ""), str(card.get("license") or ""), _texts(card.get("language")),
    )  # fmt: skip


def needed_files(names: Collection[str]) -> set[str]:
    """Returns the names of the files that a model needs: small ones, and weights, rather as safetensors.

    Args:
        names: All files of a repository.
    """
    for whole, index in FORMATS:
        stem, suffix = whole.rsplit(".", 1)
        shards = {name for name in names if (match := SHARD.fullmatch(name)) and match.groups() == (stem, suffix)}
        if whole in names or (index in names and shards):
            weights = {whole} if whole in names else shards
            break
    else:
        return set()
    small = {name for name in names if Path(name).suffix in SMALL_FILES and SAFE_NAME.fullmatch(name)}
    unused = {name for _, name in FORMATS if name != index or whole in weights}
    return weights | (small - unused)


def download(model: PublishedModel, folder: Path, advance: Callable[[int], object] = lambda count: None) -> None:
    """Downloads the files of a model; those that an earlier call has downloaded are kept, a part of one is continued.

    Args:
        model: Model to download.
        folder: Folder for its files and nothing else.
        advance: Is given the number of bytes that have arrived since the last call.

    Raises:
        BundleError: The Hub cannot be reached, or a file does not have the published content.
        OutputError: The folder cannot be written.
    """
    for file in model.files:
        path = folder / file.name
        with named_errors(path, FOLDER_ADVICE):
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            advance(file.size)
            continue
        # The commit is a part of the name, so that a part of another revision is not continued.
        part = path.with_name(f"{path.name}.{model.revision}.part")
        with named_errors(path, FOLDER_ADVICE), _CountedFile(part, advance) as target:
            advance(target.tell())
            with _reported_errors(model.name, model.host):
                _fetch(model, file, target)
        file.check(part)
        part.rename(path)


class _CountedFile(io.FileIO):
    """A file that is continued at its end, and reports what is written to it."""

    def __init__(self, path: Path, advance: Callable[[int], object]) -> None:
        super().__init__(path, "a")
        self._advance = advance

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += super().write(view[written:]) or 0
        self._advance(written)
        return written


def _endpoint() -> str:
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")


def _fetch(model: PublishedModel, file: PublishedFile, target: io.FileIO) -> None:
    """Writes the rest of a file. The token goes to the Hub alone, not to the storage that it leads to."""
    from huggingface_hub import file_download, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, disable_progress_bars

    disable_progress_bars()
    url = hf_hub_url(model.name, file.name, revision=model.revision, endpoint=_endpoint())
    headers: dict[str, str] = build_hf_headers()
    metadata = get_hf_file_metadata(url)
    if urlsplit(metadata.location).netloc != urlsplit(url).netloc:
        headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    if target.tell() > file.size:
        target.truncate(0)
    file_download.http_get(
        metadata.location, target, resume_size=target.tell(), headers=headers, expected_size=file.size
    )


def _file(sibling: Any) -> PublishedFile | None:
    """Returns a file of a repository; None if its name or size is not one of a file that is read."""
    name, size, large = str(sibling.rfilename), sibling.size, sibling.lfs
    is_read = SAFE_NAME.fullmatch(name) and (_is_weights(name) or Path(name).suffix in SMALL_FILES)
    if not is_read or size is None or (size > MAX_BYTES and not _is_weights(name)):
        return None
    return PublishedFile(name, int(size), str(large.sha256) if large else None, None if large else str(sibling.blob_id))


def _is_weights(name: str) -> bool:
    return name in (WEIGHTS, PICKLED[0]) or SHARD.fullmatch(name) is not None


def _texts(value: object) -> list[str]:
    return [str(entry) for entry in (value if isinstance(value, list) else [value]) if entry]


@contextmanager
def _reported_errors(name: str, host: str) -> Generator[None]:
    """Reports the errors of `huggingface_hub` in one line, with what to do.

    Raises:
        BundleError: There was an error.
    """
    from huggingface_hub import errors

    token = "log in by `hf auth login`, or set HF_TOKEN"
    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise BundleError(
            f"{name} is not on this machine, and HF_HUB_OFFLINE forbids to download it; unset it"
        ) from error
    except errors.GatedRepoError as error:
        raise BundleError(f"{name} is open to those who accept its terms on {host}/{name}; then {token}") from error
    except errors.RevisionNotFoundError as error:
        raise BundleError(f"{name} on {host} has no such revision; leave out what is behind @") from error
    except errors.RepositoryNotFoundError as error:
        raise BundleError(f"{host} has no public model {name}; check its name; for a private one, {token}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        advice = "it has had too many requests; try again in some minutes" if status == 429 else "try again later"
        raise BundleError(f"{host} answers {status} when asked for {name}; {advice}") from error
    except (errors.HFValidationError, ValueError) as error:
        raise BundleError(f"{name!r} cannot be downloaded: {str(error).splitlines()[0]}") from error
    except Exception as error:  # the library's HTTP client differs by version, and so do the classes of its errors
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise BundleError(
            f"{host} cannot be reached for {name} ({reason}); check the connection, then run the same command again: "
            "the download resumes where it stopped"
        ) from error
