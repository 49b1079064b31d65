"""Recipes: files, overrides, and defaults that depend on the size of the corpus."""

import random
import re
from contextlib import suppress
from pathlib import Path

import pytest

from samples import ROOT
from transformer.data.augment.config import DEFAULT_RATES
from transformer.data.config import DataConfig
from transformer.errors import ConfigError
from transformer.models import family, family_names
from transformer.models.transformer.config import TransformerConfig
from transformer.run.defaults import complete, corpus_defaults, fill_in_length
from transformer.run.recipe import Recipe, load_recipe, parse_recipe
from transformer.run.resume import continue_recipe
from transformer.run.train import train

DATA = {"data": {"source": "a.en", "target": "a.de"}}


def completed(recipe: Recipe, pairs: int, steps_per_epoch: int = 100) -> Recipe:
    """Returns the recipe with the defaults for a corpus of `pairs` pairs."""
    complete_recipe = complete(recipe, corpus_defaults(recipe, pairs))
    return fill_in_length(complete_recipe.recipe, complete_recipe.epochs, steps_per_epoch)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    """Catches a wrong order of precedence, and values that stay text."""
    path = write(tmp_path, '[data]\nsource = "s"\ntarget = "t"\n[training]\nseed = 4\nmax_steps = 9\n')
    overrides = ["training.max_steps=500", "model.norm_order=post", "training.validate_every=epoch"]
    recipe = load_recipe(path, overrides, {"data": {"source": "other"}})
    assert (recipe.training.seed, recipe.training.max_steps) == (4, 500)
    assert recipe.training.validate_every == "epoch"
    assert recipe.data.source == "other"
    assert recipe.model.model_dump()["norm_order"] == "post"


def test_keys_of_an_inner_table(tmp_path: Path) -> None:
    """Catches a table that the stored recipe loses, overrides that replace it, and errors that name another key."""
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\nsource = "a"\ntarget = "b"\n[data.augment]\ntypos = 0.1\nemoji = 0.2\n')
    recipe = load_recipe(path, ["data.augment.typos=0.3", "data.augment.tags=0.4"])
    assert isinstance(recipe.data, DataConfig)
    assert recipe.data.augment is not None
    assert recipe.data.augment.rates == {"typos": 0.3, "emoji": 0.2, "tags": 0.4}
    stored = tmp_path / "stored.toml"
    stored.write_text(recipe.to_toml())
    assert load_recipe(stored) == recipe
    assert load_recipe(path, ["data.augment=default"]).data.model_dump()["augment"] == DEFAULT_RATES.model_dump()
    for override, message in (
        ("data.source.x=1", "data.source='a' is not a table"),
        ("data.augment.typos=2", "data.augment.typos=2 must be"),
        ("data.augment.typo=1", "data.augment.typo is not a key of a recipe; did you mean data.augment.typos?"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            load_recipe(path, [override])


def test_environment_in_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a default that wins over the environment, and an unset variable that becomes empty."""
    path = write(tmp_path, '[data]\nsource = "${DIR:-here}/s"\ntarget = "${DIR:-here}/t"\n')
    assert load_recipe(path).data.source == "here/s"
    monkeypatch.setenv("DIR", "/there")
    assert load_recipe(path).data.target == "/there/t"
    several = load_recipe(write(tmp_path, '[data]\npairs = ["${DIR}/a.tsv", "b.jsonl"]\nweights = [2, 0.5]\n'))
    assert several.data.pairs == ("/there/a.tsv", "b.jsonl")
    path.write_text(several.to_toml())
    assert load_recipe(path) == several
    with pytest.raises(ConfigError, match=r"\$\{NOWHERE\} in .* is not set"):
        load_recipe(write(tmp_path, '[data]\nsource = "${NOWHERE}"\ntarget = "t"\n'))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"data": {"source": "s"}}, r"data.target is missing"),
        ({**DATA, "training": {"max_stepz": 3}}, r"max_stepz is not a key .*; did you mean training.max_steps\?"),
        ({**DATA, "trainin": {}}, r"trainin is not a key of a recipe; did you mean training\?"),
        ({**DATA, "training": {"lr": 1}}, r"training.lr is .*; did you mean training.learning_rate\?"),
        ({**DATA, "training": {"dropout": 0.1}}, r"training.dropout is .*; did you mean model.dropout\?"),
        ({**DATA, "model": {"color": 1}}, r"model.color is .*; `transformer recipes --keys` lists them"),
        ({**DATA, "training": {"batch_tokens": 0}}, r"training.batch_tokens=0 must be greater"),
        ({**DATA, "model": {"d_model": 512, "h": 7}}, r"h=7 does not divide d_model=512; choose a divisor"),
        ({**DATA, "model": {"d_model": 7, "h": 1}}, r"d_model=7 is odd"),
        (
            {**DATA, "model": {"preset": "huge"}},
            r"model.preset='huge' is unknown; choose one of mini, tiny, small, base, big, deep-shallow",
        ),
        ({**DATA, "model": {"family": "rnn"}}, r"model.family='rnn' is unknown; choose one of .*transformer"),
        (
            {**DATA, "model": {"share_embeddings": "all"}, "tokenizer": {"joint": False}},
            r"share_embeddings='all' needs one vocabulary",
        ),
        ({**DATA, "training": {"validate_every": 0}}, r"training.validate_every.*=0 must be greater"),
        ({**DATA, "training": {"adam_betas": [0.9, 1.0]}}, r"training.adam_betas.1=1.0 must be less"),
        ({**DATA, "model": {"src_vocab_size": 9}}, r"come from the tokenizer; set tokenizer.vocab_size"),
        ({"data": {**DATA["data"], "source": "a\udcff.en"}}, r"a\\udcff' is not UTF-8; rename the file"),
        ({"data": {**DATA["data"], "validation_source": "v"}}, r"validation_source and validation_target go together"),
        (
            {"data": {"task": "masked-words", "text": "a", "corruption_rate": 0.5}},
            "data.corruption_rate is of data.task='spans', not of 'masked-words'; leave it out",
        ),
    ],
)
def test_mistakes_are_named(tree: dict[str, object], message: str) -> None:
    """Catches unknown keys that are ignored, and messages that do not say which key."""
    with pytest.raises(ConfigError, match=message):
        parse_recipe(tree)


def test_files_and_overrides_that_cannot_be_read(tmp_path: Path) -> None:
    """Catches a traceback for a mistyped path or option."""
    with pytest.raises(ConfigError, match=r"none.toml: No such file or directory"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"r.toml: not TOML"):
        load_recipe(write(tmp_path, "[data"))
    with pytest.raises(ConfigError, match=r"training=3 is not a section; write \[training\] and its keys"):
        load_recipe(write(tmp_path, "training = 3\n"), ["training.seed=2"])
    for override in ("seed=3", "training.seed", "=3"):
        with pytest.raises(ConfigError, match=r"is not section.key=value"):
            load_recipe(None, [override], DATA)
    with pytest.raises(ConfigError, match=r"run: the name .*udcff' is not UTF-8"):
        train(parse_recipe(DATA), tmp_path / "run\udcff")
    assert not list(tmp_path.glob("run*")), "before anything was written"


def test_recipes_of_windows(tmp_path: Path) -> None:
    """Catches a byte order mark that is a syntax error, and paths with backslashes without a way to write them."""
    path = tmp_path / "r.toml"
    path.write_bytes(b"\xef\xbb\xbf[data]\r\nsource = 'C:\\a.en'\r\ntarget = \"C:\\\\a.de\"\r\n")
    assert load_recipe(path).data.model_dump(include={"source", "target"}) == {
        "source": "C:\\a.en",
        "target": "C:\\a.de",
    }
    for value in (r"C:\Users\sam\corpus.en", r"C:\new\table.en"):
        write(tmp_path, f'[data]\ntarget = "x"\nsource = "{value}"\n')
        with pytest.raises(ConfigError, match=re.escape(f"single quotes: '{value}'")) as refused:
            load_recipe(path)
        assert "r.toml, line 3: a backslash between double quotes begins an escape" in str(refused.value)
    path.write_bytes("[data]".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"r\.toml: the file is UTF-16; save it as UTF-8"):
        load_recipe(path)
    path.write_bytes(b"[data]\nsource = 'a\xff'")
    with pytest.raises(ConfigError, match=r"r\.toml, byte 19: not UTF-8"):
        load_recipe(path)


def test_nul_and_deep_nesting_are_one_line(tmp_path: Path) -> None:
    """Catches tracebacks of the file system and of the parser."""
    for key in ("source", "target", "prepared"):
        path = write(
            tmp_path, '[data]\nsource = "s"\ntarget = "t"\n'.replace(f"{key} =", "#") + f'{key} = "a\\u0000b"\n'
        )
        with pytest.raises(ConfigError, match=rf"data.{key}='a\\x00b' holds a NUL character; leave it out"):
            load_recipe(path)
    with pytest.raises(ConfigError, match=r"training.start_from='\\x00' holds a NUL character"):
        load_recipe(None, ['training.start_from="\\u0000"'], DATA)
    with pytest.raises(ConfigError, match="a path cannot hold a NUL character"):
        load_recipe(tmp_path / "a\0b")
    deep = "[" * 50_000 + "]" * 50_000
    with pytest.raises(ConfigError, match=r"r\.toml: not TOML \(too many nested brackets\)"):
        load_recipe(write(tmp_path, f"z = {deep}"))
    with pytest.raises(ConfigError):
        load_recipe(None, [f"data.columns={deep}"], DATA)


@pytest.mark.parametrize("text", ["en,de", "[en,de]", "['en', 'de']", '["en","de"]', " en , de ", "[en, de]"])
def test_lists_as_a_shell_passes_them(text: str) -> None:
    """Catches advice that a shell takes the quotes from, and a path with a comma that becomes two."""
    recipe = load_recipe(None, [f"data.languages={text}"], {"data": {"pairs": "a,b.tmx"}})
    assert recipe.data.model_dump(include={"languages", "pairs"}) == {"languages": ("en", "de"), "pairs": "a,b.tmx"}
    options = {"data": {"pairs": "x.tmx", "languages": text}}
    assert load_recipe(None, (), options).data.model_dump()["languages"] == ("en", "de")


def test_lists_of_numbers_and_of_one_value() -> None:
    """Catches column numbers that become names, and a list of one that needs brackets."""
    overrides = ["data.columns=2,1", "data.weights=0.5", "training.adam_betas=0.8,0.9"]
    recipe = load_recipe(None, overrides, {"data": {"pairs": "x.tsv"}})
    assert recipe.data.model_dump(include={"columns", "weights"}) == {"columns": (2, 1), "weights": (0.5,)}
    assert recipe.training.adam_betas == (0.8, 0.9)
    assert load_recipe(None, ["data.columns=en,2"], {"data": {"pairs": "x.tsv"}}).data.model_dump()["columns"] == (
        "en",
        2,
    )


PIECES = [
    b'"', b"'", b"[", b"]", b"=", b"\n", b"\0", b"\xff", b"\\u0000", b"\\", b"{", b"${X}", b"1e400", b"-1", b"[[[[",
    b"nan", b"\xef\xbb\xbf", b"9" * 40, b"2020-01-01", b"[data]", b"model = 3\n", b"data = 3\n", b"a.b.c = 1\n",
]  # fmt: skip
KEYS = [
    "data",
    "data.languages",
    "data.task",
    "data.source",
    "model.preset",
    "model.family",
    "training.adam_betas",
    "x.y",
]
VALUES = ["en,de", "[", "[]", "", "1", "{}", "{a=1}", "nan", '"', "[[1]]", ",", "2020-01-01", "true", "\n", "1\nq=2"]


@pytest.mark.parametrize("seed", range(4))
def test_any_recipe_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    """Catches a traceback of a parser or of a comparison of values of different types."""
    generator, path = random.Random(seed), tmp_path / "r.toml"
    whole = (ROOT / "recipes" / "multi30k-en-de.toml").read_bytes()
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(generator.randint(0, 3)):
            at = generator.randrange(len(content))
            content[at : at + generator.choice((0, 0, 1, 9))] = generator.choice(PIECES)
        path.write_bytes(bytes(content))
        overrides = [f"{generator.choice(KEYS)}={generator.choice(VALUES)}" for _ in range(generator.randint(0, 2))]
        with suppress(ConfigError):
            load_recipe(path, overrides)


def test_stored_recipe_reads_the_same(tmp_path: Path) -> None:
    """Catches keys that are lost or changed in a stored recipe, also with unusual characters in paths."""
    odd = {"data": {"source": 'a "quoted" \\ back.en', "target": "ü\t.de"}, "model": {"preset": "base", "N": 3}}
    recipe = completed(parse_recipe(odd), pairs=20_000, steps_per_epoch=50)
    assert load_recipe(write(tmp_path, recipe.to_toml())) == recipe
    assert (recipe.model.N, recipe.model.d_model, recipe.model.norm_order) == (3, 512, "post")


def test_size_of_the_corpus_fills_in_what_is_open() -> None:
    """Catches defaults that override explicit keys, and a large model for a few lines."""
    small, large = (completed(parse_recipe(DATA), pairs, steps_per_epoch=100) for pairs in (800, 5_000_000))
    assert small.tokenizer.vocab_size < large.tokenizer.vocab_size
    assert small.model.d_model < large.model.d_model
    assert small.training.max_steps == 6000
    assert 1 <= small.training.warmup_steps <= 4000
    explicit_keys = {
        **DATA,
        "tokenizer": {"vocab_size": 999, "joint": False},
        "training": {"max_steps": 3, "warmup_steps": 2},
    }
    filled = completed(parse_recipe(explicit_keys), 800, steps_per_epoch=100)
    assert (filled.tokenizer.vocab_size, filled.training.max_steps, filled.training.warmup_steps) == (999, 3, 2)
    assert filled.model.share_embeddings == "target"


def test_what_is_given_is_merged_with_what_the_size_suggests() -> None:
    """Catches an explicit key that disables other defaults, and defaults by corpus size that override a preset."""
    one_key = completed(parse_recipe({**DATA, "model": {"dropout": 0.25}}), 800)
    assert (one_key.model.d_model, one_key.model.dropout) == (128, 0.25)
    separate = completed(parse_recipe({**DATA, "model": {"h": 8}, "tokenizer": {"joint": False}}), 800)
    assert (separate.model.h, separate.model.share_embeddings) == (8, "target")
    base = completed(parse_recipe({**DATA, "model": {"preset": "base"}}), 800)
    assert (base.model.d_model, base.model.dropout, base.model.norm_order) == (512, 0.1, "post")
    with pytest.raises(ConfigError, match="model: h=256 does not divide d_model=128"):
        completed(parse_recipe({**DATA, "model": {"h": 256}}), 800)


def test_small_corpora_are_validated_after_enough_steps() -> None:
    """Catches validations every few updates, with which patience runs out before the warm-up ends."""
    small = completed(parse_recipe(DATA), 300, steps_per_epoch=1).training
    assert small.validate_every == small.save_every == 100
    assert small.max_steps == 1000
    assert completed(parse_recipe(DATA), 10**7, steps_per_epoch=90_000).training.validate_every == 5000


def test_a_short_run_has_no_higher_peak() -> None:
    """Catches a warm-up shortened to the run: the peak, (d_model * warmup_steps)^-0.5, would grow to 2e-2."""
    short, usual = (
        completed(parse_recipe({**DATA, "training": {"max_steps": steps}}), 800, steps_per_epoch=10).training
        for steps in (100, 1000)
    )
    assert short.warmup_steps == usual.warmup_steps == 200
    assert short.learning_rate is usual.learning_rate is None


def test_a_resumed_run_keeps_its_schedule() -> None:
    """Catches a cosine schedule or a warm-up that changes with max_steps."""
    earlier = completed(parse_recipe({**DATA, "training": {"max_steps": 50, "schedule": "cosine"}}), 800, 10)
    longer = parse_recipe({**DATA, "training": {"max_steps": 90, "schedule": "cosine"}})
    resumed = completed(continue_recipe(longer, earlier), 800, 10).training
    assert (resumed.max_steps, resumed.decay_steps) == (90, 50)
    assert resumed.warmup_steps == earlier.training.warmup_steps


def test_presets_are_the_papers() -> None:
    """Catches a wrong column of Table 3."""
    presets = family("transformer").presets()
    base, big = (TransformerConfig.model_validate(presets[name]) for name in ("base", "big"))
    table = [(c.N, c.d_model, c.d_ff, c.h, c.dropout) for c in (base, big)]
    assert table == [(6, 512, 2048, 8, 0.1), (6, 1024, 4096, 16, 0.3)]
    assert {(c.norm_order, c.share_embeddings) for c in (base, big)} == {("post", "all")}
    tiny, deep = (TransformerConfig.model_validate(presets[name]) for name in ("tiny", "deep-shallow"))
    assert (tiny.N, tiny.d_model, tiny.d_ff, tiny.h) == (4, 128, 256, 4)
    assert (deep.encoder_layers, deep.decoder_layers, deep.d_model, deep.d_ff, deep.h) == (12, 1, 512, 2048, 8)


def test_families_are_found_by_looking() -> None:
    """Catches a registry that must be maintained by hand."""
    assert "transformer" in family_names()
    config = family("transformer").config(d_model=8, h=2)
    with pytest.raises(ConfigError, match=r"model.src_vocab_size is not set"):
        family("transformer").build(config)
    assert TransformerConfig.model_validate_json(config.model_dump_json()) == config
