"""What `dtrain report RUN... --html FILE --plots FOLDER` starts, once it has found the runs to be readable."""

import argparse
import io
import os
import sys
import tempfile
from pathlib import Path

USAGE, FAILURE, DATA = 2, 1, 3  # as dtrain's exit codes
INSTALL = "install them with jobs/setup.sh --with-tools, or name a Python that has them in DTRAIN_PYTHON"


def fail(code, sentence):
    print(f"dtrain: {sentence}", file=sys.stderr)
    sys.exit(code)


def replace(path, content):
    """Writes aside and renames: a reader sees the whole file or the one before. No link at `path` is followed."""
    with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as aside:
        try:
            aside.write(content)
            aside.close()
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(aside.name, 0o666 & ~mask)
            os.replace(aside.name, path)
        except OSError:
            os.unlink(aside.name)
            raise


def save_figures(figures, folder, of=""):
    """PNG files; `of`, the name of a run, stands in each title."""
    folder.mkdir(exist_ok=True)
    count = 0
    for picture, figure, _ in figures:
        if figure is not None:
            figure.suptitle(f"{picture.title}: {of}" if of else picture.title, x=0.01, ha="left", parse_math=False)
            png = io.BytesIO()
            figure.savefig(png, format="png", dpi=130, facecolor="white")
            replace(folder / f"{picture.name}.png", png.getvalue())
            count += 1
    return count


def plots(runs, folder, gallery):
    if len(runs) == 1:
        return save_figures(gallery.drawn(gallery.OF_RUN, runs[0]), folder, runs[0].name)
    count = save_figures(gallery.drawn(gallery.OF_RUNS, runs), folder)
    for number, run in enumerate(runs):
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in run.folder.name)
        count += save_figures(gallery.drawn(gallery.OF_RUN, run), folder / f"{number}-{name}", run.name)
    return count


def can_keep_fonts():
    """Whether matplotlib's folder can be written: MPLCONFIGDIR, else one of the user's, if this machine knows the user."""
    try:
        return os.access(os.environ.get("MPLCONFIGDIR") or Path.home(), os.W_OK)
    except RuntimeError:
        return False


def main(arguments):
    parser = argparse.ArgumentParser(prog="dtrain report", description=__doc__)
    parser.add_argument("runs", nargs="+", help="run folders")
    parser.add_argument("--status", action="append", default=[], help="of each run, as far as dtrain knows it")
    parser.add_argument("--html", type=Path)
    parser.add_argument("--plots", type=Path)
    given = parser.parse_args(arguments)
    # Matplotlib keeps a list of fonts, also where the user has no folder that can be written.
    with tempfile.TemporaryDirectory(prefix="dtrain-plots-") as scratch:
        if not can_keep_fonts():
            os.environ["MPLCONFIGDIR"] = scratch
        draw(given)


def draw(given):
    try:
        import matplotlib
        matplotlib.rcdefaults()  # it has read a matplotlibrc of the current folder, where others may write
        from . import gallery, page, recording
        from .comparison import named_apart
    except ImportError as error:
        fail(USAGE, f"{sys.executable}: pictures need the Python packages h5py, matplotlib and numpy ({error}); {INSTALL}")
    try:
        statuses = given.status or [None] * len(given.runs)
        runs = named_apart([recording.read(folder, status) for folder, status in zip(given.runs, statuses, strict=True)])
    except (OSError, LookupError, TypeError, ValueError) as error:
        fail(DATA, f"{' '.join(given.runs)}: cannot be read ({error}); take another copy of the run")
    target = given.html
    try:
        if given.html:
            content = page.html(runs).encode("utf-8")
            replace(given.html, content)
            print(f"wrote {given.html}")
        if given.plots:
            target = given.plots
            print(f"wrote {plots(runs, given.plots, gallery)} pictures to {given.plots}")
    except OSError as error:
        fail(USAGE, f"{target}: cannot be written ({error.strerror or error}); name a place that can be written")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        fail(DATA, f"{' '.join(given.runs)}: holds what no run of dtrain has ({type(error).__name__}: {error}); "
             "take another copy of the run")
