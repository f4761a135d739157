"""Each notebook runs to its end on small runs, draws what it promises and says what the runs hold."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py

from dtrain_run import MPIRUN, run


def execute(top, name, folder, **environment):
    """The notebook's printed text; its figures lie in folder/NAME."""
    out = Path(folder) / f"{name}.ipynb"
    subprocess.run([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.timeout=120",
                    str(top / "perf" / "notebooks" / f"{name}.ipynb"), "--output-dir", str(folder), "--output", out.name],
                   env={**os.environ, **environment, "FIGURES": str(Path(folder) / name), "IPYTHONDIR": str(folder),
                        "MPLCONFIGDIR": str(folder)},
                   check=True, timeout=200, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    cells = json.loads(out.read_text())["cells"]
    text = "".join("".join(output.get("text", [])) for cell in cells for output in cell.get("outputs", []))
    figures = {path.stem for path in (Path(folder) / name).glob("*.png") if path.stat().st_size > 5000}
    return text, figures


def goes_on_where_it_was_interrupted(study, run_folder, folder):
    (run_folder / "state").write_text("interrupted\n")
    again = subprocess.run(study, cwd=folder, check=True, timeout=120, text=True, stdout=subprocess.PIPE).stdout
    assert again.count(" took ") == 1 and again.count(" is complete") == 3, again
    with h5py.File(run_folder / "results.h5") as results:
        kinds = results["ranks/00000/events"]["kind"].tolist()
    assert b"resumed" in kinds, kinds


def main():
    binary, top = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2):
            run(binary, ranks, "--model", "mlp", "--epochs", 2, "--name", f"np{ranks}", "--micro-batches", 2, cwd=folder)
        text, figures = execute(top, "training", folder, RUN=f"{folder}/runs/np2")
        assert "mlp on synthetic" in text and "2 ranks" in text and "test loss" in text, text
        assert figures >= {"loss", "metrics", "rate_gradient", "waiting", "memory", "phases"}, figures

        text, figures = execute(top, "scaling", folder, RUNS=f"{folder}/runs/np*")
        assert text.count("samples/s") == 2 and "efficiency 1.00" in text, text
        assert figures == {"scaling", "phase_shares", "losses"}, figures

        text, figures = execute(top, "performance", folder)  # what lies in perf/results
        assert "tutorial, 2 ranks" in text and " ms predicted" in text and "1024 ranks" in text, text
        assert figures == {"peers", "growth", "checked", "ahead"}, figures

        federated = ["--model", "mlp", "--model-option", "hidden=8", "--strategy", "fedavg", "--clients", 4, "--partition", "dirichlet=0.5", "--rounds", 2]
        for rule in ("fedavg", "local"):
            run(binary, 1, *federated, "--federated-rule", rule, "--name", f"federated-{rule}", cwd=folder)
        run(binary, 1, "--model", "mlp", "--model-option", "hidden=8", "--epochs", 2, "--dp-clip", 1, "--dp-noise", 1, "--name", "federated-private", cwd=folder)
        text, figures = execute(top, "federated", folder, RUNS=f"{folder}/runs/federated-fedavg {folder}/runs/federated-local")
        assert "4 clients, 2 rounds, completed" in text and text.count("deviation") == 2 and "without differential privacy" in text, text
        assert figures == {"owners"} and (Path(folder) / "federated/federated-local/rounds.png").exists(), figures
        text, _ = execute(top, "federated", folder, RUNS=f"{folder}/runs/federated-private")
        assert "epsilon" in text and "has no scores" in text, text

        study = [sys.executable, str(top / "perf/study/runs.py"), "--quick", "--models", "mlp", "--dtrain", binary,
                 "--output", f"{folder}/study", "--mpirun", f"{top}/tests/notebooks/launch.sh"]
        made = [subprocess.run(study, cwd=folder, check=True, timeout=120, text=True, stdout=subprocess.PIPE).stdout
                for _ in range(2)]
        assert made[0].count(" took ") == 4 and made[1].count(" is complete") == 4, made
        goes_on_where_it_was_interrupted(study, Path(folder) / "study" / "mlp-one-rank-seed1", folder)
        text, figures = execute(top, "study", folder, STUDY=f"{folder}/study")
        assert "two ranks, equal batch per rank" in text and "no change" in text, text
        assert figures >= {"study-mlp-curves", "study-mlp-ranks", "study-times"}, figures

        wrong = subprocess.run([*study[:3], "--models", "transformer"], cwd=folder, text=True, capture_output=True, timeout=60)
        assert wrong.returncode != 0 and "transformer" in wrong.stderr and "vgg11" in wrong.stderr, wrong


assert MPIRUN.exists()
main()
