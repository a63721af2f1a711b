"""What a private prediction takes in headless Chromium: seconds before the picture and with it, processor time, memory.

    python3 web/tests/measure.py MODEL.jaguar PICTURE [ANSWERS [THREADS]]

A `jaguar serve --web` with MODEL runs beside the browser, on this machine. *processor* is what the workers with the module used; where
others use the machine too, it is the figure to compare. *memory*: the renderer's largest resident set, and the module's own.
"""

import base64
import json
import os
import pathlib
import statistics
import sys

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
