"""The search of the kernels against the search step by step."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from transformer.blocks import (
    CausalDecoder,
    CausalDecoderLayer,
    FeedForwardBlock,
    InputEmbedding,
    LearnedPositions,
    MultiHeadAttention,
    ProjectionLayer,
)
from transformer.decoding import Hypothesis, Request, Search, search_all, search_each
from transformer.decoding.compiled_search import CompiledSearch
from transformer.decoding.parallel import single_thread
from transformer.errors import ConfigError
from transformer.inference.cpu.compiled_model import compile_model
from transformer.inference.cpu.convert import pack
from transformer.kernels import PackedLinear, Precision, Weight, instruction_set, library
from transformer.models.language_model import LanguageModel
from transformer.options.length_penalties import length_normalization
from transformer.transformer import Transformer, build_transformer

pytestmark = pytest.mark.skipif(library() is None, reason="needs the compiled kernels")
EOS = 2
MODELS = {7: {}, 3: {"norm_order": "post"}, 5: {"positions": "learned"}, 4: {"d_k": 20, "d_v": 20}}
"""Seeds with which some translations end and others are truncated, and options of the models."""


def packed_model(seed: int, precision: Precision, **options: Any) -> Transformer:
    """A random model whose translations end at different lengths."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"d_model": 48, "N": 2, "h": 3, "d_ff": 70, "dropout": 0.0}
    model = build_transformer(61, 61, 40, 60, **(sizes | options))
    randomize(model, model.projection_layer)
    return pack(model, precision)


def randomize(model: nn.Module, projection: ProjectionLayer) -> None:
    """Draws the parameters at random, so that the end of a text is not rare."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, mean=float(name.endswith("alpha")), std=0.3)
        assert projection.proj.bias is not None
        projection.proj.bias.zero_()[EOS] = 1.5


def packed_language_model(seed: int, precision: Precision) -> LanguageModel:
    """A random decoder-only model, whose texts end at different lengths."""
    torch.manual_seed(seed)

    def layer() -> CausalDecoderLayer:
        return CausalDecoderLayer(48, MultiHeadAttention(48, 3), FeedForwardBlock(48, 70, 0.0), 0.0)

    decoder = CausalDecoder(nn.ModuleList(layer() for _ in range(2)))
    projection = ProjectionLayer(48, 61)
    model = LanguageModel(InputEmbedding(48, 61), LearnedPositions(48, 70, 0.0), decoder, projection)
    randomize(model, projection)
    return pack(model, precision)


def random_requests(seed: int, n: int, **options: Any) -> list[Request]:
    """Sources of 0 to 20 tokens, with limits of 1 to 50."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    sources = [torch.randint(4, 61, (draw(0, 20),), generator=generator).tolist() for _ in range(n)]
    return [Request(source, draw(1, 50), number=i, **options) for i, source in enumerate(sources)]


def step_by_step(
    model: Transformer | LanguageModel, requests: list[Request], search: Search, monkeypatch: pytest.MonkeyPatch
) -> list[list[Hypothesis]]:
    with monkeypatch.context() as patch:
        patch.setattr(CompiledSearch, "of", lambda *_: None)
        return search_all(model, requests, search)


def assert_same(
    model: Transformer | LanguageModel,
    requests: list[Request],
    search: Search,
    monkeypatch: pytest.MonkeyPatch,
    calls: int = 1,
) -> list[list[Hypothesis]]:
    """Both searches give the same tokens and scores, to the last bit.

    In float32 with AMX, sums depend on the number of rows, and the encoder of the kernels has no rows of padding.
    """
    runs = list[int]()
    run = CompiledSearch.run

    def counted(self: CompiledSearch, numbered: Any) -> Any:
        runs.append(len(numbered))
        return run(self, numbered)

    with monkeypatch.context() as patch:
        patch.setattr(CompiledSearch, "run", counted)
        actual = search_all(model, requests, search)
    assert len(runs) >= calls, "the kernel was not used"
    expected = step_by_step(model, requests, search, monkeypatch)
    if instruction_set() == "amx" and model.projection_layer.proj.precision == "float32":
        assert [[best.tokens for best in hypotheses] for hypotheses in actual] == [
            [best.tokens for best in hypotheses] for hypotheses in expected
        ]
        scores = [[best.score for hypotheses in results for best in hypotheses] for results in (actual, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)
    else:
        assert actual == expected
    return actual


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@pytest.mark.parametrize("beam", [1, 2, 4, 7])
def test_same_tokens_and_scores(precision: Precision, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches any difference in the encoder, the decoder, the caches, the choice of hypotheses or their scores."""
    search = Search(beam, n_best=beam)
    lengths = set[int]()
    for seed, options in MODELS.items():
        model = packed_model(seed, precision, **options)
        results = assert_same(model, random_requests(seed, 9), search, monkeypatch)
        lengths |= {len(hypotheses[0].tokens) for hypotheses in results}
    assert len(lengths) > 5, "most translations are equally long"


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@pytest.mark.parametrize("beam", [1, 4])
def test_continued_prompts(precision: Precision, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches positions that ignore the prompt, and hypotheses that do not see it."""
    search, model = Search(beam, n_best=beam, limit_ends=True), packed_language_model(7, precision)
    requests = [replace(request, prompt=(*request.source, 1)) for request in random_requests(7, 9)]
    requests.append(Request([], 9, prompt=(1,)))
    assert_same(model, requests, search, monkeypatch)
    with pytest.raises(ConfigError, match="exceed seq_len=70"):
        search_all(model, [Request([5] * 20, 51)], search)


@pytest.mark.parametrize(
    "options",
    [
        {"stopping": "exhaustive"},
        {"min_tokens": 7},
        {"limit_ends": True},
        {"allow_unknown": True},
        {"length_penalty": length_normalization(0.7), "stopping": "exhaustive"},
    ],
)
@pytest.mark.parametrize("beam", [1, 3])
def test_options(beam: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an option that the kernel takes for another one, or leaves out."""
    model = packed_model(7, "int8")
    search = Search(beam, n_best=beam, **options)
    for reserve_eos in (False, True):
        assert_same(model, random_requests(7, 9, reserve_eos=reserve_eos), search, monkeypatch)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_blocked_repetitions(beam: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an n-gram that the kernel repeats, or a token that it forbids for another hypothesis.

    Step by step, torch computes the log-probabilities, so scores may differ in the last bits.
    """
    model, search = packed_model(7, "int8"), Search(beam, n_best=beam, no_repeat_ngram=size)
    requests = random_requests(7, 9)
    actual, expected = search_all(model, requests, search), step_by_step(model, requests, search, monkeypatch)
    free = search_all(model, requests, Search(beam, n_best=beam))
    tokens_of = [[[hypothesis.tokens for hypothesis in best] for best in results] for results in (actual, expected)]
    assert tokens_of[0] == tokens_of[1]
    assert tokens_of[0] != [[hypothesis.tokens for hypothesis in best] for best in free], "nothing was repeated"
    scores = [[hypothesis.score for best in results for hypothesis in best] for results in (actual, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_a_request_that_only_the_steps_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a prefix, or a longer source than the model has positions for, that the kernel ignores."""
    model = packed_model(7, "int8")
    plain = random_requests(7, 3)
    prefixed = [replace(plain[0], prefix=(9, 11), limit=20), *plain[1:]]
    ((first, *_), *_) = search_all(model, prefixed, Search())
    assert first.tokens[:2] == [9, 11]
    with pytest.raises(ConfigError, match="length=41 exceeds seq_len=40"):
        search_all(model, [Request([5] * 41, 3)], Search())
    with pytest.raises(ConfigError, match="limit=61 exceeds tgt_seq_len=60"):
        search_all(model, [Request([5], 61)], Search())


def test_a_token_beyond_the_vocabulary() -> None:
    """Catches a read beyond the end of the embedding."""
    with pytest.raises(IndexError, match="out of range"):
        search_all(packed_model(7, "int8"), [Request([5, 61], 3)], Search())


def test_equal_scores_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches ties that the two searches break differently: all tokens but one are equally probable."""
    model = packed_model(7, "float32")
    zero = torch.zeros(61, 48)
    vars(model.projection_layer)["proj"] = PackedLinear(Weight.from_tensor(zero, "float32"), bias=torch.zeros(61))
    vars(model)["compiled_model"] = compile_model(model)
    assert_same(model, random_requests(7, 5), Search(4, n_best=4), monkeypatch)


def test_results_while_others_run() -> None:
    """Catches a search that returns nothing before its last sentence is done."""
    requests = [Request([5, 6], 40), Request([7, 8], 1)]
    assert next(search_each(packed_model(1, "int8"), requests, Search()))[0] == 1


@pytest.mark.slow  # repeats the tests above with a larger batch
@pytest.mark.parametrize("beam", [1, 4])
def test_many_sentences_and_threads(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks of sentences that are lost or shifted, and results that depend on the number of threads."""
    model = packed_model(7, "int8", d_model=128, h=2, d_ff=256)
    requests = [request for seed in range(40) for request in random_requests(seed, 9)]
    search = Search(beam, n_best=beam)
    with single_thread():
        alone = search_all(model, requests, search, batch_tokens=10**6)
    assert assert_same(model, requests, search, monkeypatch) == alone
