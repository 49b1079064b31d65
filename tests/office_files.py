"""Small office documents for tests."""

import io
import zipfile
from collections.abc import Mapping

_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/>{}</Types>'
)
_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_POWERPOINT = "application/vnd.openxmlformats-officedocument.presentationml"


def archive(members: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Returns a ZIP archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content, compression)
    return buffer.getvalue()


def member(content: bytes, name: str) -> str:
    """Returns a text of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert file.testzip() is None
        return file.read(name).decode()


def docx(body: str, **parts: str) -> bytes:
    """Returns a DOCX document; parts are e.g. `footnotes`."""
    names = {"document": body, **parts}
    types = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{_WORD}.{name + ".main" * (name == "document")}+xml"/>'
        for name in names
    )
    files = {f"word/{name}.xml": f'<w:{name} xmlns:w="w">{text}</w:{name}>' for name, text in names.items()}
    return archive({"[Content_Types].xml": _TYPES.format(types), "word/media/a.png": b"\x89PNG" * 99, **files})


def docx_body(content: bytes, name: str = "document") -> str:
    """Returns a part of a DOCX document."""
    return member(content, f"word/{name}.xml").removeprefix(f'<w:{name} xmlns:w="w">').removesuffix(f"</w:{name}>")


def pptx(*slides: str) -> bytes:
    """Returns a PPTX presentation."""
    types = "".join(
        f'<Override PartName="/ppt/slides/slide{number}.xml" ContentType="{_POWERPOINT}.slide+xml"/>'
        for number, _ in enumerate(slides, start=1)
    )
    files = {f"ppt/slides/slide{number}.xml": slide for number, slide in enumerate(slides, start=1)}
    return archive({"[Content_Types].xml": _TYPES.format(types), **files})


def odt(body: str) -> bytes:
    """Returns an ODT document."""
    return archive({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": body})
