"""Tests of the tools that need no package: `python3 -m unittest discover tools`."""

import collections
import contextlib
import importlib.util
import io
import json
import multiprocessing
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import capacity
import docs_site
import operator_parts
import python_reference
import soak
import walk_start
import zoo
from planted import ROOT, tree


class Zoo(unittest.TestCase):
    def test_families(self):
        for one, other, alike in (
            ("resnet10t", "resnet50d", True),
            ("efficientnet_b0", "tf_efficientnet_b7", True),
            ("convnext_atto", "convnext_large", True),
            ("mobilenetv2_035", "mobilenetv2_140", True),
            ("resnet18", "resnetv2_18", False),
            ("efficientnet_b0", "efficientnet_lite0", False),
            ("res2net50_14w_8s", "resnet50", False),
            ("vgg11", "vovnet39a", False),
        ):
            self.assertEqual(zoo.family(one) == zoo.family(other), alike, one)

    def test_reasons_are_sorted_and_counted(self):
        found = zoo.reasons("""error: x.onnx: 12 of the model's 214 nodes cannot be run privately, for 3 reasons:
              /a/Mul, /b/Mul, /c/Mul and 7 more (Mul of [1, 8, 4, 4], ?): multiplies by a constant that varies within a channel
              /d (Exp of [1, 8, 4, 4]): the operator is not supported
              /e (Foo): is new""")
        self.assertEqual(found["operators"], {"Mul": 10, "Exp": 1, "Foo": 1})
        self.assertEqual(found["kinds"], ["constants that vary within a channel", "exponentials, logarithms"])
        self.assertEqual(len(found["why"]), 3)
        self.assertEqual(zoo.reasons("reading\nerror: no memory\n"), {"kinds": ["other"], "why": ["no memory"]})

    def test_how_far_logits_are_off_is_what_was_said_last(self):
        line = "activations of 20 + 8 bits: logits off by up to {} % of their spread on inputs left out of calibration\n"
        self.assertEqual(zoo.off(line.format("1.74") + line.format("1.12") + "wrote\n"), {"off": 1.12})
        self.assertEqual(zoo.off("wrote\n"), {})

    def test_what_an_import_says_is_read(self):
        line = "n.onnx: off by 2.0e-6; integers of 20 bits off by 1.50e-1 % of the spread, 2 out of range; 3 Linear\n"
        self.assertEqual(zoo.told(line), {"state": "compiles", "float": 2e-6, "off": 0.15, "beyond": 2})
        line = "n.onnx: off by 2.0e-6; not quantised: layer 3: too much; 3 Linear\n"
        self.assertEqual(zoo.told(line), {"state": "refused", "kinds": ["other"], "why": ["not quantised: layer 3: too much; 3 Linear"]})
        line = "n.onnx: 1 of the model's 9 nodes cannot be run privately:\n  n6 (Exp of [1, 4, 6, 6]): is new. Do not\n"
        self.assertEqual(zoo.told(line)["kinds"], ["exponentials, logarithms"])

    def test_sizes_are_tried_until_one_compiles(self):
        def sides_of(answers):
            tried = []

            def at(model, side, jaguar, folder):
                tried.append(side)
                return answers[side]

            with mock.patch.object(zoo, "at", at):
                return zoo.at_some_size(lambda side: None, [32, 96, 224], "jaguar", Path("."))["state"], tried

        shape = {"state": "refused", "kinds": ["other"], "why": ["a window larger than its input"]}
        curve = {"state": "refused", "kinds": ["exponentials, logarithms"]}
        fails, right = {"state": "not exported", "why": "too small"}, {"state": "compiles"}
        self.assertEqual(sides_of({32: shape, 96: right}), ("compiles", [32, 96]))
        self.assertEqual(sides_of({32: fails, 96: shape, 224: right}), ("compiles", [32, 96, 224]))
        self.assertEqual(sides_of({32: right}), ("compiles", [32]))
        self.assertEqual(sides_of({32: shape, 96: shape, 224: shape}), ("refused", [32, 96, 224]))
        self.assertEqual(sides_of({32: curve}), ("refused", [32]), "an operator is refused at every size")
        self.assertEqual(sides_of({32: fails, 96: fails, 224: fails}), ("not exported", [32, 96, 224]))

    def test_the_table_goes_between_the_marks(self):
        page = f"before\n{zoo.BEGIN}\nold\n{zoo.END}\nafter\n"
        states = {"a": "compiles", "b": "refused", "c": zoo.OTHER_KIND, "d": zoo.UNTRIED}
        found = {name: {"state": state} for name, state in states.items()}
        found["a"] |= {"off": 1.234, "moves": 0.5}
        found["b"]["kinds"] = ["other"]
        found["e"] = {"state": "compiles", "off": 0.5}
        told = zoo.table({"timm": found})
        put = zoo.put(page, zoo.BEGIN, zoo.END, told)
        self.assertTrue(put.startswith("before\n") and put.endswith(f"{zoo.END}\nafter\n") and "old" not in put)
        self.assertIn("3 convolutional networks were tried (1 others are none): 2 compiles, 1 refused", put)
        self.assertIn("1 of 2 are off by at most 1 % of their logits' spread at 20 bits, others by more:", put)
        self.assertIn("| `a` | 1.23 | 0.5 |", put)
        self.assertIn("1 are not tried yet: `d`", put)
        self.assertIn("| other | 1 | `b` |", put)
        with self.assertRaises(ValueError):
            zoo.put("no marks", zoo.BEGIN, zoo.END, told)

    def test_a_sample_counts_tags_not_networks(self):
        networks = {
            "a": {"state": "compiles", "off": 0.5, "tags": ["a.one", "a.two"]},
            "b": {"state": "compiles", "off": 1.5, "moves": 0.25, "tags": ["b.one"]},
            "c": {"state": "refused", "kinds": ["exponentials, logarithms"], "tags": ["c.one", "c.two", "c.three"]},
            "d": {"state": "too large", "convolutional": False, "tags": ["d.one", "d.two"]},
            "e": {"state": zoo.UNTRIED, "tags": ["e.one", "e.two"]},
            "f": {"state": "compiles", "off": float("nan"), "tags": ["f.one"]},
            "g": {"state": "not exported", "why": "no such operator", "tags": ["g.one"]},
        }
        told = zoo.sampled({"seed": 5, "of": 1826, "networks": networks})
        self.assertIn("12 of timm's 1826 pretrained tags, drawn with the seed 5; 10 were looked at, and 2 of these (20 %) compile", told)
        for line in ("| compiles, within 1 % | 2 | 0 |", "| refused | 3 | 0 |", "| compiles, off by more | 2 | 0 |", "or memory | 2 | 2 |", "| not tried | 2 |"):
            self.assertIn(line, told)
        self.assertIn("- exponentials, logarithms: c (3 tags).", told)
        self.assertIn("b 1.5 %, moves by 0.25 %; f nan %.", told)
        self.assertIn("Not exported: g.", told)

    def test_trials_run_at_once_and_end_in_time(self):
        class Asleep:
            """A trial that tells after so many seconds, or never."""

            def __init__(self, name):
                self.name, self.limit = name, time.monotonic() + (0.4 if name == "slow" else 60)
                self.pipe, theirs = multiprocessing.Pipe(duplex=False)
                if name in ("first", "second"):
                    theirs.send(name)
                self.theirs, started[name] = theirs, time.monotonic()

            def left(self):
                return self.limit - time.monotonic()

            def end(self):
                return self.pipe.recv() if self.pipe.poll() else "too slow"

        began, started = time.monotonic(), {}
        names = ["endless", "first", "slow", "second", "third"]
        told = [(trial.name, found) for trial, found in zoo.trials(names, Asleep, 3, began + 1)]
        self.assertEqual(dict(told), {"first": "first", "second": "second", "slow": "too slow"})
        self.assertLess(started["slow"] - began, 0.3, "three are begun at once")
        self.assertGreater(time.monotonic() - began, 0.9, "what is not done is waited for until then")


class Soak(unittest.TestCase):
    def test_memory_that_grows_is_told_from_memory_that_wanders(self):
        wanders, memory = [], 0.0
        prg = random.Random(7)
        for queries in range(0, 30_000, 20):
            # Samples beside each other are alike: a walk that is drawn back.
            memory += prg.gauss(0, 4 << 20) - memory / 50
            wanders.append((queries, round((2 << 30) + memory)))
        leaks = [(queries, memory + 16384 * queries) for queries, memory in wanders]
        self.assertFalse(soak.growth(wanders)[2])
        slope, error, grows = soak.growth(leaks)
        self.assertTrue(grows)
        self.assertLess(abs(slope - 16384), 4 * error)
        # Taken for independent, these samples would have a smaller error.
        self.assertLess(soak.line(wanders)[1], soak.growth(wanders)[1])


class Packaging(unittest.TestCase):
    def test_dashboards_and_alerts_use_figures_that_are_documented(self):
        documented = set(re.findall(r"`(jaguar_\w+)", (ROOT / "docs" / "operation.md").read_text()))
        for name in ("grafana.json", "alerts.yml", "kubernetes.yaml"):
            used = set(re.findall(r"\bjaguar_\w+", (ROOT / "packaging" / name).read_text()))
            self.assertTrue(used, name)
            self.assertEqual({figure.removesuffix("_bucket") for figure in used} - documented, set(), name)

    def test_the_dashboard_is_whole(self):
        """What Grafana takes without a word, and shows wrongly."""
        board = json.loads((ROOT / "packaging" / "grafana.json").read_text())
        variables = {variable["name"]: variable for variable in board["templating"]["list"]}
        self.assertEqual((variables["source"]["type"], variables["source"]["query"]), ("datasource", "prometheus"))
        source = {"type": "prometheus", "uid": "${source}"}
        self.assertEqual(variables["instance"]["datasource"], source)
        panels = board["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        places = [(panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y) for panel in panels
                  for x in range(panel["gridPos"]["w"]) for y in range(panel["gridPos"]["h"])]
        self.assertEqual(len(set(places)), len(places), "panels overlap")
        self.assertEqual({x for x, _ in places}, set(range(24)), "24 columns")
        labels = dict(re.findall(r"`(jaguar_\w+)\{([\w,]+)\}", (ROOT / "docs" / "operation.md").read_text()))
        for panel in panels:
            with self.subTest(panel["title"]):
                self.assertTrue(panel["description"] and panel["type"] in ("stat", "timeseries"))
                self.assertEqual(panel["datasource"], source)
                self.assertEqual(len({target["refId"] for target in panel["targets"]}), len(panel["targets"]))
                settings = panel["fieldConfig"]["defaults"]
                # Grafana's own thresholds would turn a figure red from 80 on.
                steps = [step["value"] for step in settings["thresholds"]["steps"]]
                self.assertEqual((steps[0], steps[1:]), (None, sorted(steps[1:])))
                units = {settings["unit"]} | {each["value"] for override in panel["fieldConfig"]["overrides"]
                                              for each in override["properties"] if each["id"] == "unit"}
                self.assertLessEqual(units, {"none", "s", "bytes", "Bps"})
                if panel["type"] == "timeseries":
                    self.assertIs(panel["options"]["legend"]["showLegend"], True)
                    self.assertIn("sort", panel["options"]["tooltip"])
                for target in panel["targets"]:
                    expression = target["expr"]
                    self.assertEqual(target["datasource"], source)
                    # Of the replicas that are chosen above.
                    self.assertEqual(expression.count("jaguar_"), expression.count('instance=~"$instance"'))
                    # Counters grow for ever: their rate is what can be looked at. The unit says which figure it is.
                    self.assertTrue("_total" not in expression or "rate(" in expression)
                    of_bytes = "bytes" in settings["unit"] or settings["unit"] == "Bps"
                    self.assertTrue(of_bytes or "_bytes" not in expression)
                    self.assertEqual("_seconds" in expression, settings["unit"] == "s")
                    # A series is named by labels that it has.
                    figure = re.search(r"jaguar_\w+", expression)[0].removesuffix("_bucket")
                    by = re.search(r"by \(([\w, ]+)\)", expression)
                    known = set(by[1].split(", ")) if by else {"instance", *labels.get(figure, "").split(",")}
                    self.assertLessEqual(set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), known)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_prometheus_takes_every_expression(self):
        panels = json.loads((ROOT / "packaging" / "grafana.json").read_text())["panels"]
        queries = [target["expr"].replace("$__rate_interval", "1m") for panel in panels for target in panel["targets"]]
        rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
        # (JSON is YAML.)
        with tree({"rules.yml": json.dumps({"groups": [{"name": "panels", "rules": rules}]})}) as folder:
            for rules in (folder / "rules.yml", ROOT / "packaging" / "alerts.yml"):
                told = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
                self.assertEqual(told.returncode, 0, told.stdout + told.stderr)

    def test_the_operator_s_run_finds_what_it_replaces(self):
        for name, texts in operator_parts.REPLACED.items():
            text = (ROOT / "packaging" / name).read_text()
            self.assertEqual([old for old in texts if old not in text], [], name)


try:
    import checkpoints
except ImportError:
    checkpoints = None


@unittest.skipIf(checkpoints is None, "numpy is not installed")
class Checkpoints(unittest.TestCase):
    def test_a_pickle_cannot_run_code(self):
        class Attack:
            def __reduce__(self):
                return (print, ("code ran",))

        with self.assertRaises(pickle.UnpicklingError):
            checkpoints.numpy_pickle(pickle.dumps(Attack()))

    def test_arrays_come_back(self):
        import numpy as np

        # Written by hand in the names that old numpy used, which is what the package contains.
        data = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
        old = pickle.dumps(data, protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
        np.testing.assert_array_equal(checkpoints.numpy_pickle(old)["w"], data["w"])

    def test_a_torch_checkpoint_comes_back(self):
        import numpy as np

        class Storage:
            """Pickled as torch pickles the storage of a tensor."""

        class Tensor:
            def __init__(self, offset, size, stride):
                self.parts = (offset, size, stride)

        storage = Storage()

        class Writer(pickle.Pickler):
            def persistent_id(self, thing):
                return ("storage", FloatStorage, "0", "cpu", 6, None) if thing is storage else None

            def reducer_override(self, thing):
                if isinstance(thing, Tensor):
                    return (_rebuild_tensor_v2, (storage, *thing.parts, False, collections.OrderedDict()))
                return NotImplemented

        file = io.BytesIO()
        for part in (checkpoints._TORCH_MAGIC, 1001, {"little_endian": True}):
            pickle.dump(part, file, protocol=2)
        Writer(file, protocol=2).dump(collections.OrderedDict(
            whole=Tensor(0, (2, 3), (3, 1)), turned=Tensor(1, (2, 2), (1, 3))))
        pickle.dump(["0"], file, protocol=2)
        values = np.arange(6, dtype="<f4")
        file.write((6).to_bytes(8, "little") + values.tobytes())
        state = checkpoints.torch_state_dict(file.getvalue())
        np.testing.assert_array_equal(state["whole"], [[0, 1, 2], [3, 4, 5]])
        np.testing.assert_array_equal(state["turned"], [[1, 4], [2, 5]])


class DocsSite(unittest.TestCase):
    def test_links_lead_to_pages_of_the_site_or_become_text(self):
        for page, text, expected in [
            ("start.md", "[a](models.md#errors)", "[a](models.md#errors)"),
            ("start.md", "[the\nb](../python/jaguar/README.md#images)", "[the\nb](repository/python.md#images)"),
            ("repository/python.md", "[t](../../docs/threat-model.md)", "[t](../threat-model.md)"),
            ("protocols/linear.md", "[code](../../crates/ring/src/lib.rs)", "code"),
            ("protocols/linear.md", "[`x`](../planner.md), [y](#ring), [z](https://z.example)", None),
            ("start.md", "![figure](figures/relu-flights.svg)", None),
            ("start.md", "```sh\n[a](nowhere.md)\n```\n[b](models.md)", None),
        ]:
            self.assertEqual(docs_site.rewritten(text, page), (expected or text, []), text)

    def test_a_link_that_leads_nowhere_is_a_warning(self):
        """mkdocs runs with `--strict`: a warning is an error."""
        page = mock.Mock()
        page.file.src_uri = "start.md"
        for text, count in (
            ("[a](models.md)", 0),
            ("[a](gone.md)", 1),
            ("[a](../crates/gone.rs) and [b](gone.md#part)", 2),
            ("[c](../Makefile)", 0),
        ):
            with mock.patch.object(docs_site.LOG, "warning") as warned:
                docs_site.on_page_markdown(text, page, None, None)
            self.assertEqual(warned.call_count, count, text)
        self.assertIn("build --strict", (ROOT / "Makefile").read_text())

    def test_names_of_options_stay_whole(self):
        for html, expected in [
            ("<code>plan --report x</code>", '<code>plan <span class="option">--report</span> x</code>'),
            ("<code>-o</code> and --x", '<code><span class="option">-o</span></code> and --x'),
            ("<code>jaguar-bench</code>", "<code>jaguar-bench</code>"),
            ("<pre><code>a --b</code></pre>", "<pre><code>a --b</code></pre>"),
        ]:
            self.assertEqual(docs_site.options_whole(html), expected)

    def test_figures_are_there_and_have_titles(self):
        text = (ROOT / "docs" / "how-it-works.md").read_text()
        figures = re.findall(r"!\[[^\]]+\]\((figures/[^)]+)\)", text)
        self.assertEqual(len(figures), 5)
        for figure in figures:
            drawing = (ROOT / "docs" / figure).read_text()
            self.assertIn("<title", drawing)
            self.assertIn("prefers-color-scheme:dark", drawing)


class Start(unittest.TestCase):
    def test_the_page_is_walked_block_by_block(self):
        found = walk_start.blocks((ROOT / "docs" / "start.md").read_text())
        self.assertEqual(found[0][:2], ("1. Install", "sh"))
        words = [command for _, language, text in found if language == "sh" for command in walk_start.commands(text)]
        compiles = "jaguar compile own.onnx --calibrate demo/calibration --pixel-scale "
        self.assertTrue(any(word.startswith(compiles) for word in words), words)
        self.assertIn("jaguar serve own.jaguar", words)
        python = [heading for heading, language, _ in found if language == "python"]
        self.assertEqual(python, ["2. A network", "The same from Python"])

    def test_clocks_change_nothing_else(self):
        program = "import io\nfound = [1]\nwith io.StringIO() as text:\n    text.write('a')\n"
        program += "    for one in range(3):\n        found.append(one)\n"
        told, names = io.StringIO(), {}
        with contextlib.redirect_stderr(told):
            exec(walk_start.with_clocks(program), names)
        self.assertEqual(names["found"], [1, 0, 1, 2])
        steps = [line.split(" ", 2) for line in told.getvalue().splitlines()]
        for clock, processor, _ in steps:
            self.assertTrue(float(clock.removeprefix("@")) >= 0 and float(processor) >= 0)
        lines = [line.strip() for line in program.splitlines()[:5]]
        self.assertEqual([words for _, _, words in steps], [*lines, "its end"])


class Reference(unittest.TestCase):
    def test_every_public_name_of_the_package_is_in_its_reference(self):
        page = python_reference.page()
        for name in python_reference.exported():
            if not name.startswith("__"):
                self.assertIn(f"### {name}\n", page)
        for part in (
            "jaguar.compile(\n    model: Any,",
            "#### Client.predict_many",
            "Model.load(path: PathLike) -> Model",
            "async predict_async(image: Image) -> Prediction",
            "| `logits` | `NDArray[np.float64] | None` | The model's logits",
        ):
            self.assertIn(part, page)
        self.assertNotIn("self", re.findall(r"```python\n(.*?)```", page, re.S)[0])

    def test_a_public_name_without_its_line_in_the_reference_is_seen(self):
        names = python_reference.exported()
        with (
            mock.patch.object(python_reference, "exported", return_value=[*names, "NewThing"]),
            self.assertRaises(KeyError),
        ):
            python_reference.page()

    def test_every_crate_is_in_the_reference_of_rust(self):
        page = docs_site.rust_reference(built=False)
        manifests = [*ROOT.glob("crates/*/Cargo.toml"), *ROOT.glob("papers/*/Cargo.toml")]
        crates = [manifest.parent.name for manifest in manifests]
        self.assertGreater(len(crates), 15)
        for crate in crates:
            self.assertRegex(page, rf"\| `{crate}` \| \S.{{20,}} \|")


try:
    import torchvision
except ImportError:
    torchvision = None


@unittest.skipIf(torchvision is None, "torchvision is not installed (make torch-models)")
class Recipes(unittest.TestCase):
    def test_the_tables_say_what_torchvision_says(self):
        import recipes

        found = recipes.torchvision_recipes()
        page = (ROOT / "docs" / "your-model.md").read_text()
        self.assertIn(f"{torchvision.__version__.partition('+')[0]}, all {sum(map(len, found.values()))} weights", page)
        usual = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        others = {name: key[3:] for key, names in found.items() for name in names if key[3:] != usual}
        self.assertEqual(set(others), {"efficientnet_v2_l:V1", "vgg16:FEATURES"})
        self.assertEqual(others["efficientnet_v2_l:V1"], ((0.5,) * 3, (0.5,) * 3))
        mean, deviation = others["vgg16:FEATURES"]
        self.assertEqual([round(255 * m) for m in mean], [123, 117, 104])
        self.assertTrue(all(abs(255 * d - 1) < 1e-6 for d in deviation))
        sizes = {name: key[:3] for key, names in found.items() for name in names}
        self.assertEqual(sizes["inception_v3:V1"], (342, 299, "bilinear"))
        for version, side in (("V1", 256), ("V2", 232)):
            own = [size for name, size in sizes.items() if name.endswith(version)]
            self.assertGreater(2 * own.count((side, 224, "bilinear")), len(own), version)


# What a checkpoint names; pickle looks the names up in their modules when it writes. (Here, where all that needs torch
# has it.)
class FloatStorage:
    pass


def _rebuild_tensor_v2(*_):
    raise AssertionError("only its name is used")


def _pose_as(thing, module: str) -> None:
    parent = sys.modules.setdefault(module, type(sys)(module))
    setattr(parent, thing.__name__, thing)
    thing.__module__ = module


_pose_as(FloatStorage, "torch")
_pose_as(_rebuild_tensor_v2, "torch._utils")


class Capacity(unittest.TestCase):
    """The simulated line, beside what is known of lines."""

    def test_one_thread_waits_as_long_as_theory_says(self) -> None:
        # Poisson arrivals, one server, equal service: the mean wait is load * service / (2 (1 - load)) (Pollaczek and Khinchine).
        chance, now, came = random.Random(5), 0.0, []
        for _ in range(60_000):
            now += chance.expovariate(0.35)
            came.append((now, chance.randrange(1000)))
        model = {"name": "", "seconds": 2.0, "down": 0, "up": 0, "memory": 0}
        told = capacity.simulate(1, model, came, 1)
        waits = [seconds - 2.0 for _, seconds, _ in told]
        load = 0.7
        self.assertEqual(len(told), len(came))
        self.assertAlmostEqual(sum(waits) / len(waits), load * 2.0 / (2 * (1 - load)), delta=0.1)

    def test_who_asks_much_waits_for_those_who_ask_little(self) -> None:
        model = {"name": "", "seconds": 1.0, "down": 0, "up": 0, "memory": 0}
        came = [(0.0, 0)] * 10 + [(0.5, 1), (0.6, 2)]
        ends = {(client, came_at): came_at + seconds for came_at, seconds, client in capacity.simulate(1, model, came, 1)}
        self.assertEqual((ends[1, 0.5], ends[2, 0.6]), (2.0, 3.0))

    def test_sessions_share_threads_and_their_bytes_take_time(self) -> None:
        # Two threads, 1 s of work and 1 s of bytes each: four places. The first two compute alone, the next two wait for none.
        model = {"name": "", "seconds": 1.0, "down": 12_500_000, "up": 0, "memory": 0}
        told = capacity.simulate(1, model, [(0.0, 0), (0.0, 1), (0.0, 2), (0.0, 3)], 2)
        self.assertEqual([round(seconds, 6) for _, seconds, _ in told], [3.0] * 4)

    def test_a_row_is_found_by_its_name(self) -> None:
        table = {"header": ["network", "s"], "rows": [["tail", "1"], ["k3-d20-w1", "2"]]}
        self.assertEqual(capacity.row_of(table, "network", "k3-d20-w1")["s"], "2")
        self.assertRaises(KeyError, capacity.row_of, table, "network", "k3")

    def test_a_months_bytes_cost_less_the_more_they_are(self) -> None:
        self.assertAlmostEqual(capacity.egress(10_000), 900)
        self.assertAlmostEqual(capacity.egress(60_000), 900 + 40_000 * 0.085 + 10_000 * 0.07)
        self.assertAlmostEqual(capacity.egress(1_000_000), 900 + 3400 + 7000 + 850_000 * 0.05)


class BesideSpu(unittest.TestCase):
    """What tools/beside_spu/run.py makes of its turns."""

    @classmethod
    def setUpClass(cls) -> None:
        told = importlib.util.spec_from_file_location("beside_spu", ROOT / "tools" / "beside_spu" / "run.py")
        cls.run_ = importlib.util.module_from_spec(told)
        with mock.patch.object(sys, "path", list(sys.path)):
            told.loader.exec_module(cls.run_)

    def test_ratios_are_of_one_turn(self) -> None:
        def turn(cpu, online=0.0):
            return {"cpu": cpu, "online": online, "bytes": 2**20, "largest": cpu / 100, "mean": 0.0001}

        # (The ratio of the medians would be 10.)
        turns = {"theirs": [turn(20.0), turn(10.0), turn(90.0)], "ours": [turn(1.0, 0.25), turn(2.0, 0.5), turn(3.0, 0.75)]}
        theirs, ours = self.run_.rows("x", 1000, turns)
        self.assertEqual(theirs, ["x", "1,000", "SPU, theirs", "20.00", "–", "–", "1", "0.0100", "90.000", "20.0", "1.0"])
        self.assertEqual(ours[2:6] + ours[9:], ["ours", "2.00", "1.50", "0.50", "1.0", "1.0"])

    def test_the_bytes_of_a_run_are_those_between_its_answers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "spu0.log"
            log.write_text('{"ready": true}\nLink details: total send bytes 5, recv\n{"cpu": 1}\nLink details: total send bytes 70, recv\n{"cpu": 2}\n{"cp')
            spu = self.run_.Spu.__new__(self.run_.Spu)
            spu.parties, spu.logs, spu.said = [mock.Mock()], [log], [1]
            self.assertEqual([spu.answered()[0], spu.answered()[0]], [{"cpu": 1, "sent": 5}, {"cpu": 2, "sent": 70}])

    @unittest.skipUnless(sys.platform == "linux", "reads Linux's clocks")
    def test_the_clock_of_another_process_counts_its_work(self) -> None:
        program = "import time\nfor _ in range(2):\n input()\n while time.process_time() < 0.2 * (1 + _): pass\n print(time.process_time(), flush=True)\ninput()"
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            told = []
            for _ in range(2):
                other.stdin.write(b"\n")
                other.stdin.flush()
                own = float(other.stdout.readline())
                told += [own, self.run_.cpu(other)]
            # Its own word, and ours, by turns: neither comes before the other.
            self.assertEqual(told, sorted(told))
            self.assertGreater(told[0], 0.0)
            other.communicate(b"\n")


class Makefile(unittest.TestCase):
    @unittest.skipUnless(shutil.which("rustup"), "rustup is not installed")
    def test_rustup_knows_the_options_it_gets(self):
        # (A recipe that goes on without a target would hide that rustup refused its options.)
        calls = re.findall(r"\brustup ([^\n>)]*?target add(?: -\S+)*)", (ROOT / "Makefile").read_text())
        self.assertGreaterEqual(len(calls), 3)
        for call in calls:
            asked = subprocess.run(["rustup", *call.split(), "--help"], capture_output=True, text=True)
            self.assertEqual(asked.returncode, 0, f"rustup {call}: {asked.stderr}")
