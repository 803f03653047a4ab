"""Draws the screen of a terminal as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from wcwidth import wcwidth

_FONTS = Path(matplotlib.get_data_path()) / "fonts/ttf"
_FONT_PIXELS, _LINE_PIXELS, _MARGIN_PIXELS = 26, 34, 24
_BACKGROUND, _FOREGROUND, _CURSOR = "#14161b", "#e0e2ea", "#9b9ea4"  # Neovim's own colours
_NAMES: Mapping[str, str] = {
    "black": "#07080d",
    "red": "#ffc0b9",
    "green": "#b3f6c0",
    "brown": "#fce094",
    "blue": "#a6dbff",
    "magenta": "#ffcaff",
    "cyan": "#8cf8f7",
    "white": "#eef1f8",
}


def draw_screen(screen: Any, path: Path) -> None:
    """Writes a PNG. `screen` is a `pyte.Screen`, which has no types."""
    regular = ImageFont.truetype(_FONTS / "DejaVuSansMono.ttf", _FONT_PIXELS)
    bold = ImageFont.truetype(_FONTS / "DejaVuSansMono-Bold.ttf", _FONT_PIXELS)
    cell = regular.getlength("m")
    size = (int(screen.columns * cell) + 2 * _MARGIN_PIXELS, screen.lines * _LINE_PIXELS + 2 * _MARGIN_PIXELS)
    corner = _find_colors(screen.buffer[0][screen.columns - 1])[1]
    image = Image.new("RGB", size, corner)
    draw = ImageDraw.Draw(image)
    for row in range(screen.lines):
        for column in range(screen.columns):
            char = screen.buffer[row][column]
            color, ground = _find_colors(char)
            if (row, column) == (screen.cursor.y, screen.cursor.x) and not screen.cursor.hidden:
                color, ground = ground, _CURSOR
            left, top = _MARGIN_PIXELS + column * cell, _MARGIN_PIXELS + row * _LINE_PIXELS
            width = cell * max(wcwidth(char.data or " "), 1)
            if ground != corner:
                draw.rectangle((left, top, left + width - 1, top + _LINE_PIXELS - 1), ground)
            if char.data.strip():
                draw.text((left, top + 2), char.data, color, bold if char.bold else regular)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(64).save(path, optimize=True)


def _find_colors(char: Any) -> tuple[str, str]:
    color, ground = _find_color(char.fg, _FOREGROUND), _find_color(char.bg, _BACKGROUND)
    return (ground, color) if char.reverse else (color, ground)


def _find_color(name: str, default: str) -> str:
    """pyte has names for the first colours, and six hexadecimal digits for the others."""
    if name == "default":
        return default
    return _NAMES.get(name.removeprefix("bright"), f"#{name}")
