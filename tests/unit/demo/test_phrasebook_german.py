"""The German of the demonstration corpus against translations and tables written by hand."""

import re
from functools import cache
from itertools import product

import pytest

from phrasebook.clauses import Element, Predicate
from phrasebook.grammar import Cell, cells
from phrasebook.phrases import (
    ARTICLES,
    NEUTRAL,
    POSSESSIVES,
    Determiner,
    Nominal,
    clock_times,
    dates,
    noun_phrase,
    numbers,
)
from phrasebook.words import NOUNS

pytestmark = pytest.mark.slow  # the grammar is a tool: what ships is the corpus that it made

# Written by hand, phenomenon by phenomenon; the grammar must give exactly this German.
TRANSLATIONS = {
    "gender and case": """
        I buy a red coat. | Ich kaufe einen roten Mantel.
        I buy a red dress. | Ich kaufe ein rotes Kleid.
        I buy a red blouse. | Ich kaufe eine rote Bluse.
        The old man reads the newspaper. | Der alte Mann liest die Zeitung.
        The young woman reads an interesting book. | Die junge Frau liest ein interessantes Buch.
        This clever child finds these black cats. | Dieses kluge Kind findet diese schwarzen Katzen.
        We sell these expensive cars. | Wir verkaufen diese teuren Autos.
        They sell expensive cars. | Sie verkaufen teure Autos.
        The doctor helps the sick child. | Der Arzt hilft dem kranken Kind.
        You help my old neighbour. | Du hilfst meinem alten Nachbarn.
        She thanks clever students. | Sie dankt klugen Studenten.
        The child follows the young farmer. | Das Kind folgt dem jungen Bauern.
        He drinks cold water. | Er trinkt kaltes Wasser.
        They drink the fresh milk. | Sie trinken die frische Milch.
    """,
    "possessives": """
        Your sister looks for her black cat. | Deine Schwester sucht ihre schwarze Katze.
        Our uncle repairs my new clock. | Unser Onkel repariert meine neue Uhr.
        His tired aunt sells our old house. | Seine müde Tante verkauft unser altes Haus.
        Their friends visit their mother. | Ihre Freunde besuchen ihre Mutter.
        I show her father your red bicycle. | Ich zeige ihrem Vater dein rotes Fahrrad.
        He gives our grandmother his small picture. | Er gibt unserer Großmutter sein kleines Bild.
    """,
    "prepositions": """
        The man buys a new coat for the woman. | Der Mann kauft einen neuen Mantel für die Frau.
        He writes a letter for the old king. | Er schreibt einen Brief für den alten König.
        She works without my tired friend. | Sie arbeitet ohne meinen müden Freund.
        The girl plays with the friendly boy. | Das Mädchen spielt mit dem freundlichen Jungen.
        I get a long letter from the doctor. | Ich bekomme einen langen Brief vom Arzt.
        He gets a letter from his young sister. | Er bekommt einen Brief von seiner jungen Schwester.
        The child goes to the baker. | Das Kind geht zum Bäcker.
        You go to the queen today. | Du gehst heute zur Königin.
        My son lives with the teacher. | Mein Sohn wohnt beim Lehrer.
        We live with our aunts. | Wir wohnen bei unseren Tanten.
        The teachers live in Vienna. | Die Lehrer wohnen in Wien.
        Her brother waits for the slow bus. | Ihr Bruder wartet auf den langsamen Bus.
    """,
    "verb second and the place of time": """
        Today the old man buys a red car. | Heute kauft der alte Mann ein rotes Auto.
        The old man buys a red car today. | Der alte Mann kauft heute ein rotes Auto.
        In the evening I read my book. | Am Abend lese ich mein Buch.
        Every day you eat an egg. | Jeden Tag isst du ein Ei.
        My brother flies to Rome in July. | Mein Bruder fliegt im Juli nach Rom.
        On Sunday he drives to Munich. | Am Sonntag fährt er nach München.
        The lady sings with her son on Friday. | Die Dame singt am Freitag mit ihrem Sohn.
        After breakfast the queen gives him a pear. | Nach dem Frühstück gibt die Königin ihm eine Birne.
    """,
    "separable verbs": """
        The woman calls the doctor. | Die Frau ruft den Arzt an.
        The woman wants to call the doctor. | Die Frau will den Arzt anrufen.
        The boy sleeps because the woman calls the doctor. | Der Junge schläft, weil die Frau den Arzt anruft.
        You put on your new coat. | Du ziehst deinen neuen Mantel an.
        I open the small window. | Ich mache das kleine Fenster auf.
        She closes the door on Monday. | Sie macht am Montag die Tür zu.
        He throws away the old newspaper. | Er wirft die alte Zeitung weg.
        The boy takes along a heavy suitcase. | Der Junge nimmt einen schweren Koffer mit.
        Their daughter tidies up the kitchen. | Ihre Tochter räumt die Küche auf.
        They come back after work. | Sie kommen nach der Arbeit zurück.
        My aunt watches television in the afternoon. | Meine Tante sieht am Nachmittag fern.
        The fast train leaves at half past twelve. | Der schnelle Zug fährt um halb eins ab.
    """,
    "modal verbs": """
        The boy can repair the bicycle. | Der Junge kann das Fahrrad reparieren.
        You must help your father. | Du musst deinem Vater helfen.
        We may eat the fresh rolls. | Wir dürfen die frischen Brötchen essen.
        I want to get up in the morning. | Ich will am Morgen aufstehen.
        On Tuesday the students want to invite the teacher. | Am Dienstag wollen die Studenten den Lehrer einladen.
        They can dance in the evening. | Sie können am Abend tanzen.
    """,
    "subordinate clauses": """
        I know that the child sleeps. | Ich weiß, dass das Kind schläft.
        My mother hopes that he takes the bus. | Meine Mutter hofft, dass er den Bus nimmt.
        We believe that the boy can read this book. | Wir glauben, dass der Junge dieses Buch lesen kann.
        She says that the king does not work. | Sie sagt, dass der König nicht arbeitet.
        She is happy because I invite her brother. | Sie ist glücklich, weil ich ihren Bruder einlade.
        You laugh when the teacher puts on his jacket. | Du lachst, wenn der Lehrer seine Jacke anzieht.
        If the woman calls the doctor, the child sleeps. | Wenn die Frau den Arzt anruft, schläft das Kind.
        If we open the doors, you are tired. | Wenn wir die Türen aufmachen, bist du müde.
    """,
    "negation": """
        The farmer does not buy a house. | Der Bauer kauft kein Haus.
        The farmer does not sell the horse. | Der Bauer verkauft das Pferd nicht.
        She does not drink cold milk. | Sie trinkt keine kalte Milch.
        We do not find red blouses. | Wir finden keine roten Blusen.
        I do not help a king. | Ich helfe keinem König.
        They do not call the teacher. | Sie rufen den Lehrer nicht an.
        He cannot open the box. | Er kann die Kiste nicht aufmachen.
        You do not want to wait for my uncle. | Du willst nicht auf meinen Onkel warten.
        On Monday the man does not work. | Am Montag arbeitet der Mann nicht.
        The coffee is not warm. | Der Kaffee ist nicht warm.
    """,
    "questions": """
        Do you buy a red skirt? | Kaufst du einen roten Rock?
        Does he call my sister today? | Ruft er heute meine Schwester an?
        Can I open the window? | Kann ich das Fenster aufmachen?
        Does the boy want to see the ship? | Will der Junge das Schiff sehen?
        Are your shirts new? | Sind deine Hemden neu?
        What does the girl put on? | Was zieht das Mädchen an?
        What can we bring along? | Was können wir mitbringen?
        Whom do you pick up? | Wen holst du ab?
        Where does the queen sleep? | Wo schläft die Königin?
        When does your train arrive? | Wann kommt dein Zug an?
        Why do they carry the tables? | Warum tragen sie die Tische?
        Who meets the famous lady? | Wer trifft die berühmte Dame?
        Who can repair my computer? | Wer kann meinen Computer reparieren?
    """,
    "pronouns": """
        The man calls me. | Der Mann ruft mich an.
        My sister helps him. | Meine Schwester hilft ihm.
        The girls thank us. | Die Mädchen danken uns.
        Today I visit them. | Heute besuche ich sie.
        The lady waits for you. | Die Dame wartet auf dich.
        We meet her on Thursday. | Wir treffen sie am Donnerstag.
        The boy shows them a beautiful bird. | Der Junge zeigt ihnen einen schönen Vogel.
        The man sends her an interesting letter. | Der Mann schickt ihr einen interessanten Brief.
    """,
    "numbers, dates and clock times": """
        He eats twenty-one apples. | Er isst einundzwanzig Äpfel.
        We need sixty-seven small chairs. | Wir brauchen siebenundsechzig kleine Stühle.
        I buy two eggs and sixteen rolls. | Ich kaufe zwei Eier und sechzehn Brötchen.
        You help thirty men. | Du hilfst dreißig Männern.
        My grandmother is ninety-nine years old. | Meine Großmutter ist neunundneunzig Jahre alt.
        On the third of May he sells a boat. | Am dritten Mai verkauft er ein Boot.
        We arrive on the seventh of March. | Wir kommen am siebten März an.
        I write a poem on the twenty-first of June. | Ich schreibe am einundzwanzigsten Juni ein Gedicht.
        At half past seven I get up. | Um halb acht stehe ich auf.
        The bus leaves at a quarter past three. | Der Bus fährt um Viertel nach drei ab.
        They sleep at one o'clock. | Sie schlafen um ein Uhr.
        At ten to one she cooks. | Um zehn vor eins kocht sie.
        The old woman works on Saturday. | Die alte Frau arbeitet am Samstag.
    """,
    "verbs that change their stem": """
        You read a funny story. | Du liest eine lustige Geschichte.
        He sees the white ship. | Er sieht das weiße Schiff.
        She takes the green taxi. | Sie nimmt das grüne Taxi.
        You give the boy a ball. | Du gibst dem Jungen einen Ball.
        He washes the tomatoes. | Er wäscht die Tomaten.
        You carry my bag. | Du trägst meine Tasche.
        She invites the farmer. | Sie lädt den Bauern ein.
        You sleep in May. | Du schläfst im Mai.
        You work in August. | Du arbeitest im August.
        You dance on Wednesday. | Du tanzt am Mittwoch.
    """,
}
PAIRS = [
    pytest.param(*(side.strip() for side in line.split("|")), id=line.split("|")[0].strip())
    for lines in TRANSLATIONS.values()
    for line in lines.strip().splitlines()
]


NUMBER_WORDS = """
    zwei drei vier fünf sechs sieben acht neun
    zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
    zwanzig einundzwanzig zweiundzwanzig dreiundzwanzig vierundzwanzig fünfundzwanzig sechsundzwanzig
    siebenundzwanzig achtundzwanzig neunundzwanzig
    dreißig einunddreißig zweiunddreißig dreiunddreißig vierunddreißig fünfunddreißig sechsunddreißig
    siebenunddreißig achtunddreißig neununddreißig
    vierzig einundvierzig zweiundvierzig dreiundvierzig vierundvierzig fünfundvierzig sechsundvierzig
    siebenundvierzig achtundvierzig neunundvierzig
    fünfzig einundfünfzig zweiundfünfzig dreiundfünfzig vierundfünfzig fünfundfünfzig sechsundfünfzig
    siebenundfünfzig achtundfünfzig neunundfünfzig
    sechzig einundsechzig zweiundsechzig dreiundsechzig vierundsechzig fünfundsechzig sechsundsechzig
    siebenundsechzig achtundsechzig neunundsechzig
    siebzig einundsiebzig zweiundsiebzig dreiundsiebzig vierundsiebzig fünfundsiebzig sechsundsiebzig
    siebenundsiebzig achtundsiebzig neunundsiebzig
    achtzig einundachtzig zweiundachtzig dreiundachtzig vierundachtzig fünfundachtzig sechsundachtzig
    siebenundachtzig achtundachtzig neunundachtzig
    neunzig einundneunzig zweiundneunzig dreiundneunzig vierundneunzig fünfundneunzig sechsundneunzig
    siebenundneunzig achtundneunzig neunundneunzig
"""
ENGLISH_ONES = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ENGLISH_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
ENGLISH_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = """
    first ersten, second zweiten, third dritten, fourth vierten, fifth fünften, sixth sechsten, seventh siebten,
    eighth achten, ninth neunten, tenth zehnten, eleventh elften, twelfth zwölften, thirteenth dreizehnten,
    fourteenth vierzehnten, fifteenth fünfzehnten, sixteenth sechzehnten, seventeenth siebzehnten,
    eighteenth achtzehnten, nineteenth neunzehnten, twentieth zwanzigsten, twenty-first einundzwanzigsten,
    twenty-second zweiundzwanzigsten, twenty-third dreiundzwanzigsten, twenty-fourth vierundzwanzigsten,
    twenty-fifth fünfundzwanzigsten, twenty-sixth sechsundzwanzigsten, twenty-seventh siebenundzwanzigsten,
    twenty-eighth achtundzwanzigsten, twenty-ninth neunundzwanzigsten, thirtieth dreißigsten,
    thirty-first einunddreißigsten
"""

# Nominative, accusative, dative, from a school grammar.
PARADIGMS = [
    ("table", ARTICLES[0], "new", False, "der neue Tisch, den neuen Tisch, dem neuen Tisch"),
    ("lamp", ARTICLES[0], "new", False, "die neue Lampe, die neue Lampe, der neuen Lampe"),
    ("car", ARTICLES[0], "new", False, "das neue Auto, das neue Auto, dem neuen Auto"),
    ("table", ARTICLES[0], "new", True, "die neuen Tische, die neuen Tische, den neuen Tischen"),
    ("table", ARTICLES[1], "old", False, "ein alter Tisch, einen alten Tisch, einem alten Tisch"),
    ("lamp", ARTICLES[1], "old", False, "eine alte Lampe, eine alte Lampe, einer alten Lampe"),
    ("car", ARTICLES[1], "old", False, "ein altes Auto, ein altes Auto, einem alten Auto"),
    ("table", ARTICLES[2], "big", False, "dieser große Tisch, diesen großen Tisch, diesem großen Tisch"),
    ("lamp", ARTICLES[2], "big", True, "diese großen Lampen, diese großen Lampen, diesen großen Lampen"),
    ("son", POSSESSIVES[4], "tired", False, "unser müder Sohn, unseren müden Sohn, unserem müden Sohn"),
    ("aunt", POSSESSIVES[3], "", True, "ihre Tanten, ihre Tanten, ihren Tanten"),
    ("house", POSSESSIVES[5], "small", False, "ihr kleines Haus, ihr kleines Haus, ihrem kleinen Haus"),
    ("coffee", NEUTRAL, "cold", False, "kalter Kaffee, kalten Kaffee, kaltem Kaffee"),
    ("milk", NEUTRAL, "cold", False, "kalte Milch, kalte Milch, kalter Milch"),
    ("beer", NEUTRAL, "cold", False, "kaltes Bier, kaltes Bier, kaltem Bier"),
    ("car", NEUTRAL, "expensive", True, "teure Autos, teure Autos, teuren Autos"),
    ("student", ARTICLES[1], "young", False, "ein junger Student, einen jungen Studenten, einem jungen Studenten"),
    ("egg", NEUTRAL, "fresh", True, "frische Eier, frische Eier, frischen Eiern"),
]


def tokens(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text)


def required_words(element: Element, slot: str) -> frozenset[str]:
    """The words that a sentence with this element must have; the first word of a verb may be inflected."""
    if isinstance(element, Predicate):
        texts = [part.objective for part in (element.dative, element.accusative) if part]
        texts += [element.complement.english] if element.complement else []
        return frozenset(tokens(" ".join(texts + element.verb.english.split(" ")[1:])))
    text = element.objective if isinstance(element, Nominal) and slot == "dative" else element.english
    return frozenset(tokens(text.removeprefix("want ")))


WordLists = dict[tuple[int, str], list[tuple[frozenset[str], Element]]]


@cache
def indexed_cells() -> tuple[WordLists, list[tuple[tuple[tuple[int, str], ...], Cell]]]:
    lists: WordLists = {}
    indexed: list[tuple[tuple[tuple[int, str], ...], Cell]] = []
    for cell in cells():
        keys = tuple((id(factor), slot) for factor, slot in zip(cell.factors, cell.slots, strict=True))
        for key, factor in zip(keys, cell.factors, strict=True):
            if key not in lists:
                lists[key] = [(required_words(element, key[1]), element) for element in factor]
        indexed.append((keys, cell))
    return lists, indexed


def grammar_translations(english: str) -> set[str]:
    """All German that the grammar gives for an English sentence, found by trying every cell on its words."""
    words = {*tokens(english), *tokens(english[0].lower() + english[1:])}
    words |= {"can"} if "cannot" in words else set()
    lists, indexed = indexed_cells()
    fitting = {key: [one for needed, one in members if needed <= words] for key, members in lists.items()}
    possible = {key for key, members in fitting.items() if members}
    translations: set[str] = set()
    for keys, cell in indexed:
        if possible.issuperset(keys):
            rendered = (cell.render(chosen) for chosen in product(*(fitting[key] for key in keys)))
            translations |= {german for source, german in rendered if source == english}
    return translations


@pytest.mark.parametrize(("english", "german"), PAIRS)
def test_hand_written_translation(english: str, german: str) -> None:
    """Catches wrong genders, endings, word order, separable prefixes or negation, and a second translation."""
    assert grammar_translations(english) == {german}


@pytest.mark.parametrize(("noun", "determiner", "adjective", "plural", "forms"), PARADIGMS)
def test_paradigm(noun: str, determiner: Determiner, adjective: str, plural: bool, forms: str) -> None:
    """Catches a wrong cell in the tables of articles and adjective endings, also in cases that sentences rarely use."""
    assert noun_phrase(NOUNS[noun], determiner, adjective, plural).german == tuple(forms.split(", "))


def test_number_words() -> None:
    """Catches misspelled numbers (sechszehn, siebenzig, einsundzwanzig) and numbers out of step with the English."""
    english = [*ENGLISH_ONES[2:], *ENGLISH_TEENS.split()]
    english += [f"{tens}-{ones}".strip("-") for tens in ENGLISH_TENS for ones in ENGLISH_ONES]
    assert [(number.english, number.german) for number in numbers()] == list(
        zip(english, NUMBER_WORDS.split(), strict=True)
    )


def test_dates_and_clock_times() -> None:
    """Catches wrong ordinals (siebenten for siebten, einsten), a 30th of February, and half past as the same hour."""
    by_english = {phrase.english: phrase.german for phrase in (*dates(), *clock_times())}
    for entry in ORDINALS.split(","):
        english, german = entry.split()
        assert by_english[f"on the {english} of March"] == f"am {german} März"
    assert "on the thirtieth of February" not in by_english
    assert "on the thirty-first of June" not in by_english
    assert by_english["at half past eleven"] == "um halb zwölf"
    assert by_english["at a quarter to one"] == "um Viertel vor eins"
    assert by_english["at ten past four"] == "um zehn nach vier"
    assert len(by_english) == 366 + 72
