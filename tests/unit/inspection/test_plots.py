import json
from pathlib import Path

import pytest
import torch

from transformer.bundle import load_bundle, save_quantized
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import ConfigError, DataError
from transformer.inspection.complexity import TABLE, Cost, as_json, exponents, measure, read_costs
from transformer.inspection.passes import record_pass
from transformer.pipelines.auto import read_model

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from transformer import plot


def test_attention_shows_the_weights_of_every_head(tiny_run: Path) -> None:
    """Catches pictures of another layer, rows and columns exchanged, and rows of other tokens than the demo's."""
    figure = plot.attention(tiny_run, "one two three")
    recorded = record_pass(read_model(tiny_run, None), "one two three")
    weights = [op.output for op in recorded.operations if op.kind == "softmax" and "cross_attention" in op.module]
    panels = figure.get_axes()
    assert len(panels) == sum(weight.size(1) for weight in weights)
    shown = torch.tensor(panels[-1].get_images()[0].get_array().tolist())
    torch.testing.assert_close(shown, weights[-1][0, -1].detach())
    read = recorded.example.tokens["T"]
    expected = [f"reads {one}, writes {other}" for one, other in zip(read, recorded.label_names, strict=True)]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == expected


def test_a_model_in_int8_is_named(tiny_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Catches figures of rounded weights without a note, and a note in spite of --quiet."""
    save_quantized(tmp_path / "int8", load_bundle(tiny_run))
    plot.attention(tmp_path / "int8", "one two")
    assert "is stored in int8; its weights are read as float32" in caplog.text
    caplog.clear()
    takes_verbosity(lambda: plot.gradients(tmp_path / "int8", "one two") and None)(quiet=True)
    assert caplog.text == ""
    plot.gradients(tmp_path / "int8", "one two")
    assert "is stored in int8" in caplog.text


def test_attention_that_is_not_there_is_refused(tiny_run: Path) -> None:
    """Catches an empty picture for a layer that the model lacks."""
    with pytest.raises(ConfigError, match="has no cross attention"):
        plot.attention(tiny_run, "one two", layer=9)


def test_dot_products_of_positions_depend_on_the_distance_alone() -> None:
    """Catches a curve of something else; the oracle is the sum of cosines of the angles between two positions."""
    products = plot.positions(16, 12).get_axes()[2].get_lines()[0].get_ydata()
    expected = [sum(torch.cos(torch.tensor(k / 10000 ** (2 * i / 16))).item() for i in range(8)) for k in range(12)]
    assert list(products) == pytest.approx(expected, rel=1e-5)


def test_the_paper_schedule_peaks_at_the_end_of_the_warm_up() -> None:
    """Catches a schedule drawn with other arguments than those given."""
    line = plot.schedule("paper", d_model=64, warmup_steps=100, steps=1000).get_axes()[0].get_lines()[0]
    steps, rates = line.get_data()
    best = int(torch.tensor(list(rates)).argmax())
    assert steps[best] == 100
    assert rates[best] == pytest.approx((64 * 100) ** -0.5)


def test_gradients_of_all_series_share_their_axis(tiny_run: Path) -> None:
    """Catches post-norm models, which have no final norm, drawn one part too far to the left.

    The lines of a series end at the encoder's output: no gradient goes there from the decoder's input.
    """
    axes = plot.gradients(tiny_run, "one two").get_axes()[0]
    parts = [label.get_text() for label in axes.get_xticklabels()]
    lines = axes.get_lines()
    places = {line.get_label(): [list(line.get_xdata()), list(rest.get_xdata())]
              for line, rest in zip(lines[::2], lines[1::2], strict=True)}  # fmt: skip
    assert places["untrained, pre-norm"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [part.split()[0] for part in parts] == ["Encoder"] * 4 + ["Decoder"] * 4
    assert places["untrained, post-norm"] == [[0, 1, 2], [4, 5, 6]], "no output norms"


def test_gradients_of_untrained_models_grow_towards_the_output_with_post_norm_alone() -> None:
    """Catches series with exchanged names, and the gradients of another matrix (Xiong et al. 2020, Fig. 3)."""
    lines = plot.untrained_gradients((4,)).get_axes()[0].get_lines()
    norms = {line.get_label(): list(line.get_ydata()) for line in lines}
    post, pre = norms["post-norm, 4 layers"], norms["pre-norm, 4 layers"]
    assert len(post) == len(pre) == 4
    assert post == sorted(post)
    assert post[-1] > 2 * post[0]
    assert pre[-1] < pre[0]
    with pytest.raises(ConfigError, match=r"depths=\[1\]"):
        plot.untrained_gradients((1,))


def test_exponents_are_those_of_the_times() -> None:
    """Catches exponents of length and width that are exchanged, or a fit to the short lengths."""
    costs = [Cost("convolution", n, d, 1e-9 * n**1.5 * d**2.5, 1.0, 1, 1, 1) for n in (8, 16, 32, 64) for d in (4, 8)]
    assert exponents(costs, "convolution") == pytest.approx((1.5, 2.5))


def test_costs_have_the_dependencies_and_memory_of_the_table() -> None:
    """Catches path lengths other than 1, n and log_k n, and memory of attention that is not quadratic."""
    costs = {(cost.layer, cost.n): cost for cost in measure((9, 27, 270), (4,))}
    assert [costs["self-attention", n].path for n in (9, 27, 270)] == [1, 1, 1]
    assert [costs["recurrence", n].path for n in (9, 27, 270)] == [9, 27, 270]
    assert [costs["convolution", n].path for n in (9, 27, 270)] == [2, 3, 6]
    depths = {layer: [costs[layer, n].sequential for n in (9, 27, 270)] for layer in TABLE}
    assert len(set(depths["self-attention"])) == len(set(depths["convolution"])) == 1
    short, middle, long = depths["recurrence"]
    assert (long - middle) * (27 - 9) == (middle - short) * (270 - 27), "as many operations for each position"
    assert middle > short
    grows = {layer: costs[layer, 270].memory / costs[layer, 27].memory for layer, n in costs if n == 27}
    assert grows["self-attention"] > 50
    assert grows["convolution"] == pytest.approx(10, rel=0.1)
    figure = plot.complexity(list(costs.values()))
    texts = [text.get_text() for text in figure.get_axes()[0].get_legend().get_texts()]
    assert [text.split(":")[0] for text in texts] == [f"{layer} {row[0]}" for layer, row in TABLE.items()]


def test_costs_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Catches a traceback for a file of something else, and costs that change on their way."""
    costs = [Cost(layer, n, d, 0.5 * n, 1.0, n, 1, 1) for layer in TABLE for n in (8, 16) for d in (4, 8)]
    (path := tmp_path / "complexity.json").write_text(json.dumps({"costs": as_json(costs)}))
    assert read_costs(path) == costs
    for text in ('{"costs": [{"layer": "recurrence"}]}', '{"costs": []}', "[]", "{"):
        path.write_text(text)
        with pytest.raises(DataError, match="has no list of costs"):
            read_costs(path)


def test_scaling_draws_a_line_for_each_size(tmp_path: Path) -> None:
    """Catches lines that mix sizes, and a traceback for a file of something else."""
    runs = [{"parameters": p, "pairs": n, "loss": 3.0 - 0.1 * i} for i, (p, n) in enumerate([(1, 9), (2, 9), (1, 99)])]
    (path := tmp_path / "scaling.json").write_text(json.dumps({"runs": runs}))
    lines = plot.scaling(path).get_axes()[0].get_lines()
    assert [list(line.get_xdata()) for line in lines] == [[1, 2], [1]]
    path.write_text('{"runs": [{"loss": "low"}]}')
    with pytest.raises(DataError, match="has no list of runs"):
        plot.scaling(path)


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_figures_are_written_as_their_names_say(tmp_path: Path, name: str) -> None:
    """Catches a format that differs from the ending, an unknown ending that fails late, and a file that differs."""
    figure = plot.schedule(steps=10)
    plot.save(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")
    plot.save(plot.schedule(steps=10), tmp_path / f"again{name}")
    assert (tmp_path / f"again{name}").read_bytes() == (tmp_path / name).read_bytes()
    with pytest.raises(ConfigError, match=r"neither \.svg, \.pdf nor \.png"):
        plot.save(figure, tmp_path / "a.bmp")
