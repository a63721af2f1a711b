"""One party of SPU, a process of its own: `run.py` starts two. On each line of its input, `form turn`, both run the network once in that form.

Party 0 is the server: it has the weights, as values that are private to it. The input is in shares. What is said of a run is a line of JSON; SPU's own
log has the bytes.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import spu.api as api
import spu.libspu as lib
import spu.utils.frontend as frontend

from networks import CASES

SERVER = 0
PATIENCE = 3_600_000


def link(rank: int, ports: list[str]) -> lib.link.Context:
    told = lib.link.Desc()
    told.recv_timeout_ms = told.http_timeout_ms = PATIENCE
    for number, port in enumerate(ports):
        told.add_party(f"party {number}", f"127.0.0.1:{port}")
    return lib.link.create_brpc(told, rank)


def packed(share: lib.Share) -> str:
    return pickle.dumps((share.meta, list(share.share_chunks))).hex()


def unpacked(text: bytes) -> lib.Share:
    share = lib.Share()
    share.meta, share.share_chunks = pickle.loads(bytes.fromhex(text.decode()))
    return share


def main() -> None:
    rank, name, folder, settings, *ports = sys.argv[1:]
    me = int(rank)
    case = next(case for case in CASES if case.name == name)
    inputs = [np.load(path) for path in sorted(Path(folder).glob("asked-*.npy"))]
    config = lib.RuntimeConfig()
    if not config.ParseFromJsonString(settings):
        raise SystemExit(f"SPU does not know these settings: {settings}")
    options = lib.CompilerOptions()
    options.enable_optimize_denominator_with_broadcast = True
    context = link(me, ports)
    io, runtime = api.Io(2, config), api.Runtime(context, config)
    weights = case.weights()
    names, secret = ["x", *weights], [lib.Visibility.VIS_SECRET] * (1 + len(weights))
    compiled = {}
    for number, (form, function) in enumerate(case.forms.items()):
        def flat(x, *given, function=function):
            return function(x, dict(zip(weights, given, strict=True)))

        arguments = [inputs[0], *weights.values()]
        compiled[form], _ = frontend.compile(frontend.Kind.JAX, flat, arguments, {}, names, secret, lambda out: ["y"], copts=options)
    for key, value in weights.items():
        runtime.set_var(key, io.make_shares(value, lib.Visibility.VIS_SECRET, SERVER)[me])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if me == SERVER:
            mine, theirs = io.make_shares(inputs[asked["turn"]], lib.Visibility.VIS_SECRET)
            context.send(1, packed(theirs))
        else:
            mine = unpacked(context.recv(SERVER))
        runtime.set_var("x", mine)
        context.barrier()
        before, wall = time.process_time(), time.monotonic()
        runtime.run(compiled[asked["form"]])
        took = {"cpu": time.process_time() - before, "seconds": time.monotonic() - wall}
        if me == SERVER:
            whole = io.reconstruct([runtime.get_var("y"), unpacked(context.recv(1))])
            np.save(Path(folder) / "answer.npy", whole)
        else:
            context.send(SERVER, packed(runtime.get_var("y")))
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
