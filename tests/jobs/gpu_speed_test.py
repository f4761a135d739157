"""perf/gpu/speed.py on the CPU with tiny networks: its figures fit together, what is measured is not measured again, a case that
fails stops no other one, and the time that there is ends a call between two. And what perf/gpu_check.sh makes of that.

    gpu_speed_test.py BINARY
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SPEED = TOP / "perf" / "gpu" / "speed.py"


def call(code, *options, out, program):
    """What it prints, with this exit code."""
    command = [sys.executable, str(SPEED), "--device", "cpu", "--quick", "--out", str(out), "--dtrain", str(program), *map(str, options)]
    done = subprocess.run(command, text=True, timeout=200, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code, (code, done.returncode, done.stdout)
    return done.stdout


def kept(out):
    return json.loads((out / "speed.json").read_text())["cases"]


def says_what_it_cannot_do(binary, out):
    assert "there is no case 'lunch'" in call(2, "--cases", "lunch", out=out, program=binary)
    assert "is not there" in call(2, out=out, program=out / "nowhere")
    said = call(3, "--cases", "study-mlp", "--limit-s", 0, out=out, program=binary)
    assert "run it again to go on" in said and "Not measured yet" in said, said
    assert not (out / "speed.json").exists()


def goes_on_after_a_failure(out):
    said = call(1, "--cases", "links", "study-mlp", out=out, program="/bin/false")
    cases = kept(out)
    assert "ended with 1" in cases["links"]["errors"]["case"], cases["links"]
    study = cases["study-mlp"]
    assert "device" in study["errors"] and not study["figures"] and study["copies_s"]["pinned"], study
    assert "What failed" in said and "ended with 1" in (out / "speed.md").read_text(), said


def fits_together(case):
    assert case["figures"] and not case["errors"], case
    for side, figures in case["figures"].items():
        assert all(seconds > 0 for seconds in figures["step_s"]), (side, figures)
        expected = case["batch"] / statistics.median(figures["step_s"])
        assert abs(figures["per_s"] / expected - 1) < 1e-9, (side, figures, expected)


def measures_and_does_not_measure_again(binary, out):
    """study-mlp failed before: it is tried again."""
    chosen = ["--cases", "study-mlp", "resnet18-8-fp32"]
    call(0, *chosen, out=out, program=binary)
    first = kept(out)
    for name in ("study-mlp", "resnet18-8-fp32"):
        fits_together(first[name])
    assert set(first["resnet18-8-fp32"]["figures"]) == {"dtrain, fused", "dtrain, own", "eager", "eager, resident"}, first["resnet18-8-fp32"]
    study = first["study-mlp"]
    assert "device" in study["figures"] and study["bytes"]["targets"] == 16 * 8 and study["steps_per_epoch"] == 54000 / 16, study
    said = call(0, *chosen, out=out, program=binary)
    assert kept(out) == first, "what was there was measured again"
    assert "| resnet18 | 8 | fp32 | " in said and "| mlp | 16 | " in (out / "speed.md").read_text(), said
    call(0, "--cases", "resnet18-8-fp32", "--sides", "dtrain, o*", out=out, program=binary)
    assert set(kept(out)["resnet18-8-fp32"]["figures"]) == {"dtrain, own"}, "only the sides that were asked for"
    assert "there is no side 'fussed'; use some of dtrain, fused" in call(2, "--sides", "fussed", out=out, program=binary)


def write_program(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def script_passes_the_code_on(folder):
    """perf/gpu_check.sh with stand-ins for the GPU and all programs: kernels are measured once, exit code 3 is kept."""
    tree, out = folder / "checkout", folder / "gpu_check"
    built = tree / "build" / "release"
    for file in (built / "tests/kernels/kernels_device_test", built / "bin/dtrain", folder / "bin/nvidia-smi"):
        write_program(file, "#!/bin/sh\necho 'NVIDIA Test, 1'\n")
    write_program(built / "perf/kernels/dtrain_perf_device_kernels", f"#!/bin/sh\necho run >>{folder}/launches\necho 99 GB/s\n")
    write_program(tree / "perf/gpu/speed.py", "import os, sys\nprint('tables')\nsys.exit(int(os.environ['CODE']))\n")
    shutil.copy(TOP / "perf" / "gpu_check.sh", tree / "perf")
    (tree / "commit").write_text("abc\n")
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "DTRAIN_PYTHON": sys.executable}
    for code, left in ((3, "speed.txt.part"), (0, "speed.txt")):
        done = subprocess.run([str(tree / "perf" / "gpu_check.sh"), "speed", "--out", str(out)], env={**environment, "CODE": str(code)},
                              text=True, timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == code, (code, done.returncode, done.stdout)
        assert sorted(file.name for file in out.iterdir()) == ["kernels.txt", left], list(out.iterdir())
        assert "99 GB/s" in done.stdout and "tables" in done.stdout, done.stdout
    assert (folder / "launches").read_text() == "run\n"


def main():
    binary = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        says_what_it_cannot_do(binary, folder / "out")
        goes_on_after_a_failure(folder / "out")
        measures_and_does_not_measure_again(binary, folder / "out")
        script_passes_the_code_on(folder)
    print("all as wanted")


if __name__ == "__main__":
    main()
