"""Child modules that share all their parameters with another."""

from torch import nn

from transformer.models.parameter_count import parameters_by_block, shared_blocks


def test_a_shared_matrix_has_one_owner() -> None:
    """Catches a matrix that counts twice, and one that is partly shared, which has parameters of its own."""
    model = nn.Module()
    model.first, model.second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
    model.third, model.empty = nn.Linear(3, 3), nn.ReLU()
    model.second.weight = model.third.weight = model.first.weight
    assert shared_blocks(model) == {"second": "first"}
    assert parameters_by_block(model) == {"first": 12, "second": 0, "third": 3, "empty": 0}
