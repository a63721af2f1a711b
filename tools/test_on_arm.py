"""Tests of what runs tests on Arm and compares an Arm client's answers with this machine's (on_arm.py), of what finds a wheel for Arm
(wheel_on_arm.py), and of the table of instructions (arm_counts.py)."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import arm_counts
import on_arm
import wheel_on_arm


class Answers(unittest.TestCase):
    def test_noise_is_no_difference(self):
        self.assertIsNone(on_arm.difference([0.1, 0.5], [0.1004, 0.4996]))

    def test_another_class_and_other_logits_are_found(self):
        self.assertIn("class 1 here and 0 on Arm", on_arm.difference([0.1, 0.105], [0.106, 0.1]))
        for other in ([0.1, 0.52], [-0.5, 0.5]):
            self.assertIn("class 1 here and 1 on Arm", on_arm.difference([0.1, 0.5], other))

    def test_an_answer_of_another_length_is_found(self):
        with self.assertRaises(ValueError):
            on_arm.difference([0.1, 0.5], [0.1])

    def test_both_clients_get_the_same_values(self):
        file = on_arm.npy((1, 2), b"12345678")
        self.assertEqual((len(file), file[-8:]), (128 + 8, b"12345678"))

    def test_what_is_missing_has_a_name(self):
        with mock.patch("on_arm.shutil.which", return_value=None), mock.patch("on_arm.subprocess.run") as rustc:
            rustc.return_value.returncode = 1
            self.assertEqual(len(on_arm.missing(["qemu-aarch64"])), 2)
            self.assertIn("qemu-aarch64", on_arm.missing(["qemu-aarch64"]))


class Programs(unittest.TestCase):
    """Programs of tests are scripts here, and the emulator is a shell."""

    def run_one(self, script: str, left_out: dict[str, str]) -> tuple[on_arm.Ran, str]:
        told = io.StringIO()
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch("on_arm.EMULATOR", ["sh"]),
            mock.patch("on_arm.LEFT_OUT", {Path(folder).name: left_out}),
            contextlib.redirect_stdout(told),
        ):
            (Path(folder) / "program").write_text(script)
            return on_arm.tests(Path(folder).name, [(Path(folder) / "program", Path(folder))]), told.getvalue()

    def test_results_are_counted_and_what_passed_is_not_told(self):
        ran, told = self.run_one("echo 'test a ... ok'; echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'", {})
        self.assertEqual((ran.passed, ran.failed, ran.ignored, ran.left_out), (3, 0, 1, 0))
        self.assertNotIn("test a", told)
        both = ran + ran
        self.assertEqual((both.passed, both.ignored, both.seconds), (6, 2, 2 * ran.seconds))

    def test_a_failure_is_counted_and_told(self):
        script = "echo 'test a ... FAILED'; echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out'; exit 101"
        ran, told = self.run_one(script, {})
        self.assertEqual((ran.passed, ran.failed), (3, 2))
        self.assertIn("test a ... FAILED", told)

    def test_a_program_that_ends_too_early_fails(self):
        for script in ("echo 'test a ... ok'; kill -9 $$", "exit 0"):
            self.assertEqual(self.run_one(script, {})[0].failed, 1)
        ended = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'; exit 1"
        self.assertEqual(self.run_one(ended, {})[0].failed, 1)

    def test_a_program_that_hangs_ends(self):
        with mock.patch("on_arm.LONGEST_SECONDS", 0.2):
            ran, told = self.run_one("exec sleep 100", {})
        self.assertEqual(ran.failed, 1)
        self.assertIn("without a result", told)

    def test_what_is_left_out_is_asked_for_and_must_be_there(self):
        script = 'test "$*" = "--exact --skip a::b" && echo "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; {} filtered out"'
        ran, told = self.run_one(script.format(1), {"a::b": "why not"})
        self.assertEqual((ran.failed, ran.left_out), (0, 1))
        self.assertIn("left out: a::b: why not", told)
        self.assertEqual(self.run_one(script.format(0), {"a::b": "why not"})[0].failed, 1)

    def test_only_programs_of_tests_are_run(self):
        test = '{"executable": "/a", "manifest_path": "/crates/ring/Cargo.toml", "profile": {"test": true}}'
        other = '{"executable": "/b", "manifest_path": "/crates/ring/Cargo.toml", "profile": {"test": false}}'
        self.assertEqual(on_arm.programs(f'{test}\n{other}\n{{"reason": "x"}}\n'), [(Path("/a"), Path("/crates/ring"))])

    def test_an_unknown_piece_is_named(self):
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(on_arm.main(["ring", "rnig"]), 2)
        self.assertTrue(told.getvalue().startswith("rnig: not a crate"))


class Wheels(unittest.TestCase):
    def test_one_wheel_for_arm_must_be_there(self):
        for names in ([], ["a_x86_64.whl"], ["a_aarch64.whl", "b_aarch64.whl"]):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as told:
                for name in names:
                    (Path(folder) / name).touch()
                self.assertEqual(wheel_on_arm.main(Path(folder)), 1)
                self.assertIn("make wheel WHEEL_TARGET", told.getvalue())

    def test_what_cannot_be_had_is_said(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as told:
            (Path(folder) / "a_aarch64.whl").touch()
            with mock.patch("wheel_on_arm.shutil.which", return_value=None):
                self.assertEqual(wheel_on_arm.main(Path(folder)), 0)
            with mock.patch("wheel_on_arm.shutil.which", return_value="/x"), mock.patch("wheel_on_arm.python", return_value=None):
                self.assertEqual(wheel_on_arm.main(Path(folder)), 0)
        self.assertIn("no qemu-aarch64, no apt-get, no dpkg-deb", told.getvalue())
        self.assertIn("apt-get cannot fetch python3.11 and libstdc++6", told.getvalue())


class Counts(unittest.TestCase):
    def test_the_plugins_number_is_read(self):
        self.assertEqual(arm_counts.counted("warning: something\ninstructions 1234\n"), 1234)
        with self.assertRaises(SystemExit):
            arm_counts.counted("instructions none\n")

    def test_the_table_goes_between_its_marks(self):
        page = f"above\n{arm_counts.BEGIN}\nold\n{arm_counts.END}\nbelow\n"
        text = arm_counts.table([("a product", 1000, 4500, 8000)])
        self.assertIn("| a product | 1,000 | 4,500 | 4.5 | 8,000 | 8.0 |", text)
        written = arm_counts.put(page, text)
        self.assertNotIn("old", written)
        self.assertTrue(written.startswith("above\n") and written.endswith("below\n"))
        self.assertEqual(arm_counts.put(written, text), written)

    def test_the_page_has_the_marks(self):
        self.assertIn(arm_counts.BEGIN, arm_counts.PAGE.read_text())
        self.assertIn(arm_counts.END, arm_counts.PAGE.read_text())


if __name__ == "__main__":
    unittest.main()
