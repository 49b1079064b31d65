"""Builds the tokenizer of a published folder from its files, as `AutoTokenizer` of transformers does."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from transformer.config import JsonObject
from transformer.errors import BundleError, ConfigError, DataError
from transformer.tokenizers.library_checks import read_library_tokenizer
from transformer.tokenizers.sentencepiece import SPACE

TOKENIZER_FILE, VOCAB_TXT, VOCAB_JSON, MERGES_TXT, SPIECE_MODEL, CONFIG_FILE = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer_config.json"
)  # fmt: skip
ADDED_TOKENS_FILE, SPECIAL_TOKENS_FILE, MODEL_CONFIG = "added_tokens.json", "special_tokens_map.json", "config.json"
TOKENIZER_FILE_ONLY: Final = f"read from {TOKENIZER_FILE} alone, which AutoTokenizer of transformers writes; add it"
BERT, GPT2, LLAMA, T5 = "BertTokenizer", "GPT2Tokenizer", "LlamaTokenizer", "T5Tokenizer"
CLASSES: Final = {"bert": BERT, "gpt2": GPT2, "t5": T5}
"""Class of `transformers` by `model_type`, if the folder names none; other types have no class of their own."""
DEFAULT_TOKENS: Final[dict[str, dict[str, str]]] = {
    BERT: {
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"
    },
    GPT2: dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>"),
    LLAMA: {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    T5: {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
}  # fmt: skip
"""Special tokens of each class, for roles that the folder does not define."""
ROLES: Final = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Roles of special tokens, in the order in which `transformers` adds those that the vocabulary lacks."""
BERT_CONFIG: Final[dict[str, tuple[object, ...]]] = {
    "tokenizer_class": (
        None, "PreTrainedTokenizerFast",
        *(f"{name}Tokenizer{kind}" for name in ("Bert", "DistilBert", "Electra") for kind in ("", "Fast")),
    ),
    "word_tokenizer_type": (None, "basic"), "subword_tokenizer_type": (None, "wordpiece"),
    "do_basic_tokenize": (None, True), "never_split": (None, []),
}  # fmt: skip
"""Options of tokenizer_config.json, and the values for which words are split as BERT splits them."""
NORMALIZER_OPTIONS: Final = {
    "do_lower_case": ("lowercase", True), "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}  # fmt: skip
"""Options of a BERT tokenizer -> the same options of a BertNormalizer, and their defaults."""


def tokenizer_options(files: Mapping[str, bytes]) -> JsonObject:
    """Returns the options of a tokenizer: those of tokenizer_config.json and of the older special_tokens_map.json."""
    options: dict[str, Any] = json.loads(files.get(CONFIG_FILE, b"{}"))
    if "added_tokens_decoder" not in options:
        options |= json.loads(files.get(SPECIAL_TOKENS_FILE, b"{}"))
    return options


def special_token_names(files: Mapping[str, bytes]) -> dict[str, str]:
    """Returns the special tokens of a folder by role, e.g. "unk_token", with the defaults of its class."""
    return {role: token.content for role, token in _special_tokens(files, tokenizer_options(files)).items()}


def read_tokenizer_json(files: Mapping[str, bytes], n_tokens: int | None = None) -> str:
    """Returns the content of a tokenizer.json that tokenizes as `transformers` does with the files of a folder.

    Args:
        files: Small files of the folder by name.
        n_tokens: Number of tokens of the model. Special tokens with higher ids are dropped; they never represent text.

    Raises:
        BundleError: The folder has no tokenizer, a file is damaged, or a token that stands for text is beyond.
    """
    options = tokenizer_options(files)
    if TOKENIZER_FILE in files:
        text = files[TOKENIZER_FILE].decode("utf-8")
        content: dict[str, Any] = json.loads(text)
        if _apply_options(content, tokenizer_class(files, options), options):
            text = json.dumps(content, ensure_ascii=False)
        if _drop_tokens_beyond(content, n_tokens):
            text = json.dumps(content, ensure_ascii=False)
    else:
        text = _read_vocabulary(files)
    return _with_added_tokens(files, options, text, n_tokens)


def tokenizer_class(files: Mapping[str, bytes], options: JsonObject) -> str:
    """Returns the class of `transformers` that reads a folder; an empty string if it only reads tokenizer.json."""
    model: JsonObject = json.loads(files.get(MODEL_CONFIG, b"{}"))
    named = options.get("tokenizer_class") or model.get("tokenizer_class") or CLASSES.get(str(model.get("model_type")))
    name = str(named or "").removesuffix("Fast")
    name = BERT if name in ("DistilBertTokenizer", "ElectraTokenizer") else name
    if name == LLAMA and b'"ByteLevel"' in files.get(TOKENIZER_FILE, b""):
        return ""
    return name if name in DEFAULT_TOKENS else ""


def lowercases(files: Mapping[str, bytes]) -> bool:
    """Whether a folder's tokenizer lower-cases texts; False if there is none."""
    try:
        normalizer = read_library_tokenizer(read_tokenizer_json(files)).normalizer
    except (BundleError, DataError):
        return False
    return normalizer is not None and normalizer.normalize_str("AZ") == "az"


def _read_vocabulary(files: Mapping[str, bytes]) -> str:
    """Makes the content of a tokenizer.json from the files of older tokenizers.

    Raises:
        BundleError: The files are missing, or one is damaged.
    """
    try:
        if VOCAB_TXT in files:
            return _word_pieces(files).to_str()
        if VOCAB_JSON in files and MERGES_TXT in files:
            return _byte_pairs(files).to_str()
        if SPIECE_MODEL in files and tokenizer_class(files, tokenizer_options(files)) == T5:
            return _unigram(files).to_str()
    except (BundleError, ConfigError):
        raise
    except Exception as error:  # the library raises plain Exception
        damaged = next(name for name in (VOCAB_TXT, MERGES_TXT, SPIECE_MODEL) if name in files)
        raise BundleError(f"{damaged} is damaged; copy it again") from error
    if pieces := sorted(name for name in files if name.endswith(".model")):
        raise BundleError(
            f"there is {pieces[0]}, but no {TOKENIZER_FILE}, which is read; AutoTokenizer.from_pretrained('FOLDER')"
            ".save_pretrained('FOLDER') of transformers writes it"
        )
    raise BundleError(
        f"there is no {TOKENIZER_FILE}, nor {VOCAB_TXT}, nor {VOCAB_JSON} with {MERGES_TXT}; copy the whole folder "
        "(AutoTokenizer of transformers writes tokenizer.json)"
    )


def _special_tokens(files: Mapping[str, bytes], options: JsonObject) -> dict[str, AddedToken]:
    """Returns the special tokens of a folder by role."""
    named = DEFAULT_TOKENS.get(tokenizer_class(files, options), {})
    named = named | {role: options[role] for role in ROLES if options.get(role)}
    return {role: _token(named[role], special=True) for role in ROLES if role in named}


def _token(token: object, *, special: bool = False) -> AddedToken:
    """Reads a token, which is a text or an object with the properties of an `AddedToken`."""
    if not isinstance(token, dict):
        return AddedToken(str(token), special=special)
    properties = {name: value for name, value in token.items() if name not in ("__type", "special", "id")}
    return AddedToken(**properties, special=special or bool(token.get("special")))


def _apply_options(content: dict[str, Any], kind: str, options: JsonObject) -> bool:
    """Applies the options of a class to the content of its tokenizer.json; returns whether that changed it.

    Raises:
        BundleError: An option contradicts the content.
    """
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    before = json.dumps([content.get(part) for part in parts]), content.get("model", {}).get("unk_token")
    if kind == BERT:
        _apply_bert_options(content, options)
    if kind == GPT2:
        for step in _steps_of_type(content, "pre_tokenizer", "ByteLevel"):
            step["add_prefix_space"] = bool(options.get("add_prefix_space", False))
    if kind == LLAMA and content.get("pre_tokenizer") is None and any(_steps_of_type(content, "normalizer", "Prepend")):
        metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
        content["pre_tokenizer"] = metaspace  # which adds no space before a text that begins with one
        _remove_steps(content, "normalizer", "normalizers", "Prepend")
    if kind == LLAMA and options.get("add_prefix_space") is False:
        for part in ("pre_tokenizer", "decoder"):
            for step in _steps_of_type(content, part, "Metaspace"):
                step["prepend_scheme"] = "never"
        _remove_steps(content, "normalizer", "normalizers", "Prepend")
        _remove_steps(content, "decoder", "decoders", "Strip")
    return before != (json.dumps([content.get(part) for part in parts]), content.get("model", {}).get("unk_token"))


def _apply_bert_options(content: dict[str, Any], options: JsonObject) -> None:
    """Applies the options of a BERT tokenizer: its normalization, unknown token and the tokens around texts.

    Raises:
        BundleError: An option of the normalization contradicts the content.
    """
    normalizer: dict[str, Any] = content.get("normalizer") or {"type": "BertNormalizer", "clean_text": True}
    if normalizer["type"] == "BertNormalizer":
        for option, (name, default) in NORMALIZER_OPTIONS.items():
            if name in normalizer and options.get(option) not in (None, normalizer[name]):
                raise BundleError(
                    f"{option}={options[option]} in {CONFIG_FILE} is not what {TOKENIZER_FILE} does, "
                    f"which is {name}={json.dumps(normalizer[name])}; correct the one that is wrong"
                )
            normalizer[name] = default if options.get(option) is None else options[option]
    content["normalizer"] = normalizer
    names = DEFAULT_TOKENS[BERT] | {role: _token(options[role]).content for role in ROLES if options.get(role)}
    if "unk_token" in content["model"] and names["unk_token"] in content["model"]["vocab"]:
        content["model"]["unk_token"] = names["unk_token"]
    if content.get("post_processor") is None:
        _set_post_processor(content, names)


def _set_post_processor(content: dict[str, Any], names: Mapping[str, str]) -> None:
    """Sets BERT's post-processor, which adds special tokens around texts, if the vocabulary has them."""
    vocabulary = content["model"]["vocab"]
    cls, sep = names["cls_token"], names["sep_token"]
    if cls in vocabulary and sep in vocabulary:
        template = _bert_template((cls, vocabulary[cls]), (sep, vocabulary[sep]))
        content["post_processor"] = json.loads(template.__getstate__())


def _steps_of_type(content: JsonObject, part: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yields the steps of one kind of a part of a tokenizer.json, e.g. each ByteLevel of its pre-tokenizer."""
    step = content.get(part) or {}
    for inner_step in step.get("pretokenizers") or step.get("normalizers") or step.get("decoders") or [step]:
        if inner_step.get("type") == kind:
            yield inner_step


def _remove_steps(content: dict[str, Any], part: str, name: str, kind: str) -> None:
    """Removes the steps of one kind from a part of a tokenizer.json."""
    step = content.get(part) or {}
    if step.get("type") == kind:
        content[part] = None
    elif name in step:
        step[name] = [inner_step for inner_step in step[name] if inner_step.get("type") != kind]


def _drop_tokens_beyond(content: dict[str, Any], n_tokens: int | None) -> bool:
    """Drops special tokens whose ids exceed the vocabulary of the model; returns whether there were any.

    Raises:
        BundleError: A token that is read in texts, or put around them, is beyond.
    """
    added: list[JsonObject] = content.get("added_tokens") or []
    beyond = [token for token in added if n_tokens is not None and token["id"] >= n_tokens]
    around = json.dumps(content.get("post_processor"))
    for token in beyond:
        if not token["special"] or json.dumps(token["content"]) in around:
            raise _beyond_error(TOKENIZER_FILE, token["content"], token["id"], n_tokens)
    content["added_tokens"] = [token for token in added if token not in beyond]
    return bool(beyond)


def _beyond_error(file: str, token: str, number: int, n_tokens: int | None) -> BundleError:
    return BundleError(
        f"{file}: {token!r} would be token {number}, but the model has {n_tokens:,} (0 to {(n_tokens or 1) - 1:,}); "
        f"remove it from {file}, or copy the weights of the model that has it"
    )


def _with_added_tokens(files: Mapping[str, bytes], options: JsonObject, text: str, n_tokens: int | None) -> str:
    """Adds the tokens that a folder names beside its tokenizer.json, in the order of `transformers`.

    Raises:
        BundleError: A token that is read in texts is beyond those of the model, or has another id.
    """
    content = json.loads(text)
    added: dict[str, JsonObject] = {token["content"]: token for token in content.get("added_tokens") or []}
    named = sorted((int(number), token) for number, token in (options.get("added_tokens_decoder") or {}).items())
    tokens = [_token(token) for _, token in named]
    published_ids = {token.content: number for token, (number, _) in zip(tokens, named, strict=True)}
    special = list(_special_tokens(files, options).values())
    extra = options.get("extra_special_tokens") or options.get("additional_special_tokens") or []
    special += [_token(token, special=True) for token in (extra.values() if isinstance(extra, dict) else extra)]
    if "added_tokens_decoder" not in options:
        older = sorted((number, token) for token, number in json.loads(files.get(ADDED_TOKENS_FILE, b"{}")).items())
        names = {token.content for token in special}
        tokens = [AddedToken(token, normalized=token not in names, special=token in names) for _, token in older]
        published_ids = {token: number for number, token in older}
    tokens = [
        token for token in tokens if token.content not in added or not _has_properties(token, added[token.content])
    ]
    known = {*added, *(token.content for token in tokens)}
    tokens += [token for token in special if token.content not in known]
    if not tokens:
        return text
    library = read_library_tokenizer(text)
    for token in tokens:
        number = library.token_to_id(token.content)
        number = library.get_vocab_size(with_added_tokens=True) if number is None else number
        published = published_ids.get(token.content, number)
        if published != number and TOKENIZER_FILE not in files:  # beside which `transformers` ignores the ids too
            raise BundleError(
                f"{token.content!r} would be token {number}, but is {published} in {CONFIG_FILE} or "
                f"{ADDED_TOKENS_FILE}; {TOKENIZER_FILE_ONLY}"
            )
        if n_tokens is None or number < n_tokens:
            library.add_tokens([token])
        elif not token.special:
            raise _beyond_error(CONFIG_FILE, token.content, number, n_tokens)
    return library.to_str()


def _has_properties(token: AddedToken, properties: JsonObject) -> bool:
    """Whether a token has the properties of one of tokenizer.json."""
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return all(getattr(token, name) == properties[name] for name in names)


def _word_pieces(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """Creates the tokenizer of BERT from its vocabulary (Devlin et al. 2019, Sec. 3).

    Raises:
        BundleError: The config names another tokenizer, or the vocabulary lacks a special token.
    """
    config: JsonObject = json.loads(files.get(CONFIG_FILE, b"{}"))
    other = {name: config.get(name) for name, known in BERT_CONFIG.items() if config.get(name) not in known}
    if other:
        name, value = other.popitem()
        raise BundleError(
            f"{name}={value!r} in {CONFIG_FILE} does not read {VOCAB_TXT} as BERT does; add a {TOKENIZER_FILE}"
        )
    vocabulary = {word: token for token, word in enumerate(_lines(files[VOCAB_TXT]))}
    names = DEFAULT_TOKENS[BERT] | special_token_names(files)
    unk, cls, sep = (names[f"{role}_token"] for role in ("unk", "cls", "sep"))
    if not {unk, cls, sep} <= vocabulary.keys():
        raise BundleError(f"{VOCAB_TXT} lacks {unk}, {cls} or {sep}; copy it again")
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unk, max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(
        sorted((word for word in names.values() if word in vocabulary), key=vocabulary.__getitem__)
    )
    library.post_processor = _bert_template((cls, vocabulary[cls]), (sep, vocabulary[sep]))
    return library


def _bert_template(cls: tuple[str, int], sep: tuple[str, int]) -> processors.TemplateProcessing:
    """Returns the template of special tokens that BERT puts around texts and pairs of texts."""
    return processors.TemplateProcessing(
        single=f"{cls[0]}:0 $A:0 {sep[0]}:0", pair=f"{cls[0]}:0 $A:0 {sep[0]}:0 $B:1 {sep[0]}:1",
        special_tokens=[cls, sep],
    )  # fmt: skip


def _lines(content: bytes) -> list[str]:
    """Returns the lines of a text file with Unix or Windows line ends."""
    return content.decode("utf-8").replace("\r\n", "\n").rstrip("\n").split("\n")


def _byte_pairs(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """Creates the tokenizer of GPT-2 from its vocabulary and merges (Radford et al. 2019, Sec. 2.2).

    Raises:
        BundleError: Texts have boundary tokens.
    """
    lines = [line for line in _lines(files[MERGES_TXT]) if line and not line.startswith("#version")]
    pairs = [(first, second) for first, _, second in (line.partition(" ") for line in lines)]
    vocabulary: dict[str, int] = json.loads(files[VOCAB_JSON])
    config: JsonObject = json.loads(files.get(CONFIG_FILE, b"{}"))
    if config.get("add_bos_token"):
        raise BundleError(f"add_bos_token in {CONFIG_FILE}: {TOKENIZER_FILE_ONLY}")
    library = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space")))
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([token for token in ("<|endoftext|>",) if token in vocabulary])
    return library


def _unigram(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """Creates the tokenizer of T5 from its SentencePiece model (Raffel et al. 2020, Sec. 3.1.3).

    The sentinels `<extra_id_N>` follow the pieces in descending order.

    Raises:
        ConfigError: A package that reads the file is missing.
    """
    try:
        import sentencepiece.sentencepiece_model_pb2 as model_pb2  # optional dependency, with protobuf
    except ImportError as error:
        raise ConfigError(
            f"{SPIECE_MODEL} needs the packages sentencepiece and protobuf; pip install 'transformer[marian]'"
        ) from error
    proto: Any = model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    proto.ParseFromString(files[SPIECE_MODEL])
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    n_sentinels = int(tokenizer_options(files).get("extra_ids", 100))
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(n_sentinels))]
    library = tokenizers.Tokenizer(
        models.Unigram([*pieces, *((token, 0.0) for token in sentinels)], proto.trainer_spec.unk_id)
    )
    if proto.normalizer_spec.precompiled_charsmap:
        library.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    library.decoder = decoders.Metaspace()
    named = DEFAULT_TOKENS[T5] | special_token_names(files)
    library.add_special_tokens([*(named[role] for role in ("pad_token", "eos_token", "unk_token")), *sentinels])
    eos = named["eos_token"]
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A {eos} $B {eos}", special_tokens=[(eos, library.token_to_id(eos))]
    )
    return library
