"""Shape annotations are checked while the tests run."""

import pytest
import torch

from transformer.blocks import FeedForwardBlock, attention


def test_wrong_axes_are_refused_in_the_test_run() -> None:
    """Catches a disabled hook, without which no annotation is checked."""
    with pytest.raises(Exception, match=r"(?s)Type-check error.*attention"):
        attention(torch.zeros(2, 3, 5), torch.zeros(2, 3, 5), torch.zeros(2, 3, 5))
    with pytest.raises(Exception, match="Type-check error"):
        FeedForwardBlock(3, 5, 0.0)(torch.zeros(2, 3))
