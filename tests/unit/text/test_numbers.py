"""Numbers are compared as values, and written as their language writes them."""

import random
from decimal import Decimal

import pytest
from babel.numbers import format_currency, format_decimal

from transformer.text.number_comparison import compare_numbers
from transformer.text.number_writing import adapt_copied_numbers, write_number
from transformer.text.numbers import read_numbers

EN_DE, DE_EN = ("en", "de"), ("de", "en")


def compared(source: str, target: str, languages: tuple[str, str] = EN_DE) -> tuple[list[str], list[str]]:
    """Returns the numbers that are missing, and those that are invented."""
    differences = compare_numbers((source, target), languages)
    return [number.text for number in differences.missing], [number.text for number in differences.invented]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It was 1,000.50 euros.", "Es waren 1.000,50 Euro."),
        ("at 2:30 pm", "um 14:30 Uhr"),
        ("at 2:30 p.m. or so", "um 14.30 Uhr"),
        ("at 2 p.m.", "um 14 Uhr"),
        ("at 12:15 am", "um 0:15 Uhr"),
        ("2 dogs and 300 cats", "zwei Hunde und dreihundert Katzen"),
        ("She is 7, he is twelve.", "Sie ist 7, er ist 12."),
        ("one apple", "1 Apfel"),
        ("in the 1980s", "in den 1980ern"),
        ("the 21st of May", "der 21. Mai"),
        ("1st of May", "erster Mai"),
        ("a 3x3 grid", "ein 3x3-Gitter"),
        ("-5 degrees", "minus 5 Grad"),
        ("06/06/1916", "6. Juni 1916"),
        ("June 6, 1916", "06.06.1916"),
        ("2024-05-01", "1. Mai 2024"),
        ("6 June 1916", "der 6. Juni des Jahres 1916"),
        ("On July 4th I may go.", "Am 4. Juli gehe ich."),
        ("250k people", "250.000 Leute"),
        ("250k people", "250 Tausend Leute"),
        ("2.5 million", "2,5 Mio. Leute"),
        ("2.5 million", "2.500.000"),
        ("two million", "2 Millionen"),
        ("1'000.50 francs", "1000,50 Franken"),
        ("€12", "12 Euro"),
        ("5%", "5 Prozent"),
        ("5 percent", "5 %"),
        ("1/2 cup", "½ Tasse"),
        ("1½ cups", "1,5 Tassen"),
        ("2h30", "2:30"),
        ("1.5 mg", "1.5 mg"),
        ("10 000 people", "10.000 Leute"),
        ("Python 3.11, v1.2.3", "Python 3.11, v1.2.3"),
        ("I have 1,2,3", "Ich habe 1,2,3"),
        ("a 3:2 win", "ein 3:2-Sieg"),
        ("Figure 17.158. Noise", "Abbildung 17.158. Rauschen"),
        ("flight BA17, H2O", "Flug BA17, H2O"),
        ("192.168.0.1 is down", "192.168.0.1 ist aus"),
        ("5-10 dogs", "5-10 Hunde"),
        ("٣ cats", "3 Katzen"),
        ("m² and CO₂", "m und CO"),
        ("5 kg, 3 l, 80 km/h, 20 °C", "5 Kilo, 3 Liter, 80 Stundenkilometer, 20 Grad"),
        ("20p, a 3d film, 2nd, 90s, 5pm, 4x", "20 Pence, ein 3D-Film, 2., 90er, 17 Uhr, 4-mal"),
        ("5 kilograms at 20 degrees", "5 kg bei 20 °C"),
        ("9" * 5000 + " a", "9" * 5000 + " a"),
    ],
)  # fmt: skip
def test_equal_values(source: str, target: str) -> None:
    """Catches a right translation that is taken for wrong."""
    assert compared(source, target) == ([], [])


@pytest.mark.parametrize(
    ("source", "target", "missing", "invented"),
    [
        ("9.99 euros", "999 Euro", ["9.99"], ["999"]),
        ("1.5 mg", "15 mg", ["1.5 mg"], ["15 mg"]),
        ("Take 5 mg.", "Nimm 5 ml.", ["5 mg"], ["5 ml"]),
        ("Take 785.2 mg.", "Nimm 785,2 Uhr.", ["785.2 mg"], ["785,2"]),
        ("1.500 mg", "1.500 mg", ["1.500 mg"], ["1.500 mg"]),  # one and a half, and fifteen hundred
        ("It was 1,000 euros.", "Es waren 10.000 Euro.", ["1,000"], ["10.000"]),
        ("-5 degrees", "5 Grad", ["-5"], ["5"]),
        ("10 cats", "22 Katzen", ["10"], ["22"]),
        ("at 2:30", "um 14:30 Uhr", ["2:30"], ["14:30"]),  # nothing says that it is in the afternoon
        ("at 2:30 pm", "um 15:30 Uhr", ["2:30 pm"], ["15:30"]),
        ("6 June 1916", "1916", ["6 June 1916"], ["1916"]),
        ("on May 12, 1974", "am 12, 1974", ["May 12, 1974"], ["12", "1974"]),  # the month is lost
        ("06/06/1916", "6. Juni 2016", ["06/06/1916"], ["6. Juni 2016"]),
        ("06.06.1916", "6. Juli 1916", ["06.06.1916"], ["6. Juli 1916"]),
        ("250k people", "2500k Leute", ["250"], ["2500"]),
        ("5 million", "5", ["5"], ["5"]),
        ("flight BA17", "Flug BA7", ["BA17"], ["BA7"]),
        ("flight BA17", "Flug 17", ["BA17"], ["17"]),
        ("agent 007", "Agent 07", ["007"], ["07"]),
        ("I paid 8.6.2023.", "8.6.2023 023 bezahlt.", [], ["023"]),
        ("€12", "12", ["€12"], ["12"]),
        ("€12", "$12", ["€12"], ["$12"]),
        ("5%", "5", ["5%"], ["5"]),
        ("20p", "200", ["20p"], ["200"]),
        ("It costs 20p.", "Es kostet 20.", ["20p"], ["20"]),
        ("Do you know 6?", "6 kennst du 6?", [], ["6"]),
        ("3x3", "33x3", ["3"], ["33"]),
        ("2 dogs", "Hunde", ["2"], []),
        ("five", "6", [], ["6"]),
    ],
)  # fmt: skip
def test_other_values(source: str, target: str, missing: list[str], invented: list[str]) -> None:
    """Catches a changed, lost or invented number that passes."""
    assert compared(source, target) == (missing, invented)


def test_the_language_decides() -> None:
    """Catches a point read as in English in a German text, and a language without separators."""
    assert compared("1.500 km", "1,500 km", DE_EN) == ([], [])
    assert compared("1.500 km", "1.5 km", DE_EN) == (["1.500 km"], ["1.5 km"])
    assert compared("1.500 km", "1.5 km", ("", "en")) == ([], [])
    assert compared("5万人", "50,000 people", ("zh", "en")) == ([], [])
    assert compared("1,00,000 रुपये", "100,000 rupees", ("hi", "en")) == ([], [])
    assert compared("пять", "5", ("ru", "en")) == ([], ["5"])  # text2num reads no Russian
    assert compared("five", "5", ("", "de")) == ([], [])


@pytest.mark.parametrize("seed", range(4))
def test_many_numbers_both_ways(seed: int) -> None:
    """Catches a number that another library writes for a language and that is not read as its value."""
    generator = random.Random(seed)
    for _ in range(2_500):
        value = Decimal(generator.randrange(10 ** generator.randint(1, 9))).scaleb(-generator.randint(0, 3))
        other = value + generator.choice([Decimal(1), Decimal("0.1"), value * 9 + 1])
        languages = generator.choice([EN_DE, DE_EN, ("fr", "en"), ("en", "es"), ("ru", "de"), ("pt-BR", "it")])
        if generator.random() < 0.3:
            value, other = round(value, 2), round(other, 2)
            written = [[format_currency(v, "EUR", locale=language.replace("-", "_")) for v in (value, other)]
                       for language in languages]  # fmt: skip
        else:
            written = [[format_decimal(v, locale=language.replace("-", "_"), decimal_quantization=False)
                        for v in (value, other)] for language in languages]  # fmt: skip
        (same, different), (target, _) = written
        assert compared(f"a {same} b", f"x {target} y", languages) == ([], []), (same, target, languages)
        assert compared(f"a {different} b", f"x {target} y", languages) != ([], []), (different, target, languages)


@pytest.mark.parametrize(
    ("line", "languages", "written"),
    [
        ("It costs €9.99.", EN_DE, ["9,99\u00a0€"]),
        ("Das kostet 9,99 €.", DE_EN, ["€9.99"]),
        ("-1,234.50 km", EN_DE, ["-1.234,50 km"]),
        ("1,234.50 km", ("en", "fr"), ["1\u202f234,50 km"]),
        ("1.500 km", DE_EN, ["1,500 km"]),
        ("1500 km", EN_DE, ["1500 km"]),
        ("with Python 3.11 at 14:30 on 6.6.1916", EN_DE, ["3.11", "14:30", "6.6.1916"]),
        ("It is 2:30 pm, not 2 a.m. yet", EN_DE, ["14:30", "2:00"]),
        ("um 14:30 Uhr", DE_EN, ["14:30"]),
        ("20% of 1½", EN_DE, ["20%", "1½"]),
        ("12. Mai 1974, 3. Juni", DE_EN, ["May 12, 1974", "June 3"]),
        ("on 30 February 2001", EN_DE, ["30 February 2001"]),
        ("1,500", ("en", ""), ["1,500"]),
    ],
)  # fmt: skip
def test_numbers_are_written_as_the_language_does(line: str, languages: tuple[str, str], written: list[str]) -> None:
    """Catches a number put back with the separators of the other language, and a version made a decimal."""
    numbers = read_numbers(line, languages[0])
    assert [write_number(number, line, *languages) for number in numbers] == written


@pytest.mark.parametrize(
    ("source", "translation", "languages", "adapted"),
    [
        ("Es sind 50,83 Meter und 1.500 Liter.", "It is 50,83 meters and 1.500 litres.", DE_EN,
         "It is 50.83 meters and 1,500 litres."),
        ("In Python 3.11, add 1.5 l", "In Python 3.11, add 1.5 l", EN_DE, "In Python 3.11, add 1,5 l"),
        ("Stop. Take 1.5 mg.", "Halt. Nimm 1.5 mg.", EN_DE, "Halt. Nimm 1,5 mg."),
        ("Figure 1.5", "Abbildung 1.5", EN_DE, "Abbildung 1.5"),
        ("1,5 und 2,5", "1.5 and 2,5", DE_EN, "1.5 and 2.5"),
        ("1,234", "1,234", ("en", "fr"), "1,234"),  # with a space it would be two words
        ("1,5", "1,5", ("", "en"), "1,5"),
    ],
)  # fmt: skip
def test_copied_numbers_get_the_separators_of_their_language(
    source: str, translation: str, languages: tuple[str, str], adapted: str
) -> None:
    """Catches a decimal that a reader takes for thousands, and one changed that the model had written rightly."""
    assert adapt_copied_numbers(source, translation, *languages) == adapted


@pytest.mark.parametrize(
    "text", ["1" * 20_000, "1." * 10_000, "1 " * 10_000, "a1" * 10_000, "€-" * 10_000, "½" * 9_000]
)
def test_long_numbers_take_linear_time(text: str) -> None:
    """Catches an expression that takes quadratic time; the limit of pytest is a minute."""
    assert compared(text, text) == ([], [])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (" ".join(map(str, range(100_000, 120_000))), " ".join(map(str, range(200_000, 220_000)))),
        ("5% " * 15_000, "5 " * 15_000),
        ("6.6.1916 " * 10_000, "June 7 " * 10_000),
        ("5 May " * 15_000, "6. Mai " * 15_000),
    ],
)  # fmt: skip
def test_many_differences_take_linear_time(source: str, target: str) -> None:
    """Catches a search through all other numbers for each number, which the time limit of tests ends."""
    missing, invented = compared(source, target)
    assert min(len(missing), len(invented)) >= 10_000
