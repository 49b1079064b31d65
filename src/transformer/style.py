"""The colours of plots, reports, the inspector, the translation page and the documentation, named by their meaning."""

from typing import Any, Final

_BLUE, _ORANGE, _GREEN = ("#1f55cf", "#8fb4ff"), ("#b4500b", "#f5a25d"), ("#047857", "#4ec9a0")
COLOURS: Final = {
    "page": ("#fcfcfb", "#14171a"), "panel": ("#f3f4f5", "#1d2125"), "line": ("#dfe3e9", "#2b333e"),
    "text": ("#18212c", "#e7ebf0"), "soft": ("#596676", "#9daab9"), "accent": _BLUE, "mark": ("#7c3aed", "#c8a8ff"),
    "right": _GREEN, "warning": _ORANGE, "problem": ("#b42318", "#ff8a80"),
    "series-1": _BLUE, "series-2": _ORANGE, "series-3": _GREEN, "series-4": ("#cc3fa4", "#e66fc0"),
    "series-5": ("#334155", "#d5dbe2"),
    "negative": ("#14408f", "#a9ccff"), "negative-half": ("#6a9be8", "#3d78d8"), "zero": ("#f1f2f3", "#20252a"),
    "positive-half": ("#f0a15c", "#c96a1e"), "positive": ("#9c3f06", "#ffd0a3"), "masked": ("#c9cdd2", "#4a525a"),
    "attention": ("#c24100", "#ff8a3d"), "picture-light": ("#ffffff",) * 2, "picture-dark": ("#000000",) * 2,
    "picture-grid": ("#808080",) * 2, "picture-mark": ("#ffd23f",) * 2,
}  # fmt: skip
"""Each colour in the light and in the dark theme; those with `picture` are drawn on top of photographs."""
LIGHT: Final = {name: light for name, (light, _) in COLOURS.items()}
DARK: Final = {name: dark for name, (_, dark) in COLOURS.items()}
SERIES: Final = [colour for name, colour in LIGHT.items() if name.startswith("series")]
"""Colours of the curves of a plot. With red-green blindness too, any two of them differ."""
SIGNED: Final = [LIGHT[name] for name in ("negative", "negative-half", "zero", "positive-half", "positive")]
"""Colours of a heat map from the most negative number to the most positive one."""
MATPLOTLIB: Final[dict[Any, str]] = {
    "axes.prop_cycle": f"cycler('color', {SERIES})", "svg.fonttype": "none", "svg.hashsalt": "transformer",
}  # fmt: skip
"""Style sheet of matplotlib, for `matplotlib.style.use`."""


def css_variables() -> str:
    """Returns a style sheet with a variable for each colour, in the theme of `data-theme` or else of the system."""
    colours = "".join(f"  --{name}: light-dark({light}, {dark});\n" for name, (light, dark) in COLOURS.items())
    themes = "".join(f':root[data-theme="{theme}"] {{ color-scheme: {theme}; }}\n' for theme in ("light", "dark"))
    return f":root {{\n  color-scheme: light dark;\n{colours}}}\n{themes}"
