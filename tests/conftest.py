"""Shapes in annotations are checked at run time in all tests; torch stays on one thread."""

from jaxtyping import config, install_import_hook

install_import_hook("neuralcollapse", "typecheck.checker")

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _annotations(request: pytest.FixtureRequest):
    """Tests marked ``unchecked`` run as users do: for the package's own errors, or for the speed of long solves."""
    config.update("jaxtyping_disable", "unchecked" in request.keywords)
    yield
    config.update("jaxtyping_disable", False)
