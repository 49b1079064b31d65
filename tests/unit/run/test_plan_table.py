"""The table that a run prints before its first step."""

from samples import training_settings
from transformer.models import family
from transformer.run.plan_table import format_table, model_rows, training_rows


def test_rows_are_aligned_and_wrapped() -> None:
    """Catches a title that is repeated, texts that do not align, and lines that a terminal of 80 columns breaks."""
    lines = format_table([("pairs", "5 read"), ("text", "word " * 40), ("text", "next"), ("device", "float32")])
    assert lines[0] == "pairs       5 read"
    assert lines[1].startswith("text        word word")
    assert all(line.startswith(" " * 12) for line in lines[2:5])
    assert lines[-2:] == [" " * 12 + "next", "device      float32"]
    assert max(map(len, lines)) <= 80


def test_a_model_is_described_without_words_of_python() -> None:
    """Catches tuples, quotes, None and True in the description, labels that fill the screen, and ids of tokens."""
    names = {"bert": {"vocab_size": 50, "labels": ("a", "b")}, "vit": {"labels": tuple(map(str, range(1000)))}}
    names |= {"transformer": {"src_vocab_size": 50, "tgt_vocab_size": 60}, "t5": {"vocab_size": 50}}
    for name, values in names.items():
        config = family(name).config.model_validate({"family": name, **values})
        first, second = (text for _, text in model_rows(config, 1_438_208))
        assert first.startswith(f"{name} (")
        assert first.endswith("1,438,208 parameters")
        assert "d_model" in second
        assert not [word for word in ("None", "True", "False", "(", "'", "vocab_size", "_id", "999") if word in second]
    assert "image_size 224 x 224" in model_rows(family("vit").config(), 1)[1][1]


def test_training_is_described_in_round_numbers() -> None:
    """Catches None where a schedule has no rate, and an interval or an average that is not said."""
    complete = {"max_steps": 12_000, "warmup_steps": 508, "decay_steps": 12_000, "save_every": "epoch"}
    settings = training_settings(**complete, validate_every=1270, average_last=5, patience=0)
    assert [text for _, text in training_rows(settings, 22.04, 0.0123456)] == [
        "12,000 steps (22.0 epochs), each of up to 4,096 tokens",
        "learning rate up to 0.012 after 508 steps of warm-up, then a cosine to 0 at step 12,000",
        "every 1,270 steps, best by chrf",
        "every epoch and at the best validation; the last 5 are averaged",
    ]
    paper = training_settings(**complete, schedule="paper", validate_every=1, accumulation=2)
    texts = [text for _, text in training_rows(paper, 1.0, 7e-4)]
    assert "tokens in 2 parts" in texts[0]
    assert texts[1] == "learning rate up to 0.0007 after 508 steps of warm-up, then by Equation 3 of the paper"
    assert texts[2] == "every 1 steps, best by chrf, patience 10"
