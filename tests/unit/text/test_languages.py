"""Language tags from options, file names and text, and the scripts of text."""

import random

import langcodes
import pytest

from transformer.data.config import DataConfig
from transformer.data.languages import identify_languages
from transformer.text.languages import (
    CANONICAL,
    Detection,
    count_letters,
    detect_language,
    language_of_column,
    language_of_files,
    matching_tag,
    parse_language,
    rank_languages,
    script_of_language,
)

SENTENCES = {
    "en": "The woman reads the letter that her brother sent to the old house by the river last week.",
    "de": "Die Frau liest den Brief, den ihr Bruder letzte Woche an das alte Haus am Fluss geschickt hat.",
    "fr": "La femme lit la lettre que son frère a envoyée la semaine dernière à la vieille maison.",
    "ru": "Женщина читает письмо, которое её брат отправил на прошлой неделе в старый дом у реки.",
    "ar": "تقرأ المرأة الرسالة التي أرسلها أخوها الأسبوع الماضي إلى البيت القديم بجانب النهر.",
    "hi": "महिला वह पत्र पढ़ती है जो उसके भाई ने पिछले सप्ताह नदी के किनारे पुराने घर को भेजा था।",
    "zh": "这位女士正在读她哥哥上周寄到河边老房子的信。",
    "ja": "女性は、兄が先週川沿いの古い家に送った手紙を読んでいます。",
    "ko": "여자는 오빠가 지난주에 강가의 낡은 집으로 보낸 편지를 읽는다.",
    "th": "ผู้หญิงอ่านจดหมายที่พี่ชายของเธอส่งไปบ้านเก่าริมแม่น้ำเมื่อสัปดาห์ที่แล้ว",
    "my": "အမျိုးသမီးသည် သူမအစ်ကို ပြီးခဲ့သည့်အပတ်က ပို့ခဲ့သောစာကို ဖတ်နေသည်။",
    "km": "ស្ត្រីអានសំបុត្រដែលបងប្រុសរបស់នាងបានផ្ញើទៅផ្ទះចាស់ក្បែរទន្លេកាលពីសប្តាហ៍មុន។",
    "lo": "ແມ່ຍິງອ່ານຈົດໝາຍທີ່ອ້າຍຂອງນາງສົ່ງໄປເຮືອນເກົ່າແຄມແມ່ນ້ຳໃນອາທິດແລ້ວ",
    "bo": "བུད་མེད་ཀྱིས་ཁོ་མོའི་ཕུ་བོས་བདུན་ཕྲག་སྔོན་མར་བསྐུར་བའི་ཡི་གེ་ཀློག་གི་ཡོད།",
}


@pytest.mark.parametrize(
    ("suffix", "language", "tag", "origin"),
    [
        ("kr", "ko", "ko", "detected, the name of its file may not mean kr"),
        ("aa", "de", "de", "detected, the name of its file may not mean aa"),
        ("cz", "de", "de", "detected"),
        ("bo", "bo", "bo", "name of its file"),
        ("de", "en", "de", "name of its file"),
    ],
)
def test_a_suffix_that_is_rarely_a_language_must_agree_with_the_text(
    suffix: str, language: str, tag: str, origin: str
) -> None:
    """Catches Korean that counts as Kanuri because its file ends in the code of its country."""
    settings = DataConfig(source=f"train.{suffix}", target="train.fr")
    source, _ = identify_languages(settings, [(SENTENCES[language], SENTENCES["fr"])] * 20)
    assert (source.tag, source.origin) == (tag, origin)
    unknown, _ = identify_languages(settings, [("1", "2")])
    assert unknown.tag == (tag if origin == "name of its file" and suffix != "bo" else None)


@pytest.mark.parametrize(
    ("tag", "canonical"),
    [
        ("en", "en"), ("deu", "de"), ("pt_br", "pt-BR"), ("zh-hant-tw", "zh-Hant-TW"), ("cmn", "zh"), (" fr", "fr"),
        ("mul", None), ("und", None), ("jp", None), ("german", None), ("", None), ("en-", None), ("a" * 99, None),
        ("zt", "zh-Hant"), ("PB", "pt-BR"),
    ],
)  # fmt: skip
def test_tags_have_one_form(tag: str, canonical: str | None) -> None:
    """Catches two spellings of one language that are compared as different ones, and words that pass for tags."""
    assert parse_language(tag) == canonical


def test_frequent_tags_are_those_of_langcodes() -> None:
    """Catches a tag that is not looked up although it is none, or not the canonical one."""
    assert all(langcodes.tag_is_valid(tag) for tag in CANONICAL)
    assert [langcodes.standardize_tag(tag, macro=True) for tag in sorted(CANONICAL)] == sorted(CANONICAL)


@pytest.mark.parametrize(
    ("paths", "language"),
    [
        (["data/train.en"], "en"), (["train.lc.norm.tok.de.gz"], "de"), (["news.zh_CN.txt"], "zh-CN"),
        (["a.deu", "b.de.zst"], "de"), (["dev.ceb_Latn"], "ceb-Latn"), (["train.EN"], "en"), (["x.cmn"], "zh"),
        (["train.src"], None), (["train.tgt"], None), (["train.tok"], None), (["corpus.txt"], None), (["en"], None),
        (["a.en", "b.de"], None), (["a.en", "b"], None), ([], None), (["run.sh"], None), (["x.in"], None),
        (["x.pb"], None),
    ],
)  # fmt: skip
def test_files_name_their_language(paths: list[str], language: str | None) -> None:
    """Catches `src`, `tgt` and `tok`, which are codes of languages too, and files that contradict each other."""
    assert language_of_files(paths) == language


def test_columns_name_their_language() -> None:
    """Catches a column number or an ordinary name that is taken for a language."""
    names = ["en", "translation.de", "zh-Hans", "1", "source", "target", "text"]
    assert [language_of_column(name) for name in names] == ["en", "de", "zh-Hans", None, None, None, None]


@pytest.mark.parametrize("language", SENTENCES)
def test_languages_are_detected(language: str) -> None:
    """Catches a language that is mistaken for another of its script, and scripts that the detector does not know."""
    assert detect_language([SENTENCES[language]] * 40) == language


def test_what_is_no_language_is_not_detected() -> None:
    """Catches a guess from digits, from a few letters, or from lines of many languages."""
    mixed = [SENTENCES[language] for language in ("en", "de", "fr", "ru", "ar")] * 10
    random.Random(1).shuffle(mixed)
    for lines in ([], ["1 2 3"] * 100, ["", " "], ["ok", "no"], ["abc"] * 3, mixed):
        assert detect_language(lines) is None, lines[:3]


def test_scripts_of_languages() -> None:
    """Catches a language whose region or variant hides its script."""
    tags = ["zh", "zh-TW", "yue", "ja", "th", "dz", "ko", "de", "sr-Latn", "zh-Latn"]
    expected = ["Hans", "Hant", "Hant", "Jpan", "Thai", "Tibt", "Kore", "Latn", "Latn", "Latn"]
    assert [script_of_language(tag) for tag in tags] == expected


def test_letters_are_counted_by_script() -> None:
    """Catches kana that count apart, marks that do not count, and digits and signs that do."""
    assert count_letters(["東京へ、5 km ｶﾅ!", "人々とスーパー", "é\u0301𠀋"]) == {"Hani": 5, "Hrkt": 8, "Latn": 3}
    assert count_letters(["ไทย๑๒฿", "दो।१"]) == {"Thai": 3, "Deva": 2}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Der Hund läuft.", "de"), ("The dog runs in the garden.", "en"), ("Le chien court dans le jardin.", "fr"),
        ("DER HUND LÄUFT DURCH DEN GARTEN", "de"), ("house", "en"), ("Guten Tag", "de"), ("Bonjour", "fr"),
    ],
)  # fmt: skip
def test_the_language_of_a_request(text: str, language: str) -> None:
    """Catches a short text that is taken for a language that the server does not have."""
    assert rank_languages(text, ["de", "en", "fr"])[0].language == language


@pytest.mark.parametrize("text", ["", "12.5 %", "…", "\ud800"])
def test_a_request_without_letters(text: str) -> None:
    """Catches a text without letters in a language by chance, with a confidence."""
    assert rank_languages(text, ["de", "en"]) == [Detection("en", 0.0)]
    assert rank_languages(text, ["de", "fr"]) == [Detection("de", 0.0)]


def test_confidence() -> None:
    """Catches a high confidence for a text in a language that the server does not have, and another name of one."""
    assert rank_languages("Le chien court dans le jardin de la maison.", ["de", "en"])[0].confidence < 5
    german = rank_languages("Der schwarze Hund läuft durch den Garten.", ["de-AT", "en"])[0]
    assert (german.language, german.confidence) == ("de-AT", pytest.approx(100, abs=5))
    assert rank_languages("Ein Haus", ["xx"]) == [Detection("xx", 0.0)]
    filipino = rank_languages("Binabasa ng babae ang sulat ng kanyang kapatid.", ["en", "fil"])[0]
    assert (filipino.language, filipino.confidence) == ("fil", pytest.approx(100, abs=5))


@pytest.mark.parametrize(
    ("served", "requested", "expected"),
    [
        ("de", "DE", "de"), ("de", "de-AT", "de"), ("de", "deu", "de"), ("en", "EN-GB", "en"),
        ("pt-BR", "PT_br", "pt-BR"),
        ("pt-BR pt-PT", "pt", "pt-BR"), ("pt-BR pt-PT", "pt-PT", "pt-PT"), ("pt-PT pt-BR", "pb", "pt-BR"),
        ("de no", "nb", "no"), ("de no", "nb-NO", "no"), ("de", "nl", None), ("de", "zz", None), ("de", "", None),
        ("de", "../de", None), ("de", "d" * 10_000, None),
        ("zh-Hans zh-Hant", "zh-TW", "zh-Hant"), ("zh-Hans zh-Hant", "zh-SG", "zh-Hans"), ("zh", "zh-CN", "zh"),
        ("zh-Hans", "zh-Hant", None), ("zh", "zh-HK", None), ("zh-Hans zh-Hant", "zt", "zh-Hant"),
        ("sr-Cyrl", "sr-Latn", None), ("sr", "sr-RS", "sr"), ("sr-Latn", "sr", "sr-Latn"),
    ],
)  # fmt: skip
def test_matching_tags(served: str, requested: str, expected: str | None) -> None:
    """Catches codes of DeepL, Weblate or LibreTranslate that are unknown, another language, and another script."""
    assert matching_tag(requested, served.split()) == expected
