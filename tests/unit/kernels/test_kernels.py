"""The compiled kernels and their PyTorch fallbacks, compared with the formulas in float64."""

import ctypes
import math
import os
import random
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from substitution import substitute
from transformer.blocks import causal_mask
from transformer.blocks.attention import attention
from transformer.errors import ConfigError
from transformer.kernels import (
    PRECISIONS,
    PackedLinear,
    Precision,
    Weight,
    add_norm,
    append_to_cache,
    best_tokens,
    cached_attention,
    library,
    reorder_cache,
    unavailable_reason,
)
from transformer.kernels.attention import AttentionArgs
from transformer.kernels.attention_autograd import HeadsArgs, TrainingAttentionArgs
from transformer.kernels.beam_search import SearchArgs
from transformer.kernels.compiled_model import (
    DecoderArgs,
    EncoderArgs,
    LayerArgs,
    ModelArgs,
    NormArgs,
)
from transformer.kernels.gemm import EpilogueArgs, MatrixArgs
from transformer.kernels.library import (
    INSTRUCTION_SETS,
    TORCH_CAPABILITIES,
    _load_library,
    compiled_library,
    instruction_set,
)
from transformer.kernels.packed_linear import PackedMatrixArgs

TOLERANCE = {"float32": 1e-5, "bf16": 1e-4, "int8": 1e-4}
CAPABILITIES = torch.cpu.get_capabilities()
NEEDED = {
    "amx": ("avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"), "avx512": ("avx512_bf16",),
    "avx_vnni": ("avx2", "avx_vnni"), "avx2": ("avx2",),
}  # fmt: skip
HAS = {name: all(CAPABILITIES.get(capability, False) for capability in needed) for name, needed in NEEDED.items()}
WITHOUT_TILES = (
    ["None", "amx: the compiler did not support AMX"],
    ["None", "amx: Linux denied AMX tiles to this process"],
)
needs_kernels = pytest.mark.skipif(
    unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}"
)


@pytest.fixture(params=["compiled", "torch"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test with the compiled kernels, if they are available, and with PyTorch."""
    if request.param == "torch":
        for module in ("packed_linear", "attention", "normalization", "topk"):
            substitute(monkeypatch, f"{module}.library", lambda: None)
    elif unavailable_reason() is not None:
        pytest.skip(f"no compiled kernels: {unavailable_reason()}")
    return request.param


@pytest.mark.slow
def test_kernels_are_compiled_where_they_can_be() -> None:
    """Catches an installation without kernels, in which all other tests here would only test PyTorch."""
    if shutil.which("g++") is None or not HAS["avx2"]:
        pytest.skip("no compiler, or a processor without AVX2")
    actual = [name for name in HAS if HAS[name] and kernels_of_process(name) not in WITHOUT_TILES]
    assert kernels_of_process("") == [actual[0], "None"]


@pytest.mark.slow
def test_a_setting_chooses_the_kernels() -> None:
    """Catches a setting that is ignored, and instructions on a processor that lacks them."""
    assert kernels_of_process("off") == ["None", "TRANSFORMER_KERNELS=off"]
    if shutil.which("g++") is not None:
        for name, instructions in INSTRUCTION_SETS.items():
            expected = [name, "None"] if HAS[name] else ["None", f"this processor lacks {instructions}"]
            assert kernels_of_process(name) in (expected, *WITHOUT_TILES)
    assert kernels_of_process("sse")[-1] == (
        "transformer.errors.ConfigError: TRANSFORMER_KERNELS='sse' is unknown; "
        "choose one of off, amx, avx512, avx_vnni, avx2, or leave it unset"
    )


@pytest.mark.parametrize(
    "structure",
    [
        AttentionArgs, EpilogueArgs, HeadsArgs, LayerArgs, MatrixArgs, NormArgs, PackedMatrixArgs,
        TrainingAttentionArgs,
    ],
)  # fmt: skip
def test_a_misspelled_argument_is_refused(structure: type[ctypes.Structure]) -> None:
    """Catches arguments of a kernel that are set under a name that is no field, so that the kernel never sees them."""
    with pytest.raises(AttributeError):
        structure().no_such_field = 1


def test_kernels_that_do_not_load_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a broken installation that is slow without a warning, and a reason that hides earlier ones."""
    slowest, loaded_library = list(INSTRUCTION_SETS)[-1], ctypes.CDLL(None)

    def load(name: str) -> ctypes.CDLL:
        if name == slowest:
            return loaded_library
        raise OSError("no such symbol")

    everything = dict.fromkeys(TORCH_CAPABILITIES.values(), True)
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: everything)

    module, load_library = sys.modules["transformer.kernels.library"], _load_library.__wrapped__
    monkeypatch.delenv("TRANSFORMER_KERNELS", raising=False)
    monkeypatch.setattr(module, "_load_for", load)
    with pytest.warns(
        UserWarning, match="using the avx2 kernels because faster ones could not be loaded: .*avx512: no such"
    ):
        assert load_library() == (loaded_library, slowest)
    monkeypatch.setitem(INSTRUCTION_SETS, "none", "wings")
    monkeypatch.setattr(module, "_load_for", lambda _: None)
    assert load_library() == (None, "; ".join(f"this processor lacks {name}" for name in INSTRUCTION_SETS.values()))
    monkeypatch.setattr(module, "_load_library", load_library)
    with pytest.raises(RuntimeError, match="the compiled kernels are unavailable: this processor lacks"):
        compiled_library()


def kernels_of_process(setting: str) -> list[str]:
    """Returns the kernels that a new process uses and why it uses none, or the lines of its error."""
    names = "instruction_set, unavailable_reason"
    code = f"from transformer.kernels import {names}; print(instruction_set()); print(unavailable_reason())"
    environment = os.environ | {"TRANSFORMER_KERNELS": setting}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return (result.stdout or result.stderr).splitlines()


def expected_product(x: Tensor, weight: Tensor, precision: Precision) -> Tensor:
    """Returns the product in float64 of matrices that are rounded as in the precision."""
    if precision == "float32":
        return x.double() @ weight.double().T
    if precision == "bf16":
        return x.bfloat16().double() @ weight.bfloat16().double().T
    quantized = [(matrix / (matrix.abs().amax(1, keepdim=True) / 127)).round() for matrix in (x, weight)]
    scales = [matrix.abs().amax(1).double() / 127 for matrix in (x, weight)]
    return (quantized[0].double() @ quantized[1].double().T) * scales[0][:, None] * scales[1]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [
        (1, 37, 70),
        (5, 64, 64),
        (7, 3, 1),
        (13, 65, 130),
        (23, 128, 192),
        (49, 200, 81),
        (64, 64, 33),
        (99, 4, 65),
        (130, 300, 200),
    ],
)
def test_products(implementation: str, precision: Precision, rows: int, inner: int, columns: int) -> None:
    """Catches panels in the wrong order, a last panel or group read beyond its end, and a wrong scale or sign."""
    x, weight, bias = torch.randn(rows, inner), torch.randn(columns, inner), torch.randn(columns)
    expected = expected_product(x, weight, precision)
    plain = PackedLinear(Weight.from_tensor(weight, precision))
    biased = PackedLinear(Weight.from_tensor(weight, precision), bias=bias, activation="relu")
    tolerance = {"atol": TOLERANCE[precision] * math.sqrt(inner), "rtol": 0.0}
    if implementation == "torch" and precision == "bf16":
        tolerance = {
            "atol": max(0.02, 0.004 * math.sqrt(inner)),
            "rtol": 0.01,
        }  # torch rounds the sums to bfloat16, too
    torch.testing.assert_close(plain(x).double(), expected, **tolerance)
    torch.testing.assert_close(biased(x).double(), (expected + bias).relu(), **tolerance)
    wider = plain.with_activation(3 * bias, "silu")
    y = expected + 3 * bias
    torch.testing.assert_close(wider(x).double(), y / (1 + (-y).exp()), **tolerance)
    assert plain(x).shape == (rows, columns)
    assert plain(x.unflatten(0, (1, rows))).shape == (1, rows, columns)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 37, 70), (5, 64, 64), (23, 128, 192), (130, 302, 81)])
def test_products_of_inputs_that_are_not_negative(implementation: str, rows: int, inner: int, columns: int) -> None:
    """Catches sums of two products that saturate 16 bits, and a negative input among many that is read as unsigned."""
    x, weight = torch.rand(rows, inner), torch.randn(columns, inner)
    matrix = PackedLinear(Weight.from_tensor(weight, "int8"))
    tolerance = {"atol": TOLERANCE["int8"] * math.sqrt(inner), "rtol": 0.0}
    torch.testing.assert_close(matrix(x).double(), expected_product(x, weight, "int8"), **tolerance)
    x[-1, -1] = -0.5
    torch.testing.assert_close(matrix(x).double(), expected_product(x, weight, "int8"), **tolerance)
    for sign in (1, -1):
        largest = PackedLinear(Weight.from_tensor(sign * torch.ones(columns, inner), "int8"))
        torch.testing.assert_close(largest(torch.ones(rows, inner)), torch.full((rows, columns), float(sign * inner)))


def test_activations(implementation: str) -> None:
    """Catches a formula that is only right near 0, and one that overflows far from it."""
    y = torch.linspace(-40, 40, 3001, dtype=torch.float64)
    below = (1 + torch.erf(y / math.sqrt(2))) / 2
    cubic = math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)
    expected = {"relu": y.clamp(min=0), "silu": y * torch.sigmoid(y), "gelu": y * below,
                "gelu_tanh": y * (1 + torch.tanh(cubic)) / 2}  # fmt: skip
    for name, values in expected.items():
        actual = PackedLinear(Weight.from_tensor(torch.ones(1, 1), "float32"), activation=name)(y.float()[:, None])
        torch.testing.assert_close(actual[:, 0].double(), values, atol=1e-6, rtol=1e-6)
    wide = PackedLinear(Weight.from_tensor(torch.eye(70), "float32"), activation="gelu")
    torch.testing.assert_close(wide(torch.ones(7, 70)), torch.full((7, 70), 0.8413447), atol=1e-6, rtol=0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_matrices_stand_side_by_side_and_come_apart(implementation: str, precision: Precision) -> None:
    """Catches a slice that begins at the wrong column, or has the bias or scales of another."""
    for size in (64, 24):  # with and without a panel boundary between them
        weights, bias, x = torch.randn(3, size, 40), torch.randn(3 * size), torch.randn(5, 40)
        joint = PackedLinear(*(Weight.from_tensor(weight, precision) for weight in weights), bias=bias)
        for start, stop in ((0, size), (size, 3 * size), (2 * size, 3 * size)):
            part = joint.slice_outputs(start, stop)
            torch.testing.assert_close(part(x), joint(x)[:, start:stop], atol=0, rtol=0)
    with pytest.raises(ConfigError, match="weights have different precisions"):
        PackedLinear(Weight.from_tensor(weights[0], "int8"), Weight.from_tensor(weights[1], "float32"))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_of_a_matrix_are_embeddings(implementation: str, precision: Precision) -> None:
    """Catches an embedding that differs from the projection whose weights it shares."""
    weight = Weight.from_tensor(torch.randn(131, 30), precision)
    ids = torch.tensor([[0, 130, 64], [63, 7, 7]])
    torch.testing.assert_close(PackedLinear(weight).lookup(ids), weight.dequantize()[ids], atol=0, rtol=0)


@needs_kernels
def test_what_does_not_fit_is_refused() -> None:
    """Catches reads and writes out of bounds: the kernels do not check, so their callers must."""
    matrix = PackedLinear(Weight.from_tensor(torch.randn(70, 20), "int8"))
    with pytest.raises(ValueError, match=r"x.size\(-1\)=19 does not match the weight"):
        matrix(torch.randn(3, 19))
    with pytest.raises(IndexError, match="ids 5 to 70 are not all in 0 to 69"):
        matrix.lookup(torch.tensor([5, 70]))
    with pytest.raises(ValueError, match=r"bias=\(60,\) does not match 70 outputs"):
        PackedLinear(Weight.from_tensor(torch.randn(70, 20), "int8"), bias=torch.randn(60))
    by_hand_or_shape = (ValueError, TypeError)  # jaxtyping, where it is enabled, raises first
    with pytest.raises(by_hand_or_shape, match=r"do not match rows of 20|parameter 'alpha'"):
        add_norm(torch.randn(3, 20), None, torch.ones(19), torch.ones(20), 1e-6)
    with pytest.raises(by_hand_or_shape, match="do not match"):
        cached_attention(torch.randn(1, 1, 15), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8))


@needs_kernels
def test_other_types_are_converted() -> None:
    """Catches float64 or float16 numbers that are read as float32, for any default dtype of PyTorch."""
    weight, x = torch.randn(70, 20), torch.randn(3, 20)
    expected = PackedLinear(Weight.from_tensor(weight, "float32"))(x)
    torch.set_default_dtype(torch.float64)
    try:
        matrix = PackedLinear(Weight.from_tensor(weight, "float32"))
        assert torch.equal(matrix(x.double()), expected)
        assert matrix.lookup(torch.tensor([3], dtype=torch.int32)).dtype == torch.float32
        assert best_tokens(x, 2)[0].dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@needs_kernels
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu", "gelu_tanh"])
def test_what_is_no_number_stays_none(precision: Precision, activation: str) -> None:
    """Catches NaN that rounding or ReLU turns into 0: a model that diverged would seem to work."""
    matrix = PackedLinear(Weight.from_tensor(torch.randn(70, 40), precision), activation=activation)
    x = torch.randn(2, 40)
    x[1, 7] = torch.nan
    assert matrix(x)[0].isfinite().all()
    assert matrix(x)[1].isnan().all()
    query, keys = torch.randn(1, 1, 8), torch.randn(1, 1, 5, 8)
    keys[0, 0, 2] = torch.nan
    actual = cached_attention(query, keys, torch.randn(1, 1, 5, 8))
    assert actual is not None
    assert actual.isnan().all()


def test_int8_weights_are_within_half_a_unit() -> None:
    """Catches one scale for the whole matrix: one large row would cost all others their precision."""
    weight = torch.randn(6, 50) * torch.tensor([1e-3, 1.0, 1e3, 1e-6, 5.0, 0.0])[:, None]
    rounded = Weight.from_tensor(weight, "int8")
    assert rounded.scales is not None
    assert rounded.precision == "int8"
    assert ((rounded.dequantize() - weight).abs() <= 0.5001 * rounded.scales[:, None]).all()


@needs_kernels
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(precision: Precision) -> None:
    """Catches one scale for a whole batch, and sums whose order depends on the block: results are equal to the bit.

    With AMX, many rows are multiplied panel by panel, and the L2 cache does not hold all panels of the larger matrix.
    Many rows of float32 are multiplied in another way than few, but in the same way on all threads: see the next test.
    """
    for rows, inner in ((45, 100), (130, 1100)):
        matrix = PackedLinear(
            Weight.from_tensor(torch.randn(1000, inner), precision), bias=torch.randn(1000), activation="gelu"
        )
        x = torch.randn(rows, inner)
        x[3] *= 1000
        together = matrix(x)
        for row in range(rows if rows < 48 or precision != "float32" else 0):
            assert torch.equal(matrix(x[row]), together[row])
        for threads in (2, 3, 1):
            torch.set_num_threads(threads)
            assert torch.equal(matrix(x), together)


@needs_kernels
@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize("rows", [47, 48, 95, 97, 1030])
def test_many_rows_of_float32(rows: int, activation: str) -> None:
    """Catches, with AMX, bits of float32 that are lost, or added twice at the edges of rows, inputs or panels."""
    for columns, inner in ((70, 1), (70, 33), (70, 520), (300, 512), (700, 200), (70, 1100)):
        bias, weight, x = torch.randn(columns), torch.randn(columns, inner), torch.randn(rows, inner)
        matrix = PackedLinear(Weight.from_tensor(weight, "float32"), bias=bias, activation=activation)
        expected = x.double() @ weight.double().t() + bias
        largest = x.double().abs() @ weight.double().abs().t() + bias.abs() + 1e-6
        expected = F.gelu(expected) if activation == "gelu" else expected
        y = matrix(x)
        assert ((y - expected).abs() / largest).max() < 1e-6
        if activation == "none":
            for actual, best in zip(matrix.top_k(x, 3), best_tokens(y, 3), strict=True):
                torch.testing.assert_close(actual, best, atol=1e-4, rtol=1e-5)
        x[5, 0] = torch.nan
        assert matrix(x).isnan().any(dim=1).nonzero().tolist() == [[5]]


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 12, 16, 24, 64, 128])
def test_attention(implementation: str, cache_dtype: torch.dtype, width: int) -> None:
    """Catches a mask of the wrong sentence or position, NaN in a fully masked row, and heads that mix."""
    batch, heads, queries, positions = 3, 2, 5, 19
    keys, values = (torch.randn(batch, positions, heads, width).transpose(1, 2).to(cache_dtype) for _ in range(2))
    query = torch.randn(batch, queries, 3 * heads * width)[..., heads * width : 2 * heads * width]
    mask = torch.rand(batch, 1, queries, positions) < 0.6
    mask[0, 0, 1] = False
    for attention_mask in (None, mask, mask[:, :, :1], mask[:1]):
        actual = cached_attention(query, keys, values, attention_mask)
        if implementation == "torch":
            assert actual is None
            continue
        assert actual is not None
        split = query.unflatten(2, (heads, width)).transpose(1, 2).double()
        expected = attention(split, keys.double(), values.double(), attention_mask).transpose(1, 2).flatten(2)
        torch.testing.assert_close(actual.double(), expected, atol=2e-6, rtol=1e-5)


@needs_kernels
@pytest.mark.parametrize(
    ("positions", "width"), [(1, 8), (5, 24), (7, 7), (18, 32), (67, 64), (130, 80), (13, 128), (40, 33)]
)
@pytest.mark.parametrize("allow_bf16", [False, True])
def test_attention_of_whole_sequences(positions: int, width: int, *, allow_bf16: bool) -> None:
    """Catches a tile that overwrites another, padding that is attended to, and a result that depends on padding.

    With `allow_bf16`, on a processor that multiplies bfloat16, attention weights are rounded to bfloat16. So are
    queries, keys and values, which here are already representable in it.
    """
    batch, heads = 3, 2
    inputs = torch.randn(batch, positions, 3 * heads * width).bfloat16()
    query, keys, values = inputs.float().chunk(3, dim=-1)
    keys, values, split = (x.unflatten(2, (heads, width)).transpose(1, 2) for x in (keys, values, query))
    lengths = torch.tensor([positions, max(1, positions // 2), 1])
    padding = (torch.arange(positions) < lengths[:, None])[:, None, None, :]
    random_mask = torch.rand(batch, 1, positions, positions) < 0.5
    random_mask[0, 0, positions // 2] = False
    per_query_mask = padding.expand(-1, -1, positions, -1)
    for mask in (None, padding, causal_mask(positions) & padding, random_mask, per_query_mask, per_query_mask[:1]):
        actual = cached_attention(query, keys, values, mask, is_full_sequence=True, allow_bf16=allow_bf16)
        assert actual is not None
        expected = attention(split.double(), keys.double(), values.double(), mask).transpose(1, 2).flatten(2)
        torch.testing.assert_close(actual.double(), expected, atol=1e-2 if allow_bf16 else 2e-6, rtol=1e-5)
        if allow_bf16 and instruction_set() in ("amx", "avx512"):
            rounded = [query.bfloat16(), keys.bfloat16(), values.bfloat16()]
            as_bfloat16 = cached_attention(*rounded, mask, is_full_sequence=True, allow_bf16=True)
            assert as_bfloat16 is not None
            assert torch.equal(as_bfloat16, actual.bfloat16())
    together = cached_attention(query, keys, values, padding, is_full_sequence=True, allow_bf16=allow_bf16)
    assert together is not None
    for row, length in enumerate(lengths.tolist()):
        row_slice = slice(row, row + 1)
        shorter = query[row_slice, :length], keys[row_slice, :, :length], values[row_slice, :, :length]
        alone = cached_attention(*shorter, is_full_sequence=True, allow_bf16=allow_bf16)
        assert alone is not None
        assert torch.equal(alone[0], together[row, :length])
    first_sentence = keys[:1].expand(batch, -1, -1, -1), values[:1].expand(batch, -1, -1, -1)
    actual = cached_attention(query, *first_sentence, is_full_sequence=True, allow_bf16=allow_bf16)
    assert actual is not None
    copied = cached_attention(
        query, *(x.contiguous() for x in first_sentence), is_full_sequence=True, allow_bf16=allow_bf16
    )
    assert copied is not None
    assert torch.equal(actual, copied)
    keys[0, 1, 0] = torch.nan
    actual = cached_attention(query, keys, values, is_full_sequence=True, allow_bf16=allow_bf16)
    assert actual is not None
    assert actual[0, :, width:].isnan().all()
    assert actual[0, :, :width].isfinite().all()


@needs_kernels
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu", "gelu_tanh"])
def test_products_that_pass_on_what_they_round(precision: Precision, activation: str) -> None:
    """Catches outputs that are rounded in another way than the next product rounds inputs, or read as another type."""
    for rows, inner, columns in ((1, 32, 64), (5, 100, 70), (40, 64, 200), (130, 1100, 200), (3, 33, 64), (8, 101, 70)):
        bias = torch.randn(columns)
        matrix = PackedLinear(
            Weight.from_tensor(torch.randn(columns, inner) / 8, precision), bias=bias, activation=activation
        )
        assert matrix.accepts_bf16 == (precision != "float32" and instruction_set() in ("amx", "avx512"))
        x = torch.randn(rows, inner)
        plain, rounded = matrix(x), matrix(x, bf16_output=True)
        if not matrix.accepts_bf16:
            assert torch.equal(rounded, plain)
            continue
        assert rounded.dtype == torch.bfloat16
        if activation in ("none", "relu"):
            assert torch.equal(rounded, plain.bfloat16())
        torch.testing.assert_close(rounded.float(), plain, rtol=2**-8 + 2e-3, atol=1e-6)
        for bf16_output in (False, True):
            expected = matrix(x.bfloat16().float(), bf16_output=bf16_output)
            assert torch.equal(matrix(x.bfloat16(), bf16_output=bf16_output), expected)
        large_inputs = torch.eye(inner)[:1] * torch.tensor([1e14, -1e14, 1e38, -1e38])[:, None]
        torch.testing.assert_close(
            matrix(large_inputs, bf16_output=True).float(), matrix(large_inputs), rtol=2**-8 + 2e-3, atol=1e-6
        )
        x[0, 0] = torch.nan
        assert matrix(x, bf16_output=True)[0].isnan().all()


@needs_kernels
def test_attention_leaves_to_torch_what_it_cannot() -> None:
    """Catches heads wider than the kernel supports, and masks that differ from head to head."""
    keys = torch.randn(1, 2, 4, 130)
    assert cached_attention(torch.randn(1, 1, 260), keys, keys) is None
    keys = torch.randn(1, 2, 4, 8)
    assert cached_attention(torch.randn(1, 1, 16), keys, keys, torch.ones(1, 2, 1, 4, dtype=torch.bool)) is None


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
def test_new_positions_are_remembered(implementation: str, cache_dtype: torch.dtype) -> None:
    """Catches a position that is written to another row, or that overwrites its neighbours."""
    cache = torch.randn(3, 2, 7, 20).to(cache_dtype)
    new, positions = torch.randn(3, 3 * 40)[:, 40:80], torch.tensor([4, 0, 6])
    expected = cache.clone()
    for row, position in enumerate(positions.tolist()):
        expected[row, :, position] = new[row].view(2, 20).to(cache_dtype)
    append_to_cache(new, cache, positions)
    assert torch.equal(cache, expected)


@needs_kernels
def test_rows_of_a_cache_change_places() -> None:
    """Catches a row that is overwritten before another row has copied it, in chains and cycles."""
    draw = random.Random(5)
    for attempt in range(400):
        n = draw.randint(1, 8)
        order = [draw.randrange(n) for _ in range(draw.randint(1, n))] if attempt % 2 else draw.sample(range(n), n)
        cache, rows, length = torch.randn(n, 2, 5, 3), torch.tensor(order), draw.randint(1, 5)
        expected = cache[rows].clone()
        actual = reorder_cache(cache, rows, length)
        assert actual is not None
        assert torch.equal(actual[:, :, :length], expected[:, :, :length]), order
    assert reorder_cache(torch.randn(2, 2, 5, 3), torch.tensor([0, 1, 1]), 5) is None, "a cache cannot hold more rows"


@pytest.mark.parametrize(("vocabulary", "k"), [(5, 5), (17, 3), (1003, 9), (9001, 1), (40, 40)])
def test_best_tokens(implementation: str, vocabulary: int, k: int) -> None:
    """Catches a token missed at the end of a vector or part, and a sum that excludes forbidden tokens."""
    logits = torch.randn(6, vocabulary) * 5
    logits[1] -= 500
    logits[2, ::2] = -torch.inf
    forbidden_tokens = torch.zeros(vocabulary, dtype=torch.bool)
    forbidden_tokens[logits[0].argmax()] = True
    for forbidden in (None, forbidden_tokens):
        log_p, tokens = best_tokens(logits, k, forbidden)
        exact = logits.double().log_softmax(1)
        if forbidden is not None:
            exact = exact.masked_fill(forbidden, -torch.inf)
        expected = exact.topk(k, dim=1)
        torch.testing.assert_close(log_p.double(), expected.values, atol=1e-4, rtol=1e-6)
        is_finite = log_p > -torch.inf
        torch.testing.assert_close(exact.gather(1, tokens)[is_finite], expected.values[is_finite], atol=1e-6, rtol=0)


def test_nothing_is_probable_where_a_logit_is_no_number(implementation: str) -> None:
    """Catches log-probabilities above 0 of a model that diverged: their sum is NaN, although some logits are finite."""
    logits = torch.tensor([[5.0, 3, torch.nan, 1], [torch.inf, 3, 2, 1], [5.0, 3, 2, 1]])
    log_p, _ = best_tokens(logits, 2)
    assert log_p.isfinite().tolist() == [[False, False], [False, False], [True, True]]


@needs_kernels
def test_of_equal_tokens_the_first_is_best() -> None:
    """Catches an order that depends on the batch or on the vector that contains a token."""
    logits = torch.zeros(2, 100)
    logits[1, 37] = 1
    assert best_tokens(logits, 3)[1].tolist() == [[0, 1, 2], [37, 0, 1]]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("vocabulary", "k"), [(5, 5), (17, 3), (1003, 9), (2049, 2), (600, 70)])
def test_the_best_of_a_product_are_those_of_its_outputs(
    implementation: str, precision: Precision, vocabulary: int, k: int
) -> None:
    """Catches blocks of rows, parts or threads whose columns are missed or counted twice, and a missing bias."""
    weight = Weight.from_tensor(torch.randn(vocabulary, 24), precision)
    matrix = PackedLinear(weight).with_activation(torch.randn(vocabulary), "none")
    forbidden_tokens = torch.zeros(vocabulary, dtype=torch.bool)
    forbidden_tokens[1::7] = True
    for rows in (1, 5, 13, 64):
        x = torch.randn(rows, 24)
        exact = matrix(x).double().log_softmax(1)
        for forbidden in (None, forbidden_tokens):
            expected = (exact if forbidden is None else exact.masked_fill(forbidden, -torch.inf)).topk(k, dim=1)
            log_p, tokens = matrix.top_k(x, k, forbidden)
            torch.testing.assert_close(log_p.double(), expected.values, atol=1e-4, rtol=1e-6)
            is_finite = log_p > -torch.inf
            torch.testing.assert_close(
                exact.gather(1, tokens)[is_finite], expected.values[is_finite], atol=1e-5, rtol=0
            )


@needs_kernels
def test_ranking_a_product_does_not_depend_on_threads_or_other_rows() -> None:
    """Catches sums whose order is that of the threads, and ties that the last thread wins."""
    matrix, x = PackedLinear(Weight.from_tensor(torch.randn(4000, 40), "int8")), torch.randn(50, 40)
    log_p, tokens = matrix.top_k(x, 4)
    assert torch.equal(matrix.top_k(x[:7], 4)[0], log_p[:7])
    assert torch.equal(best_tokens(matrix(x), 4)[0], log_p)
    torch.set_num_threads(3)
    assert all(torch.equal(a, b) for a, b in zip(matrix.top_k(x, 4), (log_p, tokens), strict=True))
    assert PackedLinear(Weight.from_tensor(torch.zeros(4000, 40), "int8")).top_k(x, 3)[1].tolist() == [[0, 1, 2]] * 50


def test_add_norm(implementation: str) -> None:
    """Catches the unbiased variance, zeros counted in the last vector, and a residual that is not added."""
    for width in (5, 16, 100, 512):
        x, y, alpha, beta = torch.randn(4, 3, width), torch.randn(4, 3, width), torch.randn(width), torch.randn(width)
        for other in (y, None):
            total = (x if other is None else x + other).double()
            mean, variance = total.mean(-1, keepdim=True), total.var(-1, keepdim=True, unbiased=False)
            expected = alpha * (total - mean) / (variance + 1e-6).sqrt() + beta
            torch.testing.assert_close(add_norm(x, other, alpha, beta, 1e-6).double(), expected, atol=1e-5, rtol=1e-5)


def test_norms_do_not_depend_on_threads() -> None:
    """Catches rows that two threads process, or none: there are enough rows to be shared."""
    x, y, alpha, beta = torch.randn(401, 300), torch.randn(401, 300), torch.randn(300), torch.randn(300)
    actual = list[Tensor]()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        actual.append(add_norm(x, y, alpha, beta, 1e-6))
    torch.testing.assert_close(actual[1], F.layer_norm(x + y, (300,), alpha, beta, 1e-6), atol=1e-5, rtol=1e-5)
    assert torch.equal(actual[0], actual[1])
    assert torch.equal(actual[0], actual[2])


@needs_kernels
def test_structures_have_the_fields_of_the_kernels() -> None:
    """Catches a field that was added on one side only: sizes in C must equal those in Python."""
    from ctypes import sizeof

    compiled = library()
    assert compiled is not None
    structures = {
        "packed_matrix": PackedMatrixArgs, "attention": AttentionArgs, "layer": LayerArgs, "encoder": EncoderArgs,
        "decoder": DecoderArgs, "model": ModelArgs, "search": SearchArgs,
    }  # fmt: skip
    sizes = {name: getattr(compiled, f"transformer_size_of_{name}")() for name in structures}
    assert sizes == {name: sizeof(structure) for name, structure in structures.items()}


@needs_kernels
def test_an_infinite_input_is_no_number_in_int8() -> None:
    """Catches an overflow that becomes an infinity of the other sign, which ReLU would hide."""
    x = torch.ones(2, 9)
    x[0, 3] = torch.inf
    actual = PackedLinear(Weight.from_tensor(torch.ones(5, 9), "int8"))(x)
    assert actual[0].isnan().all()
    torch.testing.assert_close(actual[1], torch.full((5,), 9.0))
    assert not PackedLinear(Weight.from_tensor(torch.ones(5, 9), "int8"))(torch.full((1, 9), 1e-38)).any()
