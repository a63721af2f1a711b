"""Asks a gateway as programs do that know nothing of it: by Triton's and KServe's clients over HTTP and gRPC, and by curl.

    python3 tools/try_gateway.py target/release/jaguar               # SqueezeNet of demo/: the answers are predict's
    python3 tools/try_gateway.py target/release/jaguar --measure 40  # a small network: how much longer a kept query takes than predict's

Needs `tritonclient[http,grpc]` and `kserve` of PyPI, and curl; where they are not there it says so and leaves them out. Server, gateway and
predict run on this machine, by turns.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import importlib.util
import json
import multiprocessing
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHOTO = ROOT / "demo/photo.jpg"
NAME = "network"

# How far two private runs of one picture may be from each other, of what the logits span.
TOLERANCE = 0.05

# Seconds between two pictures that are measured.
PAUSE = 2.0


def started(command: list[str], line: str) -> tuple[subprocess.Popen[str], str]:
    """A process that goes on, and what the line of it says that matches."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    for said in process.stdout:
        if match := re.search(line, said):
            return process, match[1]
    raise SystemExit(f"{command} ended before it said {line}")


def wait_ready(address: str) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"http://{address}/v2/health/ready", timeout=10)
            return
        except urllib.error.HTTPError:
            time.sleep(0.1)
    raise SystemExit("the gateway is not ready after two minutes")


def check(name: str, got: list[float], want: list[float]) -> None:
    apart = max(abs(a - b) for a, b in zip(got, want, strict=True))
    span = max(want) - min(want)
    assert apart <= TOLERANCE * span, f"{name}: {apart} apart, of {span}"
    print(f"{name}: as predict, {apart / span:.4f} of the span apart")


def by_curl(address: str, want: list[float]) -> None:
    with urllib.request.urlopen(f"http://{address}/v2/models/{NAME}") as said:
        name = json.load(said)["inputs"][0]["name"]
    request = {
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(PHOTO.read_bytes()).decode()]}],
    }
    command = ["curl", "-sS", "--fail-with-body", "--data-binary", "@-", f"http://{address}/v2/models/{NAME}/infer"]
    answer = json.loads(subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True).stdout)
    check("curl", answer["outputs"][0]["data"], want)
    for path in ("/v2/health/live", "/v2/health/ready", "/openapi.json", "/metrics"):
        subprocess.run(["curl", "-sS", "--fail", "-o", "/dev/null", f"http://{address}{path}"], check=True)


def by_page(address: str, kind: str, folder: str) -> None:
    """What docs/gateway.md tells people to run: its block of this kind that asks, beside a photo.jpg, at this gateway."""
    page = (ROOT / "docs/gateway.md").read_text()
    (block,) = (block for block in re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) if "photo.jpg" in block)
    for there in ("localhost:8000", "127.0.0.1:8000"):
        block = block.replace(there, address)
    block = block.replace("squeezenet1_1", NAME)
    shutil.copy(PHOTO, f"{folder}/photo.jpg")
    command = ["bash", "-ec", block] if kind == "sh" else [sys.executable, "-c", block]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "espresso" in said, said
    print(f"docs/gateway.md, {kind}: as it stands there")


def by_triton(address: str, want: list[float]) -> None:
    import numpy
    import tritonclient.grpc
    import tritonclient.http

    file = numpy.array([PHOTO.read_bytes()], dtype=object)
    for kind in (tritonclient.http, tritonclient.grpc):
        client = kind.InferenceServerClient(address)
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(NAME)
        said = {} if kind is tritonclient.http else {"as_json": True}
        about = client.get_model_metadata(NAME, **said)
        assert client.get_server_metadata(**said)["name"] == "jaguar-gateway"
        given = kind.InferInput(about["inputs"][0]["name"], [1], "BYTES")
        given.set_data_from_numpy(file)
        answer = client.infer(NAME, [given])
        output = answer.as_numpy(about["outputs"][0]["name"])
        assert output.dtype == numpy.float32 and output.shape[0] == 1, (output.dtype, output.shape)
        check(kind.__name__, output.ravel().tolist(), want)
        assert answer.as_numpy("class")[0] == int(output.argmax())
        print(f"  {answer.as_numpy('label')[0].decode()}")
        shape = [2, *[int(side) for side in about["inputs"][0]["shape"][1:]]]
        tensors = kind.InferInput(about["inputs"][0]["name"], shape, "FP32")
        tensors.set_data_from_numpy(numpy.zeros(shape, dtype=numpy.float32))
        wanted = [kind.InferRequestedOutput(about["outputs"][0]["name"])]
        assert client.infer(NAME, [tensors], outputs=wanted).as_numpy(wanted[0].name()).shape == (2, len(want), *output.shape[2:])
        wrong = kind.InferInput(about["inputs"][0]["name"], [1, 7], "FP32")
        wrong.set_data_from_numpy(numpy.zeros([1, 7], dtype=numpy.float32))
        try:
            client.infer(NAME, [wrong])
        except Exception as error:  # Each client has its own, of no common kind.
            assert "is expected" in str(error), error
        else:
            raise AssertionError("a wrong shape was answered")
        client.close()


def by_kserve(address: str, want: list[float]) -> None:
    """By the client that KServe's own users have: both protocols, the picture as bytes and as a tensor."""
    import asyncio

    import numpy
    from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

    with urllib.request.urlopen(f"http://{address}/v2/models/{NAME}") as said:
        about = json.load(said)
    input_, output = about["inputs"][0], about["outputs"][0]["name"]

    def request(given: InferInput) -> InferRequest:
        return InferRequest(model_name=NAME, infer_inputs=[given])

    def picture() -> InferRequest:
        given = InferInput(input_["name"], [1], "BYTES")
        given.set_data_from_numpy(numpy.array([PHOTO.read_bytes()], dtype=object))
        return request(given)

    def zeros() -> InferRequest:
        shape = [1, *[int(side) for side in input_["shape"][1:]]]
        given = InferInput(input_["name"], shape, "FP32")
        given.set_data_from_numpy(numpy.zeros(shape, dtype=numpy.float32))
        return request(given)

    async def ask() -> None:
        rest = InferenceRESTClient(RESTConfig(protocol="v2", timeout=600))
        url = f"http://{address}"
        assert await rest.is_server_live(url) and await rest.is_server_ready(url) and await rest.is_model_ready(url, NAME)
        grpc = InferenceGRPCClient(address, timeout=600)
        assert await grpc.is_server_live() and await grpc.is_server_ready() and await grpc.is_model_ready(NAME)
        for name, infer in [("HTTP", lambda it: rest.infer(url, it, model_name=NAME)), ("gRPC", grpc.infer)]:
            answer = await infer(picture())
            (values,) = (it for it in answer.outputs if it.name == output)
            check(f"KServe's client, {name}", values.as_numpy().ravel().tolist(), want)
            (values,) = (it for it in (await infer(zeros())).outputs if it.name == output)
            assert values.as_numpy().size == len(want), values.shape
        await rest.close()
        await grpc.close()

    asyncio.run(ask())


class Predict:
    """`jaguar predict --stdin`, which keeps queries as the gateway does."""

    def __init__(self, jaguar: str, server: str, cache: str) -> None:
        command = [jaguar, "predict", "--stdin", "--json", "--keep", "1", "--server", server, "--cache", cache]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self) -> dict:
        assert self.process.stdin and self.process.stdout
        print(PHOTO, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(predict: Predict, address: str, count: int) -> None:
    """By turns: a picture to predict, and the same to the gateway by each protocol, each with a query that was prepared before. What comes
    on top of the query itself is told apart, since queries scatter by more than that."""
    import numpy
    import tritonclient.grpc
    import tritonclient.http

    file = numpy.array([PHOTO.read_bytes()], dtype=object)
    with urllib.request.urlopen(f"http://{address}/v2/models/{NAME}") as said:
        input_ = json.load(said)["inputs"][0]["name"]
    clients = {"http": tritonclient.http, "grpc": tritonclient.grpc}
    there = {name: kind.InferenceServerClient(address) for name, kind in clients.items()}
    names = ["predict", *clients, "bare"]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    # Python's own client, with the file behind the JSON: what Triton's clients do themselves is left out.
    bare = http.client.HTTPConnection(address)
    file_ = PHOTO.read_bytes()
    head = {"inputs": [{"name": input_, "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 4 + len(file_)}}]}
    body = json.dumps(head).encode() + len(file_).to_bytes(4, "little") + file_
    headers = {"Inference-Header-Content-Length": str(len(json.dumps(head)))}

    def queries() -> float:
        with urllib.request.urlopen(f"http://{address}/metrics") as said:
            return float(re.search(r"_query_seconds_sum (\S+)", said.read().decode())[1])

    def asked(name: str) -> None:
        # What all of them prepare is through by then.
        time.sleep(PAUSE)
        before = queries()
        begun = time.perf_counter()
        if name == "predict":
            answer = predict.ask()
            passed = time.perf_counter() - begun
            assert answer["cost"]["kept"] is not None, "no kept query was there"
            query = answer["cost"]["online_seconds"]
        elif name == "bare":
            bare.request("POST", f"/v2/models/{NAME}/infer", body, headers)
            answered = bare.getresponse()
            answered.read()
            passed = time.perf_counter() - begun
            assert answered.status == 200, answered.status
            query = queries() - before
        else:
            given = clients[name].InferInput(input_, [1], "BYTES")
            given.set_data_from_numpy(file)
            there[name].infer(NAME, [given])
            passed = time.perf_counter() - begun
            query = queries() - before
        seconds[name].append((passed, passed - query))

    for _ in range(count):
        for name in seconds:
            asked(name)
    print(f"ms, medians (quartiles) of {count} by turns, with a query that was prepared:")

    def line(values: list[float]) -> str:
        low, middle, high = statistics.quantiles(values, n=4)
        return f"{1e3 * middle:.1f} ({1e3 * low:.1f} to {1e3 * high:.1f})"

    for name, all_ in seconds.items():
        print(f"  {name}: {line([passed for passed, _ in all_])}, on top of the query {line([rest for _, rest in all_])}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("jaguar")
    parser.add_argument("--measure", type=int, default=0, metavar="REQUESTS")
    args = parser.parse_args()
    onnx, labels = f"{ROOT}/demo/squeezenet1_1.onnx", ["--labels", f"{ROOT}/demo/labels.txt"]
    image = ["--bgr", "--mean", "103.939,116.779,123.68", "--resize", "256"]
    if args.measure:
        # Its online part is short, and the next query is prepared soon.
        onnx, labels, image = f"{ROOT}/crates/cli/tests/models/resnet20_cifar10_32.onnx", [], ["--pixel-scale", "0.00392157"]
    with tempfile.TemporaryDirectory() as folder:
        model, cache = f"{folder}/{NAME}.jaguar", f"{folder}/cache"
        compile_ = [args.jaguar, "compile", onnx, "--calibrate", f"{ROOT}/demo/calibration", *labels, *image, "-o", model]
        subprocess.run(compile_, check=True, stdout=subprocess.DEVNULL)
        running = []
        try:
            server, at = started([args.jaguar, "serve", model, "--listen", "127.0.0.1:0", "--measure", "off"], r"listening on (\S+)")
            running.append(server)
            one = [args.jaguar, "predict", "--json", "--server", at, "--cache", cache, str(PHOTO)]
            want = json.loads(subprocess.run(one, check=True, capture_output=True, text=True).stdout)["outputs"][0]["values"]
            gateway, address = started(
                [args.jaguar, "gateway", "--server", at, "--listen", "127.0.0.1:0", "--cache", f"{folder}/gateway", "--model", NAME],
                r"listening on http://([^/]+)",
            )
            running.append(gateway)
            wait_ready(address)
            if args.measure:
                predict = Predict(args.jaguar, at, cache)
                measure(predict, address, args.measure)
                predict.end()
                return 0
            by_curl(address, want)
            by_page(address, "sh", folder)
            try:
                by_triton(address, want)
                by_page(address, "python", folder)
            except ImportError as error:
                print(f"skip: {error} (pip install 'tritonclient[http,grpc]'): Triton's clients are not tried")
            if importlib.util.find_spec("kserve"):
                # In a process of its own: each of the two packages describes the protocol anew, and one process takes one description.
                asking = multiprocessing.get_context("spawn").Process(target=by_kserve, args=(address, want))
                asking.start()
                asking.join()
                assert asking.exitcode == 0, "KServe's client failed"
            else:
                print("skip: no module named kserve (pip install kserve): KServe's client is not tried")
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
