"""Office documents: runs are merged, formats are put back, and everything else stays byte for byte."""

import io
import re
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path
from xml.parsers import expat

import pytest

from office_files import archive, docx, docx_body, member, odt, pptx
from transformer.errors import DataError
from translated_documents import parsed, translated

BOLD = "<w:rPr><w:b/></w:rPr>"


def run(text: str, properties: str = "") -> str:
    """Returns a run of WordprocessingML."""
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def texts(content: bytes, form: str = "docx") -> list[str]:
    """Returns what the translator sees of a document."""
    return [segment.text for segment in parsed(content, form).segments]


@pytest.mark.parametrize(
    ("paragraph", "seen"),
    [
        (run("Hello ") + run("you"), ["Hello you"]),
        (run("Hel") + '<w:proofErr w:type="x"/>' + run("lo", '<w:rPr><w:lang w:val="de"/></w:rPr>'), ["Hello"]),
        (run("A ") + run("red", BOLD) + run(" house"), ["A <x0>red</x0> house"]),
        (run("Note", BOLD), ["Note"]),
        (run("A") + "<w:r><w:br/></w:r>" + run("b") + "<w:r><w:tab/></w:r>" + run("c"), ["A", "b", "c"]),
        (run("See") + "<w:r><w:footnoteReference w:id='1'/></w:r>" + run(" it"), ["See<x0/> it"]),
        (f"<w:hyperlink>{run('Here', BOLD)}</w:hyperlink>" + run(" it is"), ["<x0>Here</x0> it is"]),
        (run("a") + f"<w:del><w:r><w:delText>X</w:delText></w:r></w:del><w:ins>{run('b')}</w:ins>" + run("c"),
         ["a<x0/><x1>b</x1>c"]),
        ("<w:sdt><w:sdtPr/><w:sdtContent>" + run("In") + "</w:sdtContent></w:sdt>" + run(" out"), ["<x0>In</x0> out"]),
        (run("Page ") + '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> PAGE </w:instrText></w:r>'
         '<w:r><w:fldChar w:fldCharType="separate"/></w:r>' + run("one") + '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
         + run(" here"), ["Page <x0/> here"]),
        (run("Go ") + '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>HYPERLINK</w:instrText></w:r>'
         '<w:r><w:fldChar w:fldCharType="separate"/></w:r>' + run("go") + '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
         + run(" now"), ["Go <x0>go</x0> now"]),
    ],
)  # fmt: skip
def test_word_paragraphs(paragraph: str, seen: list[str]) -> None:
    content = docx(f"<w:p><w:pPr><w:jc/></w:pPr>{paragraph}</w:p>")
    assert texts(content) == seen
    once, report = translated(content, "docx")
    assert report.translated == len(seen)
    assert texts(once) == [text.swapcase().replace("X0", "x0").replace("X1", "x1") for text in seen]
    assert translated(once, "docx")[0] == content


def test_formats_and_links_may_move() -> None:
    link = f'<w:hyperlink r:id="1">{run("a link")}</w:hyperlink>'
    content = docx(f"<w:p>{run('Bold', BOLD)}{run(' and ')}{link}</w:p>")
    assert texts(content) == ["<x0>Bold</x0> and <x1>a link</x1>"]
    out, _ = translated(content, "docx", lambda line: "Ein <x1>Link</x1> ist <x0>fett</x0> & neu")
    body = docx_body(out)
    expat.ParserCreate().Parse(f"<x xmlns:w='w' xmlns:r='r'>{body}</x>", True)
    assert f"{run('fett', BOLD)}{run(' &amp; neu')}</w:p>" in body
    assert f'<w:hyperlink r:id="1">{run("Link")}</w:hyperlink>' in body
    plain = body.replace(run("", BOLD), "").replace(run(""), "")
    assert plain == (
        f'<w:p>{run("Ein ")}<w:hyperlink r:id="1">{run("Link")}</w:hyperlink>{run(" ist ")}{run("fett", BOLD)}'
        f"{run(' &amp; neu')}</w:p>"
    )


def test_a_number_in_several_runs_is_one_code() -> None:
    """Catches the number of a note that a model has to spell where its brackets are runs of their own."""
    number = run("\u300c", BOLD) + run("12", BOLD) + run("\u300d", BOLD)
    content = docx(f"<w:p>{run('Note ')}{number}</w:p>")
    assert texts(content) == ["Note <x0/>"]
    kept = translated(content, "docx", lambda line: "Notiz <x0/>")[0]
    assert docx_body(kept) == docx_body(content).replace("Note", "Notiz")
    out, _ = translated(content, "docx", lambda line: "<x0/> ist eine Notiz")
    body = docx_body(out)
    expat.ParserCreate().Parse(f"<x xmlns:w='w' xmlns:r='r'>{body}</x>", True)
    assert number in body
    assert texts(out) == ["<x0/> ist eine Notiz"]


def test_bookmarks_stay_once() -> None:
    content = docx(f"<w:p>{run('One two ')}<w:bookmarkStart w:id='1'/>{run('three')}<w:bookmarkEnd w:id='1'/></w:p>")
    out, _ = translated(content, "docx", lambda line: "Eins zwei drei und vier")
    body = docx_body(out)
    assert body.count("<w:bookmarkStart w:id='1'/>") == body.count("<w:bookmarkEnd w:id='1'/>") == 1
    assert texts(out) == ["Eins zwei drei und vier"]


def test_text_boxes_notes_and_comments_are_translated() -> None:
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('Inner')}</w:p></w:txbxContent></w:pict></w:r>"
    content = docx(f"<w:p>{run('Outer ')}{box}{run('text')}</w:p>", footnotes=f"<w:p>{run('Note')}</w:p>")
    out, report = translated(content, "docx")
    assert report.translated == 3
    assert docx_body(out) == docx_body(content).replace("Inner", "iNNER").replace("Outer", "oUTER").replace(
        ">text<", ">TEXT<"
    )
    assert "nOTE" in docx_body(out, "footnotes")


def test_spaces_at_the_edges_of_texts_are_kept() -> None:
    content = docx(f"<w:p><w:r><w:t>Hello</w:t></w:r>{run(' you')}</w:p>")
    out, _ = translated(content, "docx", lambda line: "Good day to you")
    assert "".join(texts(out)) == "Good day to you"
    assert re.search(r"<w:t>(?: |[^<]* <)", docx_body(out)) is None


def test_other_members_keep_their_bytes() -> None:
    content = docx(f"<w:p>{run('Text')}</w:p>", header1="<w:p/>", comments=f"<w:p>{run('12')}</w:p>")
    out, _ = translated(content, "docx", lambda line: "Ein viel längerer Text " * 50)
    before, after = (zipfile.ZipFile(io.BytesIO(data)) for data in (content, out))
    assert before.namelist() == after.namelist()
    for info in before.infolist():
        other = after.getinfo(info.filename)
        assert (info.date_time, info.compress_type, info.extra) == (other.date_time, other.compress_type, other.extra)
        assert (before.read(info) == after.read(other)) == (info.filename != "word/document.xml")


def test_slides_in_their_order() -> None:
    slide = (
        '<p:sld xmlns:p="p" xmlns:a="a"><a:p><a:r><a:rPr lang="en" dirty="0"/><a:t>Slide</a:t></a:r><a:r><a:rPr b="1"/>'
    )
    slides = [f"{slide}<a:t> {number}th</a:t></a:r><a:endParaRPr/></a:p></p:sld>" for number in range(1, 12)]
    content = pptx(*slides)
    assert texts(content, "pptx")[1::8] == ["Slide<x0> 2th</x0>", "Slide<x0> 10th</x0>"]
    once, _ = translated(content, "pptx")
    assert 'sLIDE</a:t></a:r><a:r><a:rPr b="1"/><a:t> 1TH' in member(once, "ppt/slides/slide1.xml")
    assert translated(once, "pptx")[0] == content


@pytest.mark.parametrize(
    ("paragraph", "seen"),
    [
        ("One <text:span text:style-name='T1'>two</text:span>", ["One <x0>two</x0>"]),
        ('Hel<text:span text:style-name="R1">lo</text:span> you', ["Hello you"]),
        ("a<text:line-break/>b<text:tab/>c", ["a", "b", "c"]),
        ("a<text:s text:c='2'/>b", ["a<x0/>b"]),
        ("Text<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>Note</text:p>"
         "</text:note-body></text:note> on", ["Text<x0/> on", "Note"]),
        ("a<text:bookmark text:name='x'/>b", ["ab"]),
    ],
)  # fmt: skip
def test_opendocument_paragraphs(paragraph: str, seen: list[str]) -> None:
    style = '<style:style style:name="R1" style:family="text"><style:text-properties officeooo:rsid="0"/></style:style>'
    deleted = "<text:tracked-changes><text:p>Gone</text:p></text:tracked-changes>"
    spaces = "".join(f' xmlns:{name}="{name}"' for name in ("style", "text", "officeooo"))
    content = odt(f"<doc{spaces}>{style}{deleted}<text:p>{paragraph}</text:p></doc>")
    assert sorted(texts(content, "odt")) == sorted(seen)
    once, report = translated(content, "odt")
    assert report.translated == len(seen)
    assert translated(once, "odt")[0] == content


def with_field(content: bytes, offset: int, value: int) -> bytes:
    """Returns an archive with another number in the entry of its first member in the directory."""
    data = bytearray(content)
    struct.pack_into("<I", data, content.index(b"PK\x01\x02") + offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a ZIP archive"),
        (b"PK\x03\x04", "not a ZIP archive"),
        (archive({"a": "b"}), r"lacks '\[Content_Types\].xml'"),
        (docx("<w:p/>")[:-30], "not a ZIP archive"),
        (docx("<w:p/>").replace(b"word/document.xml", b"word/document.xm_"), "no text of this kind"),
        (archive({"[Content_Types].xml": b" " * 50_000_000}), "unpacks to 50,000,000 bytes; the file is refused"),
        (with_field(docx("<w:p/>"), 20, 5), "is damaged; save the file anew"),
        (with_field(docx("<w:p/>"), 24, 5), "is damaged; save the file anew"),
        (with_field(docx("<w:p/>"), 42, 7), "damaged|overlap"),
        (with_field(docx("<w:p/>"), 8, 0x00080001), "it is encrypted"),
        (docx("<w:p>"), "word/document.xml, line 1: not XML: mismatched tag"),
        (b"extra" + docx("<w:p/>"), "has data before it"),
    ],
)
def test_hostile_archives_are_refused_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        parsed(content, "docx")
    assert "\n" not in str(error.value)


def test_an_archive_with_a_name_twice_is_refused() -> None:
    content = archive({"word/a": "", "word/b": ""}).replace(b"word/b", b"word/a")
    with pytest.raises(DataError, match="have the same name"):
        parsed(content, "docx")


def test_many_runs_and_open_fields_take_linear_time() -> None:
    """Catches quadratic time, which would take minutes here."""
    begin = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
    content = docx(f"<w:p>{begin * 5000}</w:p><w:p>{(run('a') + run('b', BOLD)) * 5000}</w:p>")
    _, report = translated(content, "docx")
    assert report.reasons == {"it has more than 1,000 tags and placeholders": 1}


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
@pytest.mark.parametrize("form", ["docx", "odt"])
def test_libreoffice_writes_and_opens_the_documents(form: str, tmp_path: Path) -> None:
    def convert(source: Path, target: str) -> Path:
        folder = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
        command = ["soffice", folder, "--headless", "--convert-to", target, "--outdir", str(tmp_path), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return tmp_path / f"{source.stem}.{target}"

    page = tmp_path / "page.html"
    page.write_text("<h1>Title</h1><p>A <b>red</b> house, <a href='http://a/'>a link</a></p><ul><li>Item</ul>")
    path = convert(page, "odt") if form == "odt" else convert(convert(page, "odt"), "docx")
    content = path.read_bytes()
    once, report = translated(content, form)
    assert (report.translated, report.refused) == (3, 0)
    assert translated(once, form)[0] == content
    path.write_bytes(translated(content, form, lambda line: "".join(reversed(line.partition("<x0>red</x0>"))))[0])
    assert "house, a linkredA" in convert(path, "txt").read_text(encoding="utf-8").replace(" red", "red")
