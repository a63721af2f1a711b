#!/usr/bin/env python3
"""Whether pages can be read on a telephone: none is wider than its window, and what goes on beyond an edge (a wide table, a long line of
code, a figure) has a shadow at that edge.

    python3 tools/narrow_pages.py target/docs/site

Chromium says where something goes on, and draws it; the drawn pixels say whether there is a shadow. Without Chromium nothing is looked
at, and that is said.
"""

from __future__ import annotations

import html
import json
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

#: A narrow telephone's window, in pixels, and how much of each place is drawn.
WIDTH, HEIGHT = 360, 240

#: Pictures are taken of so many places of each kind (tables, code, figures), on as many pages: of those that go on for longest.
DRAWN = 8
COLUMNS = 4

#: A row is shaded where its last pixels are darker (or, on a dark page, lighter) than what is behind by so much.
EDGE, DARKER = 3, 25

#: So much of a place's rows is shaded at least: words and their own backgrounds may lie over the rest.
SHADED = 0.3

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# In the outer page: frames that are looked into once all are there.
LOOK = """
const told = [];
const places = (d) => [...d.querySelectorAll('*')].filter((e) => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1
  && ['auto', 'scroll'].includes(d.defaultView.getComputedStyle(e).overflowX) && !e.closest('nav, .md-header, .md-sidebar, .md-search'));
onload = () => setTimeout(() => {
  for (const frame of document.querySelectorAll('iframe')) {
    const d = frame.contentDocument, at = frame.dataset.at;
    if (at === undefined) {
      const root = d.documentElement;
      told.push({page: frame.dataset.page, window: root.clientWidth, width: root.scrollWidth,
        places: places(d).map((e, i) => ({at: i, kind: e.localName, beyond: e.scrollWidth - e.clientWidth}))});
    } else {
      const e = places(d)[at];
      d.querySelectorAll('.md-header, .md-tabs').forEach((bar) => bar.remove());
      d.documentElement.style.scrollBehavior = 'auto';
      d.defaultView.scrollTo(0, e.getBoundingClientRect().top + d.defaultView.scrollY);
      const box = e.getBoundingClientRect();
      told.push({page: frame.dataset.page, at: +at, right: Math.min(box.right, d.documentElement.clientWidth), top: Math.max(box.top, 0),
        bottom: Math.min(box.bottom, frame.clientHeight)});
    }
  }
  document.title = JSON.stringify(told);
}, 1500);
"""


def browser() -> str | None:
    for name in BROWSERS:
        try:
            if subprocess.run([name, "--version"], capture_output=True).returncode == 0:
                return name
        except FileNotFoundError:
            continue
    return None


def look(program: str, frames: list[str], size: tuple[int, int], picture: Path | None) -> list[dict]:
    """What the frames tell; and a picture of them."""
    with tempfile.TemporaryDirectory() as folder:
        outer = Path(folder) / "outer.html"
        outer.write_text(
            "<!DOCTYPE html><title></title><style>body{margin:0}iframe{border:0;position:absolute}</style>"
            f"<script>{LOOK}</script><body>{''.join(frames)}</body>"
        )
        common = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
            "--disable-web-security", "--force-device-scale-factor=1", "--virtual-time-budget=10000", f"--user-data-dir={folder}/profile",
            f"--window-size={size[0]},{size[1] + 200}",
        ]  # fmt: skip
        what = [f"--screenshot={picture}"] if picture else []
        done = subprocess.run([*common, *what, "--dump-dom", outer.as_uri()], capture_output=True, text=True)
        title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.S)
        if done.returncode != 0 or title is None or not title[1]:
            raise RuntimeError(f"{program} tells nothing:\n{done.stderr[-2000:]}")
        return json.loads(html.unescape(title[1]))


def pixels(png: bytes) -> list[list[int]]:
    """The lightness of each pixel of a picture of 8 bits a colour, row by row (PNG, ISO/IEC 15948)."""
    at, packed, header = 8, b"", b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data = png[at + 8 : at + 8 + length]
        header, packed = (data if kind == b"IHDR" else header), (packed + data if kind == b"IDAT" else packed)
        at += 12 + length
    width, height, depth, colours, *_, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colours not in (2, 6) or interlaced:
        raise ValueError(f"a picture of depth {depth}, kind {colours}")
    step = 3 if colours == 2 else 4
    raw, size = zlib.decompress(packed), width * step
    before, rows = bytearray(size), []
    for y in range(height):
        kind, row = raw[y * (size + 1)], bytearray(raw[y * (size + 1) + 1 : (y + 1) * (size + 1)])
        for i in range(size) if kind else ():
            left, up, corner = row[i - step] if i >= step else 0, before[i], before[i - step] if i >= step else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + up) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            else:
                near = min((left, up, corner), key=lambda v: (abs(left + up - corner - v), (left, up, corner).index(v)))
                row[i] = (row[i] + near) & 255
        rows.append([(row[i] + row[i + 1] + row[i + 2]) // 3 for i in range(0, size, step)])
        before = row
    return rows


def shaded(rows: list[list[int]], x: int, y: int, place: dict) -> float:
    """Which part of a place's rows is shaded at its right edge; the frame's corner is at (x, y)."""
    right = x + int(place["right"])
    mine = rows[y + int(place["top"]) : y + int(place["bottom"])]
    tones = sorted(tone for row in mine for tone in row[x:right])
    behind = max(set(tones), key=tones.count)  # most of a page is its background
    dark = sum(all(abs(tone - behind) >= DARKER for tone in row[right - EDGE : right]) for row in mine)
    return dark / max(len(mine), 1)


def check(program: str, pages: list[Path]) -> list[str]:
    """What is wrong with the pages."""
    frame = '<iframe data-page="{0}" src="{1}" width="{2}" height="{3}" style="left:{4}px;top:{5}px" {6}></iframe>'
    found, wide = [], []
    by_name = {str(page): page for page in pages}
    for some in (pages[i : i + 12] for i in range(0, len(pages), 12)):
        frames = [frame.format(html.escape(str(p)), p.resolve().as_uri(), WIDTH, 800, 0, 0, "") for p in some]
        for told in look(program, frames, (WIDTH, 800), None):
            if told["width"] > told["window"]:
                found.append(f"{told['page']}: {told['width']} pixels wide in a window of {told['window']}")
            for kind in sorted({place["kind"] for place in told["places"]}):
                of_kind = [place for place in told["places"] if place["kind"] == kind]
                wide.append((told["page"], max(of_kind, key=lambda place: place["beyond"])))
    wide.sort(key=lambda place: (-place[1]["beyond"], place[0]))
    kinds = sorted({place["kind"] for _, place in wide})
    wide = [one for kind in kinds for one in [place for place in wide if place[1]["kind"] == kind][:DRAWN]]
    if not wide:
        return found
    corners = [(i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT) for i in range(len(wide))]
    frames = [
        frame.format(html.escape(page), by_name[page].resolve().as_uri(), WIDTH, HEIGHT, x, y, f'data-at="{place["at"]}"')
        for (page, place), (x, y) in zip(wide, corners, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "drawn.png"
        told = look(program, frames, (COLUMNS * WIDTH, corners[-1][1] + HEIGHT), picture)
        rows = pixels(picture.read_bytes())
    for place, (x, y), (_, about) in zip(told, corners, wide, strict=True):
        part = shaded(rows, x, y, place)
        if part < SHADED:
            found.append(
                f"{place['page']}: <{about['kind']}> no. {place['at']} goes on for {about['beyond']} pixels beyond its edge, and nothing "
                f"shows it (a shadow in {100 * part:.0f} % of its rows)"
            )
    print(f"{len(pages)} pages at {WIDTH} pixels, {len(wide)} wide places of them drawn")
    return found


def main() -> int:
    site = Path(sys.argv[1])
    program = browser()
    if program is None:
        print("skip: no Chromium: the pages are not looked at on a narrow screen")
        return 0
    pages = sorted(p for p in site.rglob("*.html") if p.relative_to(site).parts[0] not in ("rust", "404.html"))
    found = check(program, pages)
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
