"""Tests of the bill of materials: `python3 -m unittest discover tools`."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import sbom

ALLOW = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}


class Licences(unittest.TestCase):
    def test_expressions(self):
        for expression, allowed in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("GPL-3.0-only OR MIT", True),
            ("GPL-3.0-only AND MIT", False),
            ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
            ("MIT OR GPL-3.0-only AND Unicode-3.0", True),
            ("GPL-3.0-only OR GPL-2.0-only AND MIT", False),
            ("Apache-2.0 WITH LLVM-exception", True),
            ("MIT WITH LLVM-exception", False),
        ]:
            self.assertEqual(sbom.allowed_by(expression, ALLOW), allowed, expression)
        for broken in ("", "MIT OR", "(MIT", "MIT Apache-2.0", "AND MIT"):
            with self.assertRaises(ValueError, msg=broken):
                sbom.allowed_by(broken, ALLOW)

    def test_a_licence_that_is_missing_or_not_allowed_is_a_problem(self):
        part = {"purl": "pkg:cargo/x@1", "scope": "excluded"}
        self.assertEqual(len(sbom.licence_problems([part], ALLOW)), 1)
        self.assertEqual(len(sbom.licence_problems([part | {"licenses": [{"expression": "GPL-3.0-only"}]}], ALLOW)), 1)
        self.assertEqual(sbom.licence_problems([part | {"licenses": [{"expression": "MIT"}]}], ALLOW), [])
        tool = {"purl": "pkg:pypi/x@1", "scope": "excluded"}
        self.assertEqual(sbom.licence_problems([tool], ALLOW), [])
        self.assertEqual(len(sbom.licence_problems([tool | {"scope": "required"}], ALLOW)), 1)

    def test_a_module_whose_text_reads_otherwise_is_a_problem(self):
        parts = [{"purl": "pkg:golang/github.com/ALTree/bigfloat@v0.2.0", "name": "github.com/ALTree/bigfloat", "version": "v0.2.0"}]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "github.com/!a!l!tree/bigfloat@v0.2.0/LICENSE"
            path.parent.mkdir(parents=True)
            path.write_text("Permission is hereby granted, free of charge, to any person")
            self.assertEqual(sbom.go_problems(Path(folder), parts), [])
            path.write_text("GNU GENERAL PUBLIC LICENSE")
            self.assertEqual(len(sbom.go_problems(Path(folder), parts)), 1)


class Parts(unittest.TestCase):
    def test_every_go_module_is_listed(self):
        listed = {part["name"]: part["version"] for part in sbom.go_modules(sbom.ROOT)}
        required = re.findall(r"([\w.-]+\.[\w.]+/[\w./-]+) (v\S+)", (sbom.ROOT / "fhe/go.mod").read_text())
        self.assertEqual(listed, dict(required))
        self.assertEqual(set(listed), set(sbom.GO_LICENCES))

    def test_every_pinned_package_of_python_is_listed(self):
        listed = {part["purl"] for part in sbom.python_packages(sbom.ROOT)}
        for folder in sbom.REQUIREMENTS:
            for line in (sbom.ROOT / folder / "requirements.txt").read_text().splitlines():
                if "==" in line:
                    name, version = line.split("==")
                    self.assertIn(f"pkg:pypi/{name.lower()}@{version}", listed)
        self.assertIn("pkg:pypi/numpy", listed)

    def test_what_only_tests_need_is_not_shipped(self):
        package = lambda name: {"id": name, "name": name, "version": "1", "license": "MIT/Apache-2.0"}
        dep = lambda name, kind: {"pkg": name, "dep_kinds": [{"kind": kind}]}
        metadata = {
            "packages": [package("jaguar-cli"), package("used"), package("below"), package("tests")],
            "resolve": {
                "nodes": [
                    {"id": "jaguar-cli", "deps": [dep("used", None), dep("tests", "dev")]},
                    {"id": "used", "deps": [dep("below", None)]},
                    {"id": "below", "deps": []},
                    {"id": "tests", "deps": [dep("below", None)]},
                ]
            },
        }
        lock = {"package": [{"name": "used", "version": "1", "checksum": "00"}]}
        components, graph = sbom.crates(metadata, lock)
        scopes = {part["name"]: part["scope"] for part in components}
        self.assertEqual(scopes, {"jaguar-cli": "required", "used": "required", "below": "required", "tests": "excluded"})
        self.assertEqual([part.get("hashes") for part in components][1], [{"alg": "SHA-256", "content": "00"}])
        self.assertEqual(components[0]["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(graph[0]["dependsOn"], ["pkg:cargo/tests@1", "pkg:cargo/used@1"])


if __name__ == "__main__":
    unittest.main()
