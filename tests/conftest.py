"""Shapes in annotations are checked at run time in all tests; torch stays on one thread."""

from jaxtyping import install_import_hook

install_import_hook("neuralcollapse", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
