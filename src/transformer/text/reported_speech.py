"""Reporting clauses, such as `he said` after a quote: they belong to the sentence of the quote."""

from typing import Final

import regex

_CLAUSES: Final = (
    # Arabic
    r"(?:قال|سأل|أجاب|صاح|صرخ|هتف)(?:ت|وا)?(?=[\s،.])",
    # Chinese
    r"[\p{Han}·]{0,6}?(?:[说說问問喊叫道答]|回答|[说說问問喊叫答笑]道)[着著了]?(?=[。，,！!？?…])",
    # English
    r"(?!(?:He|She|It|We|You|They)\b)(?:I|\p{Lu}[\w'’]+(?: \p{Lu}[\w'’.]+)?)"
    r" (?:said|says|asked|replied|answered|shouted|cried|exclaimed|whispered)\b",
    # Hebrew
    r"(?:(?:אמר|שאל|צעק)(?:ה|ו)?|ענ(?:ה|תה|ו))(?=[\s,.])",
    # Hindi
    r"(?:\S+ ){0,2}(?:कहा|पूछा|बोला|बोली|बोले)(?=[\s।,])",
    # Japanese
    r"って|との|とか|を|の(?=\p{Han})|などと|なんて"
    r"|と(?!ても|ころ|き[はにどの、]|もだ|もかく|もあれ|にかく|うとう|りあえず|なり[のに]|つぜん|たん|ある)",
    # Korean
    r"(?:이?라고|이?라며|이?라는|하고|하며)(?=[\s,])|\p{Hangul}+[이가은는] (?:말했|물었|외쳤|대답했)",
)
_CLAUSE: Final = regex.compile("|".join(_CLAUSES))
_CLOSING_QUOTE: Final = regex.compile(r"[\p{Pf}\p{Pi}\"'」』]")


def has_reporting_clause(hidden: str, text: str, start: int) -> bool:
    """Whether a reporting clause follows a quote.

    Args:
        hidden: Characters between the full stop and the text that follows.
        text: Text without quotes.
        start: Position in the text after the quote.
    """
    return _CLOSING_QUOTE.search(hidden) is not None and _CLAUSE.match(text, start) is not None
