"""The corpora of the bundled models."""

import random
import subprocess
from pathlib import Path

import pytest

from build_corpora import read_introductions
from corpora.debian import is_allowed, stated_license
from corpora.dictionary import read_dictionary
from corpora.documents import pairs_by_id, pairs_by_structure, read_blocks
from corpora.messages import clean, hide_placeholders, read_catalogues
from corpora.pairs import Corpus, TextPair, without_repetitions


def dictionary(folder: Path, *entries: str) -> list[tuple[str, str]]:
    path = folder / "de-en"
    path.write_text("# a comment :: not an entry\n" + "".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    return [(pair.english, pair.german) for pair in read_dictionary(path)]


def test_entries_of_the_dictionary_become_pairs_part_by_part(tmp_path: Path) -> None:
    """Catches parts that are paired across, and grammar or subjects left in the text."""
    entries = "Aalspieß {m} (Gerät) [techn.] | Aalspieße {pl} :: eel spear | eel spears"
    assert dictionary(tmp_path, entries) == [("eel spear", "Aalspieß"), ("eel spears", "Aalspieße")]


def test_equally_many_alternatives_are_paired_and_else_the_first(tmp_path: Path) -> None:
    """Catches a second alternative that is paired with a word that it does not mean."""
    entries = "Haus {n}; Heim {n} :: house; home", "Breitbeil {n}; Querbeil {n}; Queraxt {f} :: adze; adz [Am.]"
    assert dictionary(tmp_path, *entries) == [("house", "Haus"), ("home", "Heim"), ("adze", "Breitbeil")]


def test_abbreviations_are_written_out(tmp_path: Path) -> None:
    """Catches `sth.` and `jdn.`, which a model would write in sentences."""
    entry = "jdn. von etw. abbringen {vt} :: to talk sb. out of sth."
    assert dictionary(tmp_path, entry) == [("to talk somebody out of something", "jemanden von etwas abbringen")]


def test_inflected_forms_are_left_out_and_sentences_kept(tmp_path: Path) -> None:
    """Catches the tables of irregular verbs, and a rule that also drops sentences."""
    entries = "aufheben | ich hob auf :: to pick up | I picked up", "Ich habe es eilig. :: I'm in a hurry."
    assert dictionary(tmp_path, *entries) == [("to pick up", "aufheben"), ("I'm in a hurry.", "Ich habe es eilig.")]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("_Save As…", "Save As…"), ("Datei(&F)", "Datei"), ("<b>Bold</b> text", "Bold text"),
        ("first\\nsecond\nthird", "first second third"), ("my_own_name", "my_own_name"), ("A & B", "A & B"),
    ],
)  # fmt: skip
def test_messages_are_cleaned(message: str, text: str) -> None:
    """Catches marks of accelerator keys and tags that the model would learn to copy or to lose."""
    assert clean(message) == text


def test_placeholders_become_the_same_words_on_both_sides() -> None:
    """Catches words that differ between the sides, and a number that gets a name."""
    pair = hide_placeholders(TextPair("%1$s has %d files", "%d Dateien hat %1$s"), random.Random(1), 1.0)
    assert pair is not None
    name, number = pair.english.split()[0], pair.english.split()[2]
    assert pair == TextPair(f"{name} has {number} files", f"{number} Dateien hat {name}")
    assert name.isalpha()
    assert number.isdecimal()


def test_messages_whose_placeholders_differ_are_left_out() -> None:
    """Catches pairs that teach a model to lose a placeholder."""
    assert hide_placeholders(TextPair("Opening %s", "Wird geöffnet"), random.Random(1)) is None


def test_catalogues_are_read_as_gettext_writes_them(tmp_path: Path) -> None:
    """Catches contexts left in messages, plural forms that are paired wrongly, and untranslated messages."""
    folder = tmp_path / "usr/share/locale/de/LC_MESSAGES"
    folder.mkdir(parents=True)
    (tmp_path / "app.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=n != 1;\\n"\n'
        'msgctxt "menu"\nmsgid "_Open"\nmsgstr "Ö_ffnen"\n\n'
        'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] "eine Datei"\nmsgstr[1] "%d Dateien"\n',
        encoding="utf-8",
    )
    subprocess.run(["msgfmt", tmp_path / "app.po", "-o", folder / "app.mo"], check=True)
    pairs = {(pair.english, pair.german) for pair in read_catalogues(tmp_path, "de")}
    assert pairs == {("Open", "Öffnen"), ("one file", "eine Datei"), ("%d files", "%d Dateien")}


def test_pages_of_the_same_structure_are_paired_block_by_block(tmp_path: Path) -> None:
    """Catches pages of another structure, code and the text for another system."""
    for language, text in (("en", "Open <span class='MAC'>Cmd</span>the file"), ("de", "Öffnen Sie die Datei")):
        (tmp_path / language).mkdir()
        (tmp_path / language / "a.html").write_text(f"<h1>T{language}</h1><p>{text}</p><pre>code()</pre>")
    (tmp_path / "en/b.html").write_text("<p>One</p><p>Two</p>")
    (tmp_path / "de/b.html").write_text("<p>Eins und zwei</p>")
    assert list(pairs_by_structure(tmp_path / "en", tmp_path / "de", "*.html")) == [
        TextPair("Ten", "Tde"), TextPair("Open the file", "Öffnen Sie die Datei"),
    ]  # fmt: skip


def test_blocks_with_the_same_id_are_paired(tmp_path: Path) -> None:
    """Catches pairing by place where a block is missing."""
    pages = {"en": "<p id='a'>One</p><p id='b'>Two</p>", "de": "<p id='b'>Zwei</p>"}
    for language, text in pages.items():
        (tmp_path / language).mkdir()
        (tmp_path / language / "a.html").write_text(text)
    assert list(pairs_by_id(tmp_path / "en", tmp_path / "de", "*.html")) == [TextPair("Two", "Zwei")]
    assert read_blocks(tmp_path / "en/a.html") == [("p", "a", "One"), ("p", "b", "Two")]


@pytest.mark.parametrize(
    ("english", "german", "reason"),
    [
        ("Save", "Save", "identical"), ("Page 12", "Seite 13", "numbers"), ("12 %", "12 vH", "no words"),
        ("A text that is rather long, you see", "Kurz", "length ratio"), ("Save", "", "empty"),
    ],
)  # fmt: skip
def test_pairs_that_teach_errors_are_rejected(english: str, german: str, reason: str) -> None:
    """Catches a check that was left out."""
    corpus = Corpus()
    corpus.add([TextPair(english, german), TextPair("Save", "Speichern")])
    assert corpus.pairs == [TextPair("Save", "Speichern")]
    assert dict(corpus.rejected) == {reason: 1}


def test_a_text_is_kept_once_whatever_its_case() -> None:
    """Catches held-out messages that are also among those to train on."""
    seen: set[str] = set()
    assert list(without_repetitions([TextPair("Open", "Öffnen")], seen)) == [TextPair("Open", "Öffnen")]
    assert list(without_repetitions([TextPair("OPEN", "ÖFFNEN"), TextPair("Close", "Zu")], seen)) == [
        TextPair("Close", "Zu")
    ]


def test_the_licence_of_all_files_counts(tmp_path: Path) -> None:
    """Catches the licence of the packaging or of a single file taken for that of the program."""
    folder = tmp_path / "usr/share/doc/app"
    folder.mkdir(parents=True)
    (folder / "copyright").write_text(
        "Format: x\n\nFiles: debian/*\nLicense: Expat\n\nFiles: *\nCopyright: A\n B\nLicense: GPL-2+\n\n"
        "License: GPL-2+\n text\n"
    )
    assert stated_license(tmp_path) == "GPL-2+"
    assert [is_allowed(name) for name in ("GPL-2+", "MPL-2.0", "GPL-2", "own", "")] == [True, True, False, False, False]


def test_a_package_whose_documents_are_a_link_has_the_licence_of_the_other(tmp_path: Path) -> None:
    """Catches a package that is left out although its licence is stated beside it."""
    folder = tmp_path / "app-common/usr/share/doc/app-common"
    folder.mkdir(parents=True)
    (folder / "copyright").write_text("Files: *\nLicense: GFDL-1.2+\n")
    (tmp_path / "app-de/usr/share/doc").mkdir(parents=True)
    (tmp_path / "app-de/usr/share/doc/app-de").symlink_to("app-common")
    assert stated_license(tmp_path / "app-de") == "GFDL-1.2+"
    assert is_allowed("GFDL-1.2+")


def test_introductions_name_everybody_on_both_sides(tmp_path: Path) -> None:
    """Catches a name on one side alone, comments as sentences, and sentences without a name."""
    path = tmp_path / "introductions.tsv"
    path.write_text("# {}\tcomment\nI am {}.\tIch bin {}.\nWho is {}?\tWer ist {}?\n", encoding="utf-8")
    pairs = read_introductions(path)
    assert {TextPair("I am Anna.", "Ich bin Anna."), TextPair("Who is Tom?", "Wer ist Tom?")} <= {*pairs}
    assert len({*pairs}) == len(pairs) == 2 * len({pair.english for pair in pairs if pair.english.startswith("I")})
    path.write_text("Mr. {surname} is here.\tHerr {surname} ist hier.\n", encoding="utf-8")
    surnames = read_introductions(path)
    assert TextPair("Mr. Weber is here.", "Herr Weber ist hier.") in surnames
    assert not any("{" in pair.german or "Anna" in pair.german for pair in surnames)
