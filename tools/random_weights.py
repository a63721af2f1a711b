"""Random weights that behave as trained ones do, as far as random ones can (`tools/zoo.py`, `tools/export_torchvision.py`)."""

from __future__ import annotations

import torch

# Vectors of numbers that are all alike and no larger than this keep what they multiply from counting: layer scales, the last norms of blocks.
FAINT = 0.1


def liven(model: torch.nn.Module) -> None:
    """Draws anew what a library begins with so that blocks do nothing, or next to it.

    Linear layers get the deviation 1/√inputs; faint factors are from 0.5 to 1.5; faint tables and tokens get the deviation 0.3."""
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Linear)}
    for name, parameter in model.named_parameters():
        own = name.rsplit(".", 1)[-1]
        if own.endswith("bias"):
            continue
        faint = float(parameter.detach().abs().max()) <= FAINT
        alike = faint and bool((parameter == parameter.flatten()[0]).all())
        vector = parameter.numel() == max(parameter.shape, default=1)
        if id(parameter) in matrices or (own == "weight" and alike and not vector):
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        elif alike and vector and "token" not in own:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif own != "weight" and faint and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
