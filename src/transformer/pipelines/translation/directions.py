"""The languages of a translation: those that the caller chooses, or that a model of several languages implies."""

import warnings
from collections.abc import Sequence

from transformer.errors import ConfigError
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.text.languages import base_language, language_name, matching_tag
from transformer.tokenizers.pair import TokenizerPair


def choose_languages(config: TranslatorConfig, tokenizers: TokenizerPair) -> tuple[str, str]:
    """Returns the source and the target language of a translation; empty for one that is not known.

    A target language must have a tag, if the model has any, and be the recorded one otherwise. The only one is the
    default. A source language that is not given is the only one that the model learned to translate from into the
    target language. A warning names a pair that the model did not learn (zero-shot translation, Johnson et al. 2017,
    Sec. 4.6).

    Args:
        config: Options of the translator.
        tokenizers: Tokenizers of the first model.

    Raises:
        ConfigError: The model does not translate to the target language.
    """
    source, target = config.source_language, config.target_language
    tags = tokenizers.target_languages
    if tags and tokenizers.source.language_prefix(config.task):
        return source, target
    tag = known_target(target, tokenizers, config.trained_target)
    if not tags:
        return source, tag
    if not tag:
        tag = tokenizers.source.tags[0] if len(tokenizers.source.tags) == 1 else ""
    learned = [pair_source for pair_source, pair_target in config.directions if pair_target == tag]
    if not source and len(set(learned)) == 1:
        source = learned[0]
    if source and learned and matching_tag(source, learned) is None:
        names = f"{language_name(source)} to {language_name(tag)}"
        pivot = _pivot(source, learned, config.directions)
        advice = f"translate through {language_name(pivot)}" if pivot else "do not rely on its translations"
        warnings.warn(
            f"the model did not learn {names} from any pair, and may write another language; {advice} (it learned "
            f"{', '.join('-'.join(pair) for pair in config.directions)})",
            stacklevel=4,
        )
    return source, tag


def _pivot(source: str, learned: Sequence[str], directions: Sequence[tuple[str, str]]) -> str | None:
    """Returns a language through which the model can translate by two pairs that it learned; None without one.

    Args:
        source: Source language, a BCP 47 tag.
        learned: Languages that the model learned to translate from into the target language.
        directions: All pairs that it learned, source and target.
    """
    reached = [middle for known, middle in directions if matching_tag(source, [known])]
    return next((middle for middle in learned if matching_tag(middle, reached)), None)


def known_target(target: str, tokenizers: TokenizerPair, trained_target: str | None) -> str:
    """Returns the tag of a target language, or the language itself if the model has no tags; empty for none.

    A model of one direction that records no target language takes any, as the statement of what it writes.

    Args:
        target: Target language as requested, a BCP 47 tag.
        tokenizers: Tokenizers of the model.
        trained_target: Language that a model of one direction writes, if it is recorded.

    Raises:
        ConfigError: The model does not translate to the language.
    """
    if not target:
        return target
    if tags := tokenizers.target_languages:
        if (tag := matching_tag(target, tags)) is None:
            raise ConfigError(
                f"target_language={target!r} is not a language that the model translates to; choose {_listed(tags)}"
            )
        return tag
    if trained_target and base_language(target) != base_language(trained_target):
        raise ConfigError(
            f"target_language={target!r} is not what the model writes, which is {language_name(trained_target)} only; "
            "leave it out, or choose another model"
        )
    return target


def check_target_language(config: TranslatorConfig, tokenizers: TokenizerPair) -> None:
    """Checks that the target language is known where the model has a tag for each of several.

    Raises:
        ConfigError: It is not given.
    """
    source = tokenizers.source
    if source.tags and not source.leading and not config.target_language:
        raise ConfigError(
            f"the model translates to several languages; choose one with target_language (--target-language on the "
            f"command line): {_listed(source.tags)}"
        )


def _listed(tags: tuple[str, ...]) -> str:
    most = 20
    names = ", ".join(tags[:most])
    return names if len(tags) <= most else f"{names} or one of {len(tags) - most} more"
