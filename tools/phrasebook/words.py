"""The lexicon of the demonstration corpus: English and German nouns, adjectives, verbs and fixed expressions.

The tables are lines of text because they are read and checked by people far more often than by the program:
``"apple m Apfel Äpfel"`` is one noun with its gender and plural, ``"call an+rufen rufst ruft | family others"`` one
verb with its separable prefix, its forms after *du* and *er*, and the nouns or groups of nouns it takes as an object.
"""

from dataclasses import dataclass

__all__ = [
    "ADJECTIVES",
    "ADVERBS",
    "CITIES",
    "IRREGULAR_PLURALS",
    "IRREGULAR_STEMS",
    "MODALS",
    "MONTHS",
    "NOUNS",
    "VERBS",
    "WEEKDAYS",
    "Modal",
    "Noun",
    "Verb",
    "adjectives",
]

Forms = tuple[str, ...]
WordPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Modal:
    """A modal verb with its present tense; ``pairs`` is always empty, as for every word that combines with all."""

    english: str
    present: Forms
    pairs: tuple[WordPair, ...] = ()


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: English base form, German prefix ("" when none), infinitive without it, present tense, object nouns."""

    english: str
    prefix: str
    infinitive: str
    present: Forms
    objects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun; ``gender`` is the column 0 (der), 1 (die), 2 (das) of the ending tables."""

    english: str
    gender: int
    german: str
    german_plural: str
    weak: bool
    group: str


_NOUNS = {
    "family": "brother m Bruder Brüder, sister f Schwester Schwestern, mother f Mutter Mütter, father m Vater Väter, "
    "aunt f Tante Tanten, uncle m Onkel Onkel, daughter f Tochter Töchter, son m Sohn Söhne, "
    "grandmother f Großmutter Großmütter, friend m Freund Freunde, neighbour w Nachbar Nachbarn",
    "others": "man m Mann Männer, woman f Frau Frauen, child n Kind Kinder, boy w Junge Jungen, "
    "girl n Mädchen Mädchen, teacher m Lehrer Lehrer, doctor m Arzt Ärzte, student w Student Studenten, "
    "baker m Bäcker Bäcker, farmer w Bauer Bauern, lady f Dame Damen, king m König Könige, queen f Königin Königinnen",
    "clothes": "dress n Kleid Kleider, coat m Mantel Mäntel, shirt n Hemd Hemden, jacket f Jacke Jacken, "
    "skirt m Rock Röcke, blouse f Bluse Blusen",
    "food": "apple m Apfel Äpfel, pear f Birne Birnen, egg n Ei Eier, roll n Brötchen Brötchen, cake m Kuchen Kuchen, "
    "tomato f Tomate Tomaten, potato f Kartoffel Kartoffeln, sausage f Wurst Würste",
    "drinks": "coffee m Kaffee -, tea m Tee -, milk f Milch -, water n Wasser -, juice m Saft -, beer n Bier -",
    "texts": "book n Buch Bücher, letter m Brief Briefe, newspaper f Zeitung Zeitungen, "
    "story f Geschichte Geschichten, poem n Gedicht Gedichte",
    "furniture": "table m Tisch Tische, chair m Stuhl Stühle, lamp f Lampe Lampen, clock f Uhr Uhren, "
    "computer m Computer Computer",
    "goods": "ball m Ball Bälle, cup f Tasse Tassen, knife n Messer Messer, picture n Bild Bilder",
    "vehicles": "car n Auto Autos, bicycle n Fahrrad Fahrräder, boat n Boot Boote",
    "transport": "bus m Bus Busse, train m Zug Züge, taxi n Taxi Taxis, ship n Schiff Schiffe",
    "luggage": "bag f Tasche Taschen, suitcase m Koffer Koffer, box f Kiste Kisten, "
    "umbrella m Regenschirm Regenschirme",
    "openings": "door f Tür Türen, window n Fenster Fenster",
    "rooms": "room n Zimmer Zimmer, kitchen f Küche Küchen, garden m Garten Gärten, house n Haus Häuser",
    "animals": "dog m Hund Hunde, cat f Katze Katzen, horse n Pferd Pferde, bird m Vogel Vögel",
}
IRREGULAR_PLURALS = {"man": "men", "woman": "women", "child": "children", "knife": "knives"}

_PEOPLE = "old young friendly clever rich tired famous sick"
_GROUP_ADJECTIVES = {
    "family": _PEOPLE,
    "others": _PEOPLE,
    "clothes": "new red blue black white expensive cheap beautiful",
    "food": "fresh big small cheap expensive good",
    "drinks": "cold warm fresh good cheap",
    "texts": "new old long short funny interesting",
    "furniture": "new old big small expensive beautiful",
    "goods": "new old big small red beautiful",
    "vehicles": "red blue new old fast expensive",
    "transport": "old new fast slow green white",
    "luggage": "heavy small black red new old",
    "openings": "big small old new white green",
    "rooms": "big small old new beautiful",
    "animals": "big small black white old beautiful",
}
# Combinations that are grammatical but that nobody says.
_UNSAID = ("old boy", "young boy", "old girl", "old child", "young grandmother", "long newspaper", "short newspaper")
_ADJECTIVES = (
    "old alt, young jung, friendly freundlich, clever klug, rich reich, tired müde, famous berühmt, sick krank, "
    "new neu, red rot, blue blau, black schwarz, white weiß, green grün, expensive teuer, cheap billig, "
    "beautiful schön, fresh frisch, big groß, small klein, good gut, cold kalt, warm warm, long lang, short kurz, "
    "funny lustig, interesting interessant, fast schnell, slow langsam, heavy schwer, happy glücklich"
)
ADJECTIVES = {entry.split()[0]: entry.split()[1] for entry in _ADJECTIVES.split(", ")}
IRREGULAR_STEMS = {"teuer": "teur", "müde": "müd"}

# Groups in capitals select verbs by grammar; the words after the bar are nouns or groups of nouns.
_VERBS = {
    "thing": (
        "buy kaufen kaufst kauft | clothes food drinks furniture goods vehicles luggage book newspaper house",
        "sell verkaufen verkaufst verkauft | clothes food drinks furniture goods vehicles luggage animals book house",
        "see sehen siehst sieht | animals transport rooms vehicles family others",
        "find finden findest findet | clothes luggage goods rooms animals letter book",
        "look+for suchen suchst sucht | clothes luggage goods rooms animals letter book bus taxi",
        "need brauchen brauchst braucht | clothes drinks luggage furniture goods vehicles house",
        "read lesen liest liest | texts",
        "write schreiben schreibst schreibt | letter story poem book",
        "eat essen isst isst | food",
        "drink trinken trinkst trinkt | drinks",
        "wash waschen wäschst wäscht | clothes apple pear potato tomato car dog horse",
        "carry tragen trägst trägt | luggage furniture picture",
        "take nehmen nimmst nimmt | transport luggage",
        "repair reparieren reparierst repariert | vehicles furniture door window",
        "get bekommen bekommst bekommt | drinks letter newspaper book picture ball bicycle cake clock",
        "open auf+machen machst macht | openings luggage letter",
        "close zu+machen machst macht | openings luggage book",
        "put+on an+ziehen ziehst zieht | clothes",
        "bring+along mit+bringen bringst bringt | food drinks book newspaper ball picture",
        "take+along mit+nehmen nimmst nimmt | luggage dog cat ball book newspaper bicycle",
        "tidy+up auf+räumen räumst räumt | rooms",
        "throw+away weg+werfen wirfst wirft | clothes newspaper letter picture lamp chair potato tomato",
    ),
    "person": (
        "visit besuchen besuchst besucht | family others",
        "meet treffen triffst trifft | family others",
        "hear hören hörst hört | family others dog cat bird horse",
        "call an+rufen rufst ruft | family others",
        "invite ein+laden lädst lädt | family others",
        "pick+up ab+holen holst holt | family others",
    ),
    "waiting": ("wait+for warten wartest wartet | family others transport",),
    "dative": (
        "help helfen hilfst hilft | family others",
        "thank danken dankst dankt | family others",
        "follow folgen folgst folgt | family others",
    ),
    "giving": (
        "give geben gibst gibt | food drinks book letter newspaper goods bag",
        "show zeigen zeigst zeigt | clothes animals vehicles book letter picture rooms",
        "send schicken schickst schickt | letter book newspaper picture poem",
    ),
    "activity": (
        "sing singen singst singt",
        "dance tanzen tanzt tanzt",
        "work arbeiten arbeitest arbeitet",
        "swim schwimmen schwimmst schwimmt",
        "cook kochen kochst kocht",
        "play spielen spielst spielt",
        "arrive an+kommen kommst kommt",
        "come+back zurück+kommen kommst kommt",
    ),
    "state": (
        "sleep schlafen schläfst schläft",
        "laugh lachen lachst lacht",
        "get+up auf+stehen stehst steht",
        "watch+television fern+sehen siehst sieht",
    ),
    "travel": ("fly fliegen fliegst fliegt", "drive fahren fährst fährt"),
    "residence": ("live wohnen wohnst wohnt",),
    "visiting": ("go gehen gehst geht",),
    "departure": ("leave ab+fahren fährst fährt", "arrive an+kommen kommst kommt"),
    "saying": (
        "know wissen weißt weiß",
        "say sagen sagst sagt",
        "believe glauben glaubst glaubt",
        "hope hoffen hoffst hofft",
    ),
}

MONTHS = (
    "January/Januar, February/Februar, March/März, April/April, May/Mai, June/Juni, July/Juli, August/August, "
    "September/September, October/Oktober, November/November, December/Dezember"
)
ADVERBS = (
    "today/heute, sometimes/manchmal, every day/jeden Tag, every week/jede Woche, in the morning/am Morgen, "
    "in the afternoon/am Nachmittag, in the evening/am Abend, at the weekend/am Wochenende, in summer/im Sommer, "
    "in winter/im Winter, after work/nach der Arbeit, after the film/nach dem Film, "
    "after breakfast/nach dem Frühstück, before dinner/vor dem Abendessen, before the lesson/vor dem Unterricht"
)
WEEKDAYS = (
    "Monday/Montag, Tuesday/Dienstag, Wednesday/Mittwoch, Thursday/Donnerstag, Friday/Freitag, Saturday/Samstag, "
    "Sunday/Sonntag"
)
CITIES = (
    "Berlin/Berlin, Munich/München, Cologne/Köln, Vienna/Wien, Hamburg/Hamburg, London/London, Paris/Paris, Rome/Rom"
)
MODALS = (
    Modal("can", ("kann", "kannst", "kann", "können")),
    Modal("want to", ("will", "willst", "will", "wollen")),
    Modal("may", ("darf", "darfst", "darf", "dürfen")),
    Modal("must", ("muss", "musst", "muss", "müssen")),
)


def _noun(group: str, entry: str) -> Noun:
    english, gender, german, plural = entry.split()
    return Noun(english, "mfn".index("m" if gender == "w" else gender), german, plural, gender == "w", group)


NOUNS = {noun.english: noun for group, row in _NOUNS.items() for noun in (_noun(group, e) for e in row.split(", "))}


def _verb(entry: str) -> Verb:
    description, _, objects = entry.partition(" | ")
    english, german, second, third = description.split()
    prefix, _, infinitive = german.rpartition("+")
    nouns = [noun for word in objects.split() for noun in NOUNS.values() if word in (noun.english, noun.group)]
    present = (infinitive[:-2] + "e", second, third, infinitive)
    if infinitive == "wissen":
        present = ("weiß", second, third, infinitive)
    return Verb(english.replace("+", " "), prefix, infinitive, present, tuple(noun.english for noun in nouns))


VERBS = {kind: tuple(_verb(entry) for entry in entries) for kind, entries in _VERBS.items()}


def adjectives(noun: Noun) -> tuple[str, ...]:
    """Returns the English adjectives that go with a noun."""
    return tuple(word for word in _GROUP_ADJECTIVES[noun.group].split() if f"{word} {noun.english}" not in _UNSAID)
