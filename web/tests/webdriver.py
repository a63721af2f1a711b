"""A browser for tests: headless Chromium by ChromeDriver, with nothing but Python's standard library."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


def missing():
    """Why there is no browser here; None if there is one."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    """One session of a headless Chromium, ended by `with`."""

    def __init__(self, width=1000, height=900, flags=()):
        self.folder = tempfile.TemporaryDirectory(prefix="jaguar-web-", ignore_cleanup_errors=True)
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._wait_for_driver()
            arguments = [*FLAGS, *flags, f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}"]
            options = {"args": arguments, "binary": shutil.which("chromium")}
            wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self.session = f"/session/{answer['sessionId']}"
            self._ask("POST", f"{self.session}/timeouts", {"script": 600_000, "pageLoad": 60_000})
        except BaseException:
            self.driver.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._ask("DELETE", self.session, patience=20)
        except TimeoutError:
            pass
        finally:
            self.driver.terminate()
            self.driver.wait(10)
            self.folder.cleanup()

    def _wait_for_driver(self):
        for _ in range(200):
            try:
                if self._ask("GET", "/status")["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.1)
        raise RuntimeError("chromedriver does not answer")

    def _ask(self, method, path, body=None, patience=610):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=patience) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise RuntimeError(f"{said['error']}: {said['message']}") from None

    def open(self, url):
        self._ask("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        """What the script, the body of an async function, returns."""
        body = (
            "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);"
            f"(async (...args) => {{ {script} }})(...given)"
            ".then((value) => done({ value }), (error) => done({ error: `${error?.kind ?? ''} ${error?.stack ?? error}` }));"
        )
        answer = self._ask("POST", f"{self.session}/execute/async", {"script": body, "args": list(arguments)})
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("value")

    def wait(self, condition, seconds=120):
        """Waits until a script's expression is true; returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(f"return {condition};")
            if value:
                return value
            time.sleep(0.1)
        raise TimeoutError(f"{condition} is not true within {seconds} s; the page says: {self.text()}")

    def text(self):
        return self.run("return document.body.innerText;")

    @contextlib.contextmanager
    def elsewhere(self):
        """Another tab is in front meanwhile."""
        here = self._ask("GET", f"{self.session}/window")
        other = self._ask("POST", f"{self.session}/window/new", {"type": "tab"})["handle"]
        self._ask("POST", f"{self.session}/window", {"handle": other})
        try:
            yield
        finally:
            self._ask("DELETE", f"{self.session}/window")
            self._ask("POST", f"{self.session}/window", {"handle": here})

    def choose_file(self, selector, path):
        found = self._ask("POST", f"{self.session}/element", {"using": "css selector", "value": selector})
        (element,) = found.values()
        self._ask("POST", f"{self.session}/element/{element}/value", {"text": str(path)})

    def log(self):
        return self._ask("POST", f"{self.session}/se/log", {"type": "browser"})

    def cdp(self, command, **parameters):
        return self._ask("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height, dark=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path):
        height = self.run("return document.documentElement.scrollHeight;")
        width = self.run("return innerWidth;")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
