"""Every test starts from the same random state and runs on one thread, so none passes or fails by chance."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_start() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(20260101)
