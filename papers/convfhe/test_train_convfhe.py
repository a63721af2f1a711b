"""Tests of training the networks of ConvFHE's Figure 7, where torch is: `python3 -m unittest discover papers/convfhe`."""

import sys
import unittest
from unittest import mock

try:
    import torch
    import train_convfhe
    from torch.nn import functional as F
    from train_convfhe import Shared, Variant
    from circulant.data import CIFAR10, Split
    from circulant.training import Options
except ImportError as missing:
    torch, why = None, f"{missing.name} is not installed (make torch-models)"
else:
    why = ""


@unittest.skipIf(torch is None, why)
class Training(unittest.TestCase):
    def test_a_step_is_that_of_torch(self):
        """Three steps of two runs, beside the same network under torch's own optimiser, in float64."""
        torch.manual_seed(0)
        data = Split(torch.randn(96, 3, 32, 32), torch.randint(0, 10, (96,)), CIFAR10)
        options = Options(epochs=1, batch=32, rate=0.2, warmup=0.2)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, default)
        with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            shared = Shared(data, 2, options, torch.device("cpu"), torch.float64)
            variant = Variant(3, 8, 1)
            variant.prepare(shared, graphs=False)
            run = variant.runs[1]
            beside = train_convfhe.plain(3, 8, 1)
            beside[0] = torch.nn.Conv2d(train_convfhe.INPUTS, 16, 3, padding=1, bias=False)
            beside.load_state_dict(run.network.state_dict())
            groups = [[p for p in beside.parameters() if (p.dim() > 1) == decays] for decays in (False, True)]
            decays = [{"params": g, "weight_decay": d} for g, d in zip(groups, (0.0, options.weight_decay), strict=True)]
            optimiser = torch.optim.SGD(decays, lr=1.0, momentum=options.momentum, nesterov=True)
            shared.epoch(0, 1)
            variant.begin()
            for step in range(shared.steps):
                variant.step()
                for group in optimiser.param_groups:
                    group["lr"] = float(shared.rates[step])
                logits = beside(shared.images[1, step].permute(0, 3, 1, 2))
                optimiser.zero_grad()
                F.cross_entropy(logits, shared.labels[1, step]).backward()
                optimiser.step()
        self.assertEqual(int(run.at), 0, "an epoch ends where the next begins")
        for (name, got), want in zip(run.network.state_dict().items(), beside.state_dict().values(), strict=True):
            if not name.endswith("num_batches_tracked"):
                torch.testing.assert_close(got, want, atol=1e-9, rtol=0, msg=name)
        first, second = (r.network.state_dict()["3.weight"] for r in variant.runs)
        self.assertFalse(torch.equal(first, second), "each seed has weights of its own")


if __name__ == "__main__":
    sys.exit(unittest.main())
