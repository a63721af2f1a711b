"""Private CNN inference: the image stays with the client, the weights with the server.

model = jaguar.compile(module, calibration=images, preprocessing=jaguar.Preprocessing.imagenet())
with jaguar.Server(model) as server, jaguar.Client(server.address) as client:
    print(client.predict("cat.jpg").top(3))
"""

from jaguar._native import __version__
from jaguar.client import Client
from jaguar.errors import (
    CompileError,
    ConnectionFailedError,
    ExportError,
    InputError,
    InterruptedCallError,
    JaguarError,
    JaguarWarning,
    ModelError,
    OptionError,
    PeerAbortedError,
    PeerError,
    PlanError,
    ServerBusyError,
    UnsupportedModelError,
)
from jaguar.model import Accuracy, Agreement, Model, OutputAgreement, Plan, Preprocessing, Score, compile
from jaguar.results import Cost, Prediction
from jaguar.server import Server

__all__ = [
    "Accuracy",
    "Agreement",
    "Client",
    "CompileError",
    "ConnectionFailedError",
    "Cost",
    "ExportError",
    "InputError",
    "InterruptedCallError",
    "JaguarError",
    "JaguarWarning",
    "Model",
    "ModelError",
    "OptionError",
    "OutputAgreement",
    "PeerAbortedError",
    "PeerError",
    "Plan",
    "PlanError",
    "Prediction",
    "Preprocessing",
    "Score",
    "Server",
    "ServerBusyError",
    "UnsupportedModelError",
    "__version__",
    "compile",
]
