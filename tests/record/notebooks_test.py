"""Each notebook of perf/notebooks runs from start to end on a small run and draws its figures.
Usage: notebooks_test.py RECORD_SAMPLES NOTEBOOK_FOLDER"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import nbconvert  # noqa: F401
    import ipykernel  # noqa: F401
    import matplotlib  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; jobs/setup.sh installs the notebook tools")
    sys.exit(77)

FIGURES = {"training": {"curves", "steps", "ranks", "phases"}, "scaling": {"scaling", "phase_shares", "loss_by_ranks"}}


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        subprocess.run([sys.argv[1], "results", str(scratch / "runs" / "a")], check=True, timeout=60)
        subprocess.run([sys.argv[1], "results", str(scratch / "runs" / "b")], check=True, timeout=60)
        environment = dict(os.environ, RUN=str(scratch / "runs" / "a"), RUNS=str(scratch / "runs" / "*"),
                           MPLBACKEND="agg", IPYTHONDIR=folder, JUPYTER_RUNTIME_DIR=folder)
        for name, figures in FIGURES.items():
            environment["FIGURES"] = str(scratch / name)
            command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", folder,
                       str(pathlib.Path(sys.argv[2]) / f"{name}.ipynb")]
            done = subprocess.run(command, env=environment, timeout=140, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            drawn = {path.stem for path in (scratch / name).glob("*.png") if path.stat().st_size > 5000}
            assert drawn == figures, f"{name}: {drawn}"


main()
