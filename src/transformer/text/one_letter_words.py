"""Words of one letter before a full stop: initials, abbreviations, or the last words of sentences."""

import unicodedata
from typing import Final

import regex

_SENTENCE_STARTERS: Final = {
    "bg": (
        "А Ако Аз Без Беше В Вие Все Да До Едва Един Една За И Или Как Какво Когато Кой Ли На Не Ние Но От По С Сега "
        "След Тази Така Там Те Ти То Това Той Този Тя Тук Че Ще"
    ),
    "cs": (
        "A Ale Ano Až Byl Byla Bylo Co Do Jak Jako Je Jeho Jen Jsem Kde Kdo Když Já Má Můj My Na Ne Není O Od On Ona "
        "Oni Ono Pak Po Potom Pro Protože Proč S Se Ta Tak Tam Ten Teď Tento Tato To Toto Ty U V Ve Vy Z Za Ze"
    ),
    "da": (
        "Alle Da De Den Der Derfor Det Dette Disse Du Efter En Et For Han Hun Hvad Hvis Hvor Hvorfor I Ja Jeg Med "
        "Men Nej Nu Når Og Om På Så Til Vi"
    ),
    "de": (
        "Aber Alle Als Am An Auch Auf Aus Bei Beide Bis Da Damit Danach Dann Darum Das Dass Dem Den Denn Der Deren "
        "Des Deshalb Die Dies Diese Dieser Dieses Doch Dort Du Ein Eine Einem Einen Einer Eines Er Es Für Hat Heute "
        "Hier Ich Ihr Ihre Im In Ist Ja Jede Jeder Jedes Jetzt Kann Kein Keine Man Mein Meine Mit Nach Nein Nicht "
        "Noch Nun Nur Ob Oder Ohne Sein Seine Seit Sie Sind So Trotzdem Und Uns Unser Viele Vielleicht Von Vor Wann "
        "War Warum Was Weil Wenn Wer Wie Wir Wo Während Zum Zur Zwei"
    ),
    "el": (
        "Αν Από Αυτά Αυτή Αυτό Αυτός Αλλά Για Δεν Είναι Εγώ Εδώ Εκεί Εμείς Ένα Ένας Εσύ Η Θα Και Με Μια Μου Ναι Να Ο "
        "Οι Όταν Όχι Που Πού Πώς Σε Στη Στην Στο Τα Τη Την Τι Τις Το Τον Του Τότε Τώρα"
    ),
    "en": (
        "A After All An And Another As At Because Both But Can Did Do Does Each Every For From Has Have He Her Here "
        "His How However I If In Is It Its It's Just Let Many Maybe Most My No Nobody Not Now On One Or Our Please "
        "She Since So Some Someone Such That The Their Then There These They This Those Three To Today Two Under Was "
        "We Well Were What When Where Which While Who Why Will With Yes Yet You Your"
    ),
    "es": (
        "A Al Ahora Allí Aquí Así Aunque Como Con Cuando Cómo De Después El Ella Ellas Ellos En Entonces Era Es Esa "
        "Ese Eso Esta Este Esto Estos Está Fue Ha Hay Hoy La Las Le Les Lo Los Luego Me Mi Mientras Muchos No Nos "
        "Nosotros O Para Pero Por Porque Que Qué Quién Se Ser Si Sin Sobre Su Sus Sí También Tengo Todo Todos Tú Un "
        "Una Y Ya Yo"
    ),
    "fi": (
        "Hän He Hyvä Ja Jos Joka Kaikki Kun Kuka Me Minä Mikä Missä Mitä Mutta Ne Nyt Nämä On Se Siellä Sinä Sitten "
        "Te Tämä Tässä Vaikka"
    ),
    "fr": (
        "À Alors Après Au Aussi Avec C'est Ce Ces Cet Cette Ceux Comme Comment Dans De Depuis Des Donc Du Elle Elles "
        "En Est Et Il Ils J'ai Je L'un La Le Les Leur Lui Ma Mais Mon Même Ne Non Nos Notre Nous On Ou Où Oui Par "
        "Parce Pas Pendant Pour Pourquoi Puis Quand Que Quel Quelle Qui Quoi Sa Sans Se Selon Si Son Sur Tous Tout "
        "Toutes Tu Un Une Voici Voilà Vous Y"
    ),
    "hr": (
        "A Ali Ako Bez Bila Bilo Bio Da Do Gdje I Ili Iz Ja Jer Još Kad Kada Kako Mi Moj Na Ne Nije O Od On Ona Oni "
        "Ono Ova Ovaj Ovo Po Sada Se Su Ta Taj Tada Tamo Ti To U Vi Za Zašto Što"
    ),
    "hu": "A Akkor Az Azt Azok De Egy Ez Ezek Ezt És Én Ha Hol Igen Itt Ki Mert Mi Miért Most Nem Ő Ők Ott Te Ti Van",
    "it": (
        "A Adesso Al Alla Allora Anche Anzi Che Chi Ci Come Con Cosa Così Da Dal Del Della Di Dopo Dove E È Era Ecco "
        "Gli Ha Ho I Il In Io La Le Lei Lo Loro Lui Ma Mentre Mi Mia Mio Nel Nella Noi Non Ogni Ora Per Perché Però "
        "Poi Qua Quale Quando Quella Quello Questa Queste Questi Questo Qui Se Si Sono Sua Suo Sì Tu Tutti Tutto Un "
        "Un'altra Una Uno Voi"
    ),
    "nl": (
        "Aan Al Alle Als Bij Daar Daarna Dan Dat De Deze Die Dit Door Dus Een En Er Haar Heeft Het Hier Hij Hoe Ik "
        "In Is Ja Je Jij Kan Maar Met Mijn Na Naar Nee Niet Nog Nu Of Om Ook Op Over Te Toen U Uit Van Veel Voor "
        "Waar Waarom Wat We Wie Wij Ze Zij Zijn Zo"
    ),
    "no": (
        "Alle Da De Den Der Derfor Det Dette Disse Du Etter En Et For Han Hun Hva Hvis Hvor Hvorfor I Ja Jeg Med Men "
        "Nei Nå Når Og Om På Så Til Vi"
    ),
    "pl": (
        "A Ale Bo Bez Był Była Było Być Co Czy Dla Do Dlaczego Dlatego Gdy Gdzie I Ja Jak Jaki Jeśli Jest Już Kiedy "
        "Kto Ma Mam Mój My Na Nie O Od On Ona Oni Ono Po Potem Przed Są Ta Tak Tam Te Ten Teraz To Ty U W Wszystko "
        "Wtedy Wy Z Za Że"
    ),
    "pt": (
        "A Agora Ali Ao Após Aqui As Assim Até Com Como Da De Depois Do E É Ela Elas Ele Eles Em Então Era Essa Esse "
        "Esta Este Está Eu Foi Há Hoje Isso Isto Já Mas Me Meu Minha Muito Na Nem No Nos Não Nós O Onde Os Ou Para "
        "Pela Pelo Por Porque Qual Quando Que Quem Se Sem Ser Seu Sim Sua São Também Tem Tenho Todo Todos Tu Um Uma "
        "Você Vocês"
    ),
    "ro": (
        "A Acest Aceasta Acum Am Apoi Are Asta Așa Atunci Ce Cine Când Cu Cum Da Dacă Dar De După Ea Ei El Ele Este "
        "Eu Eram Iar Ieri În La Mai Nu Noi O Pe Pentru Sau Se Să Tu Un Unde Voi Și"
    ),
    "ru": (
        "А Без Был Была Были Было Быть В Вам Вас Во Вот Все Всё Вы Где Да Даже Для До Его Ему Если Есть Ещё Её Же За "
        "Здесь И Из Или Им Их К Как Какой Когда Кто Меня Мне Мой Мы На Над Не Нет Но Ну О Об Он Она Они Оно От Очень "
        "По Под Пока Потом Потому Почему При С Сегодня Сейчас Со Так Такой Там Теперь То Тогда Только Тот Ты У Уже "
        "Хотя Чем Что Чтобы Эта Эти Это Этот Я"
    ),
    "sv": (
        "Alla De Den Denna Det Detta Dessa Där Därför Du Efter En Ett För Han Hon Hur I Inte Ja Jag Man Med Men Nej "
        "Nu När Och Om På Sedan Så Till Under Vad Var Varför Vem Vi Är"
    ),
    "tr": (
        "Ama Ancak Bana Belki Ben Benim Bir Biz Bu Bunlar Bunu Burada Çok Çünkü Daha Eğer Evet Hayır Her Hiç Kim Ne "
        "Neden Nerede O Ona Onlar Onu Onun Orada Sen Siz Sonra Şimdi Şu Ve Ya Yok"
    ),
    "uk": (
        "А Але Без Був Була Було Були В Ви Він Вона Вони Воно Все Де До Для Добре Є За З І Із Його Й Її Їх Коли Куди "
        "Ми Мій На Навіть Не Ні Ну О Після По Потім При Про Так Там Тепер Ти То Тоді Тому У Хто Це Цей Ця Чи Чому Що "
        "Щоб Я Як Якщо"
    ),
}
_RELATED: Final = {
    "be": "ru",
    "bs": "hr",
    "ca": "es",
    "gl": "pt",
    "lb": "de",
    "nn": "no",
    "sk": "cs",
    "sl": "hr",
}
_STARTERS: Final = {code: frozenset(words.split()) for code, words in _SENTENCE_STARTERS.items()}
"""Words that often begin a sentence, and are not surnames."""
_LETTERED: Final = frozenset(
    [
        "block",
        "category",
        "class",
        "exam",
        "figure",
        "gate",
        "grade",
        "grades",
        "group",
        "hepatitis",
        "level",
        "option",
        "part",
        "phase",
        "plan",
        "point",
        "room",
        "section",
        "step",
        "team",
        "type",
        "variant",
        "version",
        "vitamin",
        "fall",
        "gruppe",
        "kategorie",
        "klasse",
        "note",
        "phase",
        "punkt",
        "stufe",
        "teil",
        "typ",
        "variante",
        "vitamine",
        "catégorie",
        "classe",
        "groupe",
        "niveau",
        "partie",
        "vitamine",
        "grupo",
        "clase",
        "opción",
        "vitamina",
        "opção",
        "tipo",
        "piano",
        "gruppo",
        "план",
        "витамин",
        "группа",
        "группы",
        "группу",
        "класс",
        "категория",
        "вариант",
        "тип",
        "вітамін",
        "група",
        "клас",
        "skupina",
        "skupiny",
        "vitamín",
        "třída",
        "typu",
        "plán",
        "plano",
    ]
)
"""Words that a letter follows: it is the last word of the sentence then, as in `plan B.`"""
_ABBREVIATED_VOWELS: Final = {"de": "aeiouäöü", "lb": "aeiouäöü", "pl": "o", "ru": "о", "uk": "о", "be": "о"}
"""Vowels that are abbreviations before a full stop; other vowels are words in many languages: `Il y en a.`"""
_VOWELS: Final = frozenset("aeiouyøæœıαεηιουωаеиіоуыэюяєѝ")
_ENDING: Final = frozenset({"p. m.", "a. m.", "т. д.", "т. п."})
"""Abbreviations that often end a sentence."""
ONE_LETTER: Final = regex.compile(r"(?<![^\s])(?<letter>\p{L}\p{M}*)\.[ ](?=\S)")
"""Pattern of a word of one letter with a full stop and the white space after it."""
_INITIAL_BEFORE: Final = regex.compile(r"(?:^|[\s.])\p{L}\p{M}*\.\Z")
_NEXT: Final = regex.compile(r"(?<word>[\p{L}\p{M}'’]+)(?<period>\.?)")
LOWER: Final = r"(?!\p{Georgian})\p{Ll}"
"""Pattern of a lower-case letter; Georgian has no capitals in sentences."""
_LOWER: Final = regex.compile(LOWER)
_MAX_WORD: Final = 40


def starts_sentence(word: str, code: str) -> bool:
    """Whether a word with a capital letter often begins a sentence, rather than being a name."""
    starters = _STARTERS.get(_RELATED.get(code, code), _STARTERS["en"])
    return word in starters or word.partition("'")[0].partition("’")[0] in starters


def one_letter_word_ends(text: str, start: int, end: int, code: str) -> bool | None:
    """Whether a sentence ends after a word of one letter with a full stop; None if its script leaves that open.

    Args:
        text: Text in which each run of white space is one space.
        start: Position of the letter.
        end: Position after the full stop and the space.
        code: Language of the text (ISO 639-1).
    """
    letter = unicodedata.normalize("NFC", text[start : text.index(".", start)])
    following = _NEXT.match(text, end, end + _MAX_WORD)
    word = following["word"] if following else ""
    if _LOWER.match(word):
        return False
    previous = text[max(0, start - _MAX_WORD) : max(0, start - 1)].rpartition(" ")[2]
    is_series = _INITIAL_BEFORE.search(previous) is not None
    if following and following["period"] and len(unicodedata.normalize("NFC", word)) == 1 and _is_cased(letter):
        return False  # another initial follows
    if not _is_cased(letter):
        return _uncased_letter_ends(letter, is_series=is_series)
    if not word:
        return None
    is_start = starts_sentence(word, code)
    if is_series:
        return is_start and (f"{previous} {letter}." in _ENDING or (letter.isupper() and not previous[0].islower()))
    if letter.isupper():
        return _capital_ends(letter, previous, code, is_start=is_start)
    return is_start or not _is_abbreviated(letter, code)


def _capital_ends(letter: str, previous: str, code: str, *, is_start: bool) -> bool:
    """Whether a sentence ends after a capital that is not part of a series of initials."""
    if not previous or previous[-1:] in ".!?":
        return False  # the sentence begins with an initial
    if is_start or previous.lower() in _LETTERED or not previous[-1].isalpha():
        return True
    return letter == "I" and code == "en" and previous[0].islower()


def _uncased_letter_ends(letter: str, *, is_series: bool) -> bool | None:
    """Whether a sentence ends after a letter of a script without capitals."""
    if is_series or unicodedata.name(letter[0], "").startswith("ARABIC"):
        return False
    return None


def _is_abbreviated(letter: str, code: str) -> bool:
    base = unicodedata.normalize("NFD", letter)[0]
    return letter in _ABBREVIATED_VOWELS.get(code, "") or base not in _VOWELS


def _is_cased(letter: str) -> bool:
    return letter.lower() != letter.upper() and not unicodedata.name(letter[0], "").startswith("GEORGIAN")
