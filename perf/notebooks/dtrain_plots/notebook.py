"""For notebooks: finds runs from a notebook's own folder, shows figures and keeps them as PNG on request."""

import glob
import io
import shlex
from pathlib import Path

from IPython.display import Image, Markdown, display

from .gallery import drawn


def folders(patterns):
    """Run folders by patterns, separated by spaces and quoted as for a shell, from here or from a folder above."""
    found = []
    for pattern in shlex.split(patterns):
        for base in [Path.cwd(), *Path.cwd().parents]:
            matches = sorted(name for name in glob.glob(str(base / pattern)) if (Path(name) / "results.h5").is_file())
            if matches:
                found += matches
                break
    return found


def show(pictures, subject, keep=None):
    """Draws the pictures below the cell, each with its caption; `keep`: a folder for PNG files, or None."""
    for picture, figure, sentence in drawn(pictures, subject):
        if figure is None:
            display(Markdown(f"**{picture.title}**: {sentence}"))
            continue
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=110, facecolor="white")
        display(Markdown(f"**{picture.title}**. {picture.caption}"), Image(png.getvalue()))
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
            (Path(keep) / f"{picture.name}.png").write_bytes(png.getvalue())
