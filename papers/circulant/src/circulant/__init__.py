"""Networks with block-circulant and block-skew-circulant weights, for private inference with Jaguar.

Source: PrivCirNet (NeurIPS 2024). `blocks`: the algebra; `layers`: torch modules; `convert` and `sensitivity`: from a
dense network to blocks; `search`: which size each layer gets; `fuse` and `export`: for inference; `training`; `compare`
and `front`: the recorded comparison; `cli`: `python -m circulant`.
"""

from .blocks import SIZES, Kind, StructureError
from .convert import convert, sites, uniform
from .layers import BlockConv2d, BlockLinear, GroupedBatchNorm2d

__all__ = [
    "SIZES",
    "BlockConv2d",
    "BlockLinear",
    "GroupedBatchNorm2d",
    "Kind",
    "StructureError",
    "convert",
    "sites",
    "uniform",
]
