"""Translation memories: variants are inserted or filled, inline codes and everything else stay."""

import pytest

from transformer.errors import DataError
from translated_documents import parsed, swap_case, translated

TMX = (
    '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
    '<header srclang="en" datatype="plaintext"/>\n<body>\n%s\n</body>\n</tmx>\n'
)


def memory(body: str) -> bytes:
    return (TMX % body).encode()


def swapped(body: str, *, mark: str = "none") -> str:
    """Returns the translation of a body, whose surroundings must stay."""
    out = translated(memory(body), "tmx", mark="none" if mark == "none" else "all")[0].decode()
    before, after = TMX.split("%s")
    assert out.startswith(before)
    assert out.endswith(after)
    return out[len(before) : -len(after)]


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("Hello &amp; you", "hELLO &amp; YOU"),
        ('<bpt i="1">&lt;b&gt;</bpt>Bold<ept i="1">&lt;/b&gt;</ept> dog',
         '<bpt i="1">&lt;b&gt;</bpt>bOLD<ept i="1">&lt;/b&gt;</ept> DOG'),
        ('Use <ph x="1">{Name}</ph><it pos="begin">X</it>', 'uSE <ph x="1">{Name}</ph><it pos="begin">X</it>'),
        ('The <hi type="term">big</hi> <ut>\\par</ut>dog', 'tHE <hi type="term">BIG</hi> <ut>\\par</ut>DOG'),
    ],
)  # fmt: skip
def test_variants_are_inserted_as_their_sources_are_laid_out(content: str, target: str) -> None:
    unit = (
        f'  <tu tuid="1">\n    <prop type="x">P</prop>\n    <tuv xml:lang="en">\n      <seg>{content}</seg>\n'
        "    </tuv>\n  </tu>"
    )
    added = f'\n    <tuv xml:lang="de">\n      <seg>{target}</seg>\n    </tuv>\n  </tu>'
    assert swapped(unit) == unit.removesuffix("\n  </tu>") + added


@pytest.mark.parametrize("segment", ["<seg></seg>", "<seg/>", "<seg> </seg>"])
def test_empty_variants_are_filled(segment: str) -> None:
    unit = f'<tu><tuv xml:lang="EN-US"><seg>Text</seg></tuv><tuv xml:lang="de-AT">{segment}</tuv></tu>'
    assert swapped(unit) == unit.replace(segment, "<seg>tEXT</seg>")


def test_translations_stay_and_those_to_review_are_marked_and_replaced() -> None:
    unit = '<tu><tuv lang="en"><seg>Text</seg></tuv></tu>'
    review = '<prop type="x-review">machine translation</prop>'
    marked = swapped(unit, mark="all")
    assert marked == f'{unit.removesuffix("</tu>")}<tuv lang="de">{review}<seg>tEXT</seg></tuv></tu>'
    assert swapped(marked) == marked
    out, report = translated(memory(marked), "tmx", str.upper, fuzzy=True, mark="none")
    assert (out, report.translated) == (memory(marked.replace(review, "").replace("tEXT", "TEXT")), 1)


def test_the_languages_of_the_model_choose_the_variants() -> None:
    """Catches a memory of three languages whose first two are paired."""
    unit = "".join(f'<tuv xml:lang="{tag}"><seg>Text {tag}</seg></tuv>' for tag in ("en", "fr", "de-CH"))
    content = memory(f"<tu>{unit}</tu>")
    fixed = [("fr", "de"), ("de", "en"), ("", "")]
    for source, target in fixed:
        [segment] = parsed(content, "tmx").in_languages(source, target).segments
        name = {"": "en", "de": "de-CH"}.get(source, source)
        assert (segment.text, segment.state) == (f"Text {name}", "translated")
    out, report = translated(content, "tmx", languages=("fr", "es"), mark="none")
    assert report.translated == 1
    assert '<tuv xml:lang="es"><seg>tEXT FR</seg></tuv></tu>' in out.decode()
    with pytest.raises(DataError, match="no unit has a text in 'ja'; it holds en, fr, de-CH; choose a model"):
        translated(content, "tmx", languages=("ja", "es"))


def test_notes_on_refused_units_are_replaced_by_the_next_run() -> None:
    content = memory('<tu>\n  <tuv xml:lang="en"><seg>Bad 1</seg></tuv>\n</tu>')
    noted, report = translated(content, "tmx", lambda line: "x")
    assert report.refused == 1
    assert noted.count(b"\n  <note>not translated by the program: the translation lacks") == 1
    assert translated(noted, "tmx", lambda line: "x")[0] == noted
    assert translated(noted, "tmx", swap_case)[0] == translated(content, "tmx", swap_case)[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<a/>", "its root is <a>; TMX begins with <tmx>"),
        ("<tmx><body></tmx>", "line 1: not XML: mismatched tag; correct the file"),
        ('<!DOCTYPE tmx [<!ENTITY a "aa">]><tmx>&a;</tmx>', "it declares the entity 'a'"),
    ],
)
def test_hostile_files_are_refused(content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parsed(content.encode(), "tmx")


def test_encodings_that_lack_a_character_get_references() -> None:
    """Catches a note or a translation that cannot be written, and takes the file with it."""
    content = memory('<tu><tuv xml:lang="en"><seg>Text €</seg></tuv></tu>').decode()
    content = content.replace('"1.0"', '"1.0" encoding="iso-8859-1"', 1).replace("€", "&#8364;")
    out, _ = translated(content.encode("latin-1"), "tmx", lambda line: line + " ł")
    assert b"<seg>Text &#8364; &#322;</seg>" in out
    out, _ = translated(content.encode("latin-1"), "tmx", lambda line: "ł 1")
    assert b"not translated by the program" in out
