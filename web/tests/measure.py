"""What a private prediction takes in headless Chromium: seconds before the picture and with it, processor time, memory.

    python3 web/tests/measure.py MODEL.jaguar PICTURE [ANSWERS [THREADS]]

    python3 web/tests/measure.py MODEL.jaguar PICTURE --hints [MBITS]

The second form: first answers on connections of their own, without a kept hint and with one, behind a relay that passes so many Mbit/s
(without it: as many as it can).

A `jaguar serve --web` with MODEL runs beside the browser, on this machine. *processor* is what the workers with the module used; where
others use the machine too, it is the figure to compare. *memory*: the renderer's largest resident set, and the module's own.
"""

import base64
import json
import os
import pathlib
import statistics
import sys
import time

import test_browser
import webdriver

SCRIPT = (
    test_browser.CONNECT
    + test_browser.BYTES
    + """
    const start = performance.now();
    const client = await Client.connect(url, args[1] ? { threads: args[1] } : {});
    window.lap = async () => {
        let at = performance.now();
        await client.prepare();
        const before = performance.now() - at;
        at = performance.now();
        const answer = await client.predict(blob);
        return { before, with: performance.now() - at, memory: answer.memory, name: answer.name, traffic: client.traffic };
    };
    return (performance.now() - start) / 1000;
"""
)


HINTS = (
    test_browser.ASKED
    + """
    window.first = async (hints) => {
        const at = performance.now();
        const client = await Client.connect(url, { hints });
        await client.prepare();
        const before = (performance.now() - at) / 1e3, received = client.traffic.received;
        const { label, memory } = await client.predict(blob);
        client.close();
        return { label, before, all: (performance.now() - at) / 1e3, received, sent: client.traffic.sent, memory };
    };
    await Client.forgetHints();
"""
)


class Slow(test_browser.Wire):
    """A relay that passes so many bytes a second in either direction."""

    rate = None

    def pump(self, source, sink, said, asked):
        rate, start, passed = self.rate, time.monotonic(), 0

        class Paced:
            def sendall(self, data):
                nonlocal start, passed
                now = time.monotonic()
                if now - start > passed / rate:
                    start, passed = now, 0
                passed += len(data)
                time.sleep(max(0.0, start + passed / rate - now))
                sink.sendall(data)

            def shutdown(self, how):
                sink.shutdown(how)

        super().pump(source, Paced() if rate else sink, None, asked)


def hints(model, picture, rate):
    Slow.rate = rate and rate * 1e6 / 8
    server = test_browser.Server(model)
    relay = Slow(server.port)
    try:
        with webdriver.Browser() as browser:
            browser.open(f"http://127.0.0.1:{relay.port}/client/nothing")
            browser.run(HINTS, base64.b64encode(pathlib.Path(picture).read_bytes()).decode())
            for turn in ["none", "keep", "keep", "none", "keep"]:
                came = browser.run("return await first(args[0]);", turn)
                print(
                    f"{turn}: {came['before']:.2f} s before the picture, {came['all']:.2f} s in all; {came['received'] / 1e6:.1f} MB "
                    f"received before it; {came['sent'] / 1e6:.1f} MB sent in all; module {came['memory'] / 1e6:.0f} MB: class {came['label']}"
                )
    finally:
        relay.end()
        server.end()


def workers():
    """Processor seconds of all workers of all Chromiums, and the largest resident set of a renderer, in MB."""
    ticks, largest = 0, 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() != "chromium":
                continue
            for thread in (process / "task").iterdir():
                name, rest = (thread / "stat").read_text().rsplit(")", 1)
                if "DedicatedWorker" in name:
                    ticks += sum(map(int, rest.split()[11:13]))
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            if "renderer" in (process / "cmdline").read_text():
                largest = max(largest, int(status["VmHWM"].split()[0]))
        except (FileNotFoundError, ProcessLookupError, ValueError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK"), largest / 1000


def main():
    model, picture = sys.argv[1:3]
    if "--hints" in sys.argv:
        return hints(model, picture, float(sys.argv[4]) if len(sys.argv) > 4 else None)
    answers = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else None
    server = test_browser.Server(model)
    try:
        with webdriver.Browser() as browser:
            browser.open(f"http://127.0.0.1:{server.port}/client/nothing")
            data = base64.b64encode(pathlib.Path(picture).read_bytes()).decode()
            connected = browser.run(SCRIPT, data, threads)
            print(f"connected after {connected:.2f} s")
            laps = []
            for number in range(answers):
                used = workers()[0]
                lap = browser.run("return await window.lap();")
                now, largest = workers()
                lap["processor"] = now - used
                laps.append(lap)
                print(
                    f"answer {number + 1}: {lap['before'] / 1e3:.2f} s before the picture, {lap['with'] / 1e3:.2f} s with it; "
                    f"{lap['processor']:.2f} s of processor; memory {largest:.0f} MB, module {lap['memory'] / 1e6:.0f} MB: {lap['name']}"
                )
            sent, received = (laps[-1]["traffic"][way] / 1e6 for way in ("sent", "received"))
            print(f"{sent:.1f} MB sent, {received:.1f} MB received in all")
            if len(laps) > 1:
                online = statistics.median(lap["with"] for lap in laps[1:]) / 1e3
                print(json.dumps({"online": online, "first": connected + (laps[0]["before"] + laps[0]["with"]) / 1e3}))
    finally:
        server.end()


if __name__ == "__main__":
    main()
