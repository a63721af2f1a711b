"""Tests of the networks of Hyena's paper, where torch is: `python3 -m unittest discover papers/hyena`."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

try:
    import export_hyena
    import export_torchvision
except ImportError as missing:
    export_hyena, why = None, f"{missing.name} is not installed (make torch-models)"
else:
    why = ""


@unittest.skipIf(export_hyena is None, why)
class HyenaNetworks(unittest.TestCase):
    def shapes(self, name: str) -> list[tuple[int, ...]]:
        """Of each convolution: output channels, input channels of a group, kernel, stride."""
        model = export_hyena.NETWORKS[name][0]()
        return [(*c.weight.shape[:3], c.stride[0]) for c in export_hyena.convolutions(model)]

    def test_they_have_the_convolutions_that_the_paper_counts(self):
        self.assertEqual(len(self.shapes("vgg16")), 13)
        resnet = self.shapes("resnet20_imagenet")
        self.assertEqual((len(resnet), len([s for s in resnet if s[2] > 1])), (20, 17))
        mobile = self.shapes("mobilenet_v1")
        self.assertEqual((len(mobile), len([s for s in mobile if s[1] == 1])), (27, 13))

    def test_mobilenet_v1_has_the_size_that_its_paper_says(self):
        # Howard et al., Table 4: 569 million multiply-adds and 4.2 million parameters.
        size, products, weights = export_hyena.SIZE, 0, 0
        for out, channels, kernel, stride in self.shapes("mobilenet_v1"):
            size //= stride
            weights += out * channels * kernel**2
            products += size**2 * out * channels * kernel**2
        head = 1024 * 1000
        self.assertEqual((size, round((products + head) / 1e6), round((weights + head) / 1e5)), (7, 569, 42))

    def test_an_export_has_norms_folded_and_outputs_of_order_one(self):
        import numpy as np
        import onnx
        import onnxruntime

        model = export_torchvision.settle(export_hyena.mobilenet_v1(0.25, 10), 32)
        x = export_torchvision.noise(1, 32)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            path = Path(folder) / "small.onnx"
            export_torchvision.export(model, x, path, 13, False, False)
            operators = [node.op_type for node in onnx.load(path).graph.node]
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            (logits,) = session.run(None, {"input": x.numpy()})
        self.assertEqual((operators.count("Conv"), operators.count("BatchNormalization")), (27, 0))
        self.assertTrue(0.01 < np.abs(logits).max() < 100)
