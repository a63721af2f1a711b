"""Exceptions, by kind. Their texts are those of the command `jaguar`."""

from __future__ import annotations


class JaguarError(Exception):
    """Whatever Jaguar raises."""


class UnsupportedModelError(JaguarError):
    """The network has operators that cannot be run privately. The text names every reason, with the nodes."""


class ModelError(JaguarError):
    """A network or a compiled model that cannot be read, or does not fit."""


class ExportError(ModelError):
    """A `torch.nn.Module` that neither exporter takes."""


class CompileError(JaguarError):
    """A network that cannot be quantised as asked."""


class PlanError(JaguarError):
    """A compiled model that cannot be run with these choices."""


class OptionError(JaguarError, ValueError):
    """An option that cannot be."""


class InputError(JaguarError, ValueError):
    """An input that cannot be used: a picture, a tensor, a folder, a list of labels."""


class ConnectionFailedError(JaguarError, ConnectionError):
    """The connection failed: nobody listens, the peer is gone or silent."""


class PeerAbortedError(ConnectionFailedError):
    """The other side gave up, and said why."""


class PeerError(JaguarError):
    """The other side speaks another version, has no protocol in common, or breaks it."""


class ServerBusyError(JaguarError):
    """The server does no more for now: it has as many clients, hints or bytes as it takes, or this client has had its queries of the day.

    The text says when to come back.
    """


class InterruptedCallError(JaguarError):
    """The call was interrupted from another thread."""


class JaguarWarning(UserWarning):
    """What a person should know: what may cost accuracy, what is unusual about an input."""
