"""Tests of narrow_pages.py: pages in which what it must find is planted. Without Chromium they are skipped."""

from __future__ import annotations

import contextlib
import io
import struct
import unittest
import zlib

import narrow_pages
from planted import ROOT, tree

#: As the theme makes a page: a wide table in a wrap that moves.
PAGE = """<!DOCTYPE html><html data-md-color-scheme="default"><style>
:root {{ --md-default-bg-color: #fff; --md-default-fg-color--lighter: #00000052; --md-code-bg-color: #f5f5f5 }}
body {{ margin: 0 }} .md-typeset__scrollwrap {{ overflow-x: auto }} td {{ padding: 1em; white-space: nowrap }}
pre > code {{ display: block; overflow: auto; background: var(--md-code-bg-color) }}
{style}</style>
<body class="md-typeset">
<div class="md-typeset__scrollwrap"><div class="md-typeset__table"><table>{rows}</table></div></div>
<pre><code>{code}</code></pre>{more}</body></html>"""


def page(style: str, columns: int, more: str = "") -> str:
    row = "<tr>" + "<td>some words</td>" * columns + "</tr>"
    code = "jaguar predict --server server.example:7447 " * columns
    return PAGE.format(style=style, rows=row * 8, code=code, more=more)


@unittest.skipUnless(narrow_pages.browser(), "no Chromium")
class NarrowPages(unittest.TestCase):
    def found(self, **pages: str) -> dict[str, list[str]]:
        """What is found wrong, by page."""
        files = {f"{name}.html": text for name, text in pages.items()}
        with tree(files) as folder, contextlib.redirect_stdout(io.StringIO()):
            paths = {name: folder / f"{name}.html" for name in pages}
            program = narrow_pages.browser()
            assert program is not None
            wrong = narrow_pages.check(program, list(paths.values()))
            return {name: [text for text in wrong if text.startswith(f"{path}:")] for name, path in paths.items()}

    def test_what_goes_on_is_shown(self) -> None:
        style = (ROOT / "docs/site.css").read_text()
        opaque = style + ".md-typeset .md-typeset__table table:not([class]) { background: #fff; }"
        found = self.found(
            shown=page(style, 9),
            bare=page("", 9),
            covered=page(opaque, 9),
            wide=page(style, 1, '<div style="width: 500px">wider than the window</div>'),
        )
        self.assertEqual(found["shown"], [])
        self.assertEqual([text.split("<")[1].split(">")[0] for text in found["bare"]], ["code", "div"])
        self.assertIn("nothing shows it", found["bare"][0])
        self.assertEqual([text.split("<")[1].split(">")[0] for text in found["covered"]], ["div"])
        self.assertEqual(len(found["wide"]), 1)
        self.assertIn("500 pixels wide in a window of 360", found["wide"][0])


class Pictures(unittest.TestCase):
    def test_every_filter_of_png_is_undone(self) -> None:
        """Rows of one picture, each with another filter; what comes out is what went in."""
        rows = [bytes((x * 7 + y * 31 + (x % 3) * 50) % 256 for x in range(12)) for y in range(5)]

        def paeth(left: int, up: int, corner: int) -> int:
            guess = left + up - corner
            by = [abs(guess - left), abs(guess - up), abs(guess - corner)]
            return left if by[0] <= by[1] and by[0] <= by[2] else up if by[1] <= by[2] else corner

        data = b""
        for kind, row in enumerate(rows):
            before = rows[kind - 1] if kind else bytes(12)
            data += bytes([kind])
            for i, value in enumerate(row):
                left, up, corner = (row[i - 3] if i >= 3 else 0), before[i], (before[i - 3] if i >= 3 else 0)
                guess = [0, left, up, (left + up) // 2, paeth(left, up, corner)][kind]
                data += bytes([(value - guess) % 256])

        def chunk(name: bytes, content: bytes) -> bytes:
            return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

        header = struct.pack(">IIBBBBB", 4, 5, 8, 2, 0, 0, 0)
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
        grey = [[sum(row[i : i + 3]) // 3 for i in range(0, 12, 3)] for row in rows]
        self.assertEqual(narrow_pages.pixels(png), grey)
