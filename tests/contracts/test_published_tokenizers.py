"""The contract of published tokenizers: every family reads texts and special tokens as `transformers` does.

Texts are compared with `split_special_tokens=True`, because special tokens that are typed in a text are text here.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from transformer.bundle.huggingface import read_published
from transformer.errors import BundleError, ConfigError
from transformer.pipelines.auto import load
from transformer.tokenizers.huggingface import HuggingFaceTokenizer

SIZE = 320
TEXTS = [
    "a zebra b",
    "A cat, 12 dogs",
    "",
    "  two  spaces ",
    "[MASK] <s> </s> <pad> <|endoftext|>",
    "été ∀ 中文",
    "a <x> b<x>c",
]
NAMES = {
    "gpt2": dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>"),
    "llama": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    "t5": {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
    "bert": {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
             "mask_token": "[MASK]"},
}  # fmt: skip


def model(family: str) -> Any:
    """Returns a random published model with more tokens than any tokenizer here."""
    torch.manual_seed(3)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if family == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=SIZE, n_positions=16, n_embd=8, n_layer=1, n_head=2, **ids))
    if family == "llama":
        sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
        return LlamaForCausalLM(LlamaConfig(vocab_size=SIZE, max_position_embeddings=16, **sizes, **ids))
    if family == "t5":
        return T5ForConditionalGeneration(
            T5Config(vocab_size=SIZE, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, eos_token_id=1)
        )
    return BertModel(
        BertConfig(vocab_size=SIZE, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2)
    )


def word_pieces(*, lowercase: bool = True) -> Tokenizer:
    words = [
        *NAMES["bert"].values(),
        *"abcdefgh",
        "cat",
        "dog",
        "##s",
        "zebra",
        ",",
        "12",
        "[",
        "]",
        "mask",
        "ete",
        "##ra",
    ]
    library = Tokenizer(models.WordPiece({word: token for token, word in enumerate(words)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return library


def byte_pairs() -> Tokenizer:
    merges = [("c", "a"), ("ca", "t"), ("Ġ", "b"), ("Ġ", "ca"), ("Ġca", "t"), ("1", "2")]
    pieces = ["<|endoftext|>", "<s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    library = Tokenizer(models.BPE({piece: token for token, piece in enumerate(pieces)}, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<|endoftext|>"])
    return library


def metaspace() -> Tokenizer:
    merges = [("c", "a"), ("ca", "t"), ("▁", "a"), ("▁", "b"), ("▁", "cat")]
    characters = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdeghorstz,"]
    pieces = [*characters, *("".join(pair) for pair in merges)]
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    library = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library


def unigram() -> Tokenizer:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0),
              *((letter, -3.0) for letter in "abcdeghorstz,"), ("▁cat", -1.5), ("▁a", -1.0)]  # fmt: skip
    library = Tokenizer(models.Unigram(pieces, unk_id=2))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    library.add_special_tokens(["<pad>", "</s>", "<unk>"])
    library.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return library


def words() -> Tokenizer:
    library = Tokenizer(
        models.WordLevel({word: token for token, word in enumerate(["[UNK]", "[END]", *"abc"])}, unk_token="[UNK]")
    )
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["[UNK]", "[END]"])
    return library


ADDED = {"added_tokens_decoder": {"311": AddedToken("<x>", normalized=False).__getstate__()}}
SPECIAL_ADDED = {"additional_special_tokens": ["<x>", "<y>"], "mask_token": "<mask>"}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}


def prepended() -> Tokenizer:
    """Returns the tokenizer as older files have it: the first space is added by a normalizer."""
    library = metaspace()
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.pre_tokenizer = None
    return library


CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "gpt2": ("gpt2", byte_pairs, {}),
    "gpt2: a space before texts": ("gpt2", byte_pairs, {"add_prefix_space": True}),
    "gpt2: no class, added token": ("gpt2", byte_pairs, ADDED),
    "gpt2: words, one unknown": ("gpt2", words, {**FAST, "unk_token": "[UNK]", "eos_token": "[END]"}),
    "gpt2: words, unknown not named": ("gpt2", words, FAST),
    "gpt2: words, unknown is the end": ("gpt2", words, {**FAST, "unk_token": "[UNK]", "eos_token": "[UNK]"}),
    "llama: byte pairs": ("llama", byte_pairs, {"tokenizer_class": "LlamaTokenizerFast"}),
    "llama: class of gpt2, space": (
        "llama", byte_pairs, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    ),
    "llama: pieces": ("llama", metaspace, {"tokenizer_class": "LlamaTokenizer"}),
    "llama: pieces, no space": ("llama", metaspace, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}),
    "llama: pieces, space by a normalizer": ("llama", prepended, {"tokenizer_class": "LlamaTokenizer"}),
    "llama: pieces, space by a normalizer, named": (
        "llama", prepended, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}
    ),
    "llama: pieces, no space by a normalizer": (
        "llama", prepended, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}
    ),
    "llama: pieces, normalizer of another class": ("llama", prepended, FAST),
    "llama: pieces, added token": ("llama", metaspace, {**FAST, **ADDED}),
    "llama: special tokens added": ("llama", metaspace, {**FAST, **SPECIAL_ADDED}),
    "t5": ("t5", unigram, {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}),
    "t5: added token": ("t5", unigram, {**FAST, **ADDED, "extra_ids": 0}),
    "bert": ("bert", word_pieces, {}),
    "bert: case kept": ("bert", lambda: word_pieces(lowercase=False), {"do_lower_case": False}),
    "bert: case kept by tokenizer.json alone": ("bert", lambda: word_pieces(lowercase=False), FAST),
    "bert: added token": ("bert", word_pieces, ADDED),
    "bert: special tokens added": ("bert", word_pieces, SPECIAL_ADDED | {"mask_token": "[MASK]"}),
}  # fmt: skip


def write(folder: Path, family: str, library: Tokenizer, options: dict[str, Any]) -> None:
    model(family).save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_texts_and_special_tokens_are_read_as_by_transformers(case: str, tmp_path: Path) -> None:
    """Catches unknown words that are dropped, options that are not followed, and tokens that are not added."""
    family, make_library, options = CASES[case]
    write(tmp_path, family, make_library(), options)
    reference, tokenizer = AutoTokenizer.from_pretrained(tmp_path), read_published(tmp_path).tokenizers.source
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    before, after = tokenizer.boundary_tokens
    for text in TEXTS:
        if case.startswith("t5") and "<" in text:  # Unigram recognises special tokens in texts, which are unknown here
            continue
        expected = reference(text, split_special_tokens=True)["input_ids"]
        assert [*before, *tokenizer.encode(text), *after] == expected, text
        assert tokenizer.decode(tokenizer.encode(text)) == reference.decode(
            expected, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    for role in ("mask_token", "unk_token"):
        named = getattr(reference, f"{role}_id")
        if named not in (None, 0):  # 0 is the padding of the models here
            assert getattr(tokenizer.special_tokens, role.removesuffix("_token")) == named
    names = {*NAMES[family].values(), "<x>", "<y>"} if family != "t5" else {"<x>"}
    for name in names & {str(token) for token in reference.added_tokens_decoder.values()}:
        assert tokenizer.pieces([reference.convert_tokens_to_ids(name)]) == [name]


def test_unknown_words_stay_in_prompts(tmp_path: Path) -> None:
    """Catches a prompt and a perplexity that silently lack the words which the vocabulary lacks."""
    write(tmp_path, "gpt2", words(), {**FAST, "unk_token": "[UNK]", "eos_token": "[END]"})
    tokenizer = read_published(tmp_path).tokenizers.source
    assert tokenizer.encode("a zebra b") == [2, 0, 3]
    assert tokenizer.special_tokens.unk == 0
    assert tokenizer.encode_running(["a zebra b c"]) == [[2, 0, 3, 4]]
    restored = HuggingFaceTokenizer.from_json(tokenizer.to_json())
    assert (restored.encode("yak"), restored.special_tokens) == ([0], tokenizer.special_tokens)
    older = json.loads(tokenizer.to_json())
    older["control"]["unk"] = None  # as bundles were written that dropped unknown words
    assert HuggingFaceTokenizer.from_json(json.dumps(older)).encode("a yak b") == [2, 0, 3]


def test_unknown_words_count_in_prompts_and_perplexity(tmp_path: Path) -> None:
    """Catches continuations and perplexities of a text without the unknown words; the oracle is `transformers`."""
    write(tmp_path, "gpt2", words(), {**FAST, "unk_token": "[UNK]", "eos_token": "[END]"})
    generator = load(tmp_path, precision="float32")
    text = "a zebra b c yak a b c a b zebra a b c a b a"
    reference = model("gpt2").eval()
    tokens = torch.tensor([AutoTokenizer.from_pretrained(tmp_path)(text).input_ids])
    with torch.no_grad():
        log_p = reference(tokens[:, :16]).logits.log_softmax(-1)
        expected = -log_p[0].gather(1, tokens[0, 1:17, None]).mean().item()
    assert generator.perplexity(text, window=16).loss == pytest.approx(expected, abs=1e-5)
    (continuation,) = generator.generate(["a zebra yak b"], max_tokens=3)[0]
    assert len(generator.tokenizer.encode("a zebra yak b")) == 4
    prompt = tokens.new_tensor([[2, 0, 0, 3]])
    options = {"attention_mask": torch.ones_like(prompt), "suppress_tokens": [0, 1], "pad_token_id": 0}
    written = reference.generate(prompt, max_new_tokens=3, do_sample=False, **options)
    assert list(continuation.tokens) == [token for token in written[0, 4:].tolist() if token != 2]


def test_a_prompt_without_tokens_is_refused(tmp_path: Path) -> None:
    """Catches an IndexError for an empty prompt of a model that has no token to begin with."""
    write(tmp_path, "gpt2", words(), FAST)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"bos_token_id": 50256, "eos_token_id": 50256}))
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match="the prompt ' ' has no tokens, and the model none that begins a text"):
        load(tmp_path, precision="float32").generate([" "])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tokens_beyond_the_model(tmp_path: Path) -> None:
    """Catches an id without a vector, which fails within a text, and a folder refused for a token never read."""
    for name, special in (("text", False), ("special", True)):
        library = byte_pairs()
        library.add_tokens(
            [AddedToken(f"<{number}>", special=True) for number in range(SIZE - library.get_vocab_size())]
        )
        added = {"content": "<x>", "special": special}
        write(tmp_path / name, "gpt2", library, {**FAST, "added_tokens_decoder": {"3": added}})
    with pytest.raises(
        BundleError, match=rf"tokenizer_config.json: '<x>' would be token {SIZE}, but the model has {SIZE}"
    ):
        read_published(tmp_path / "text")
    assert read_published(tmp_path / "special").tokenizers.source.vocab_size == SIZE
    library.add_special_tokens(["[PAD]"])
    write(tmp_path / "file", "gpt2", library, FAST)
    assert AutoTokenizer.from_pretrained(tmp_path / "file").convert_tokens_to_ids("[PAD]") == SIZE
    assert read_published(tmp_path / "file").tokenizers.source.vocab_size == SIZE
    library.add_tokens([AddedToken("<x>")])
    library.save(str(tmp_path / "file" / "tokenizer.json"))
    with pytest.raises(BundleError, match=rf"tokenizer.json: '<x>' would be token {SIZE + 1}, but the model has"):
        read_published(tmp_path / "file")


def test_digits_that_tokenizer_json_splits_stay_split(tmp_path: Path) -> None:
    """Catches a class name that outweighs tokenizer.json: the model was trained with what the file does."""
    library = byte_pairs()
    digits = pre_tokenizers.Split(Regex(r"\d"), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    write(tmp_path, "llama", library, {"tokenizer_class": "GPT2Tokenizer"})
    tokenizer = read_published(tmp_path).tokenizers.source
    assert tokenizer.pieces(tokenizer.encode("12")) == ["1", "2"]
