"""Tests of what compares an Arm client's answers with this machine's (on_arm.py), and of the table of instructions (arm_counts.py)."""

import unittest
from unittest import mock

import arm_counts
import on_arm


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
