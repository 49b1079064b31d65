"""Language tags from options, file names and text, and the scripts of text."""

import random
import unicodedata

import pytest

from transformer.data.config import DataConfig
from transformer.data.languages import identify_languages
from transformer.text.languages import (
    detect_language,
    language_of_column,
    language_of_files,
    matching_tag,
    parse_language,
    script_of_language,
)
from transformer.text.scripts import count_letters

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
    ],
)  # fmt: skip
def test_tags_have_one_form(tag: str, canonical: str | None) -> None:
    """Catches two spellings of one language that are compared as different ones, and words that pass for tags."""
    assert parse_language(tag) == canonical


@pytest.mark.parametrize(
    ("paths", "language"),
    [
        (["data/train.en"], "en"), (["train.lc.norm.tok.de.gz"], "de"), (["news.zh_CN.txt"], "zh-CN"),
        (["a.deu", "b.de.zst"], "de"), (["dev.ceb_Latn"], "ceb-Latn"), (["train.EN"], "en"), (["x.cmn"], "zh"),
        (["train.src"], None), (["train.tgt"], None), (["train.tok"], None), (["corpus.txt"], None), (["en"], None),
        (["a.en", "b.de"], None), (["a.en", "b"], None), ([], None), (["run.sh"], None), (["x.in"], None),
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
    """Catches a range that is off by one: the Unicode names of all letters begin with their script."""
    names = {
        "Thai": "THAI CHARACTER", "Khmer": "KHMER LETTER", "Tibetan": "TIBETAN LETTER", "Han": "CJK UNIFIED",
        "Lao": "LAO LETTER", "Burmese": "MYANMAR LETTER", "Kana": "KATAKANA LETTER", "Hangul": "HANGUL SYLLABLE",
    }  # fmt: skip
    for script, prefix in names.items():
        letters = [chr(code) for code in range(0x10000) if unicodedata.name(chr(code), "").startswith(prefix)]
        counts = count_letters(letters)
        assert counts[script] >= 0.9 * len(letters), (script, counts)
        assert counts.total() == counts[script]
    assert count_letters(["東京へ、5 km ｶﾅ!"]) == {"Han": 2, "Kana": 3, "Latin": 2}


@pytest.mark.parametrize(
    ("served", "requested", "expected"),
    [
        (("zh-Hans", "zh-Hant"), "zh-TW", "zh-Hant"),
        (("zh-Hans", "zh-Hant"), "zh-SG", "zh-Hans"),
        (("zh",), "zh-CN", "zh"),
        (("zh-Hans",), "zh-Hant", None),
        (("zh",), "zh-HK", None),
        (("sr-Cyrl",), "sr-Latn", None),
        (("sr",), "sr-RS", "sr"),
        (("sr-Latn",), "sr", "sr-Latn"),  # the request names no script
        (("zh-Hans", "zh-Hant"), "zt", "zh-Hant"),
        (("pt-PT", "pt-BR"), "pb", "pt-BR"),
        (("de", "no"), "nb-NO", "no"),
    ],
)
def test_script_of_a_request_decides(served: tuple[str, ...], requested: str, expected: str | None) -> None:
    """Catches simplified characters for a request of traditional ones, and unknown codes of LibreTranslate."""
    assert matching_tag(requested, served) == expected
