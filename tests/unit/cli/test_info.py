"""`transformer info` of a model."""

import pytest

from transformer.cli import info

MODEL = {"N": 4, "encoder_layers": 6, "decoder_layers": 2}


@pytest.mark.parametrize(
    ("changes", "is_shown"), [({}, False), ({"decoder_layers": None}, True), ({"encoder_layers": None}, True)]
)
def test_number_of_layers_of_no_stack_is_not_shown(
    changes: dict[str, None], is_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches `N 4` for a model with six layers in the encoder and two in the decoder."""
    info._print_model(
        {
            "model": {**MODEL, **changes}, "parameters": {"total": 1}, "shared": {}, "flops_per_token": {},
            "tokenizer": {}, "validation": {}, "origin": {},
        }
    )  # fmt: skip
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert ("N" in names) is is_shown
    assert "encoder_layers" in names or changes
