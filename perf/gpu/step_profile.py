"""Where a step of training goes on a GPU, kernel by kernel, beside the step's time by the clock; part profile of perf/gpu_check.sh.

    python perf/gpu/step_profile.py [--cases gpt2-124M resnet18-128] [--limit-s 200]

Each case is run twice with perf/gpu/device_times.cpp in it, which notes every kernel, as `--kernels own` and as `--kernels fused`.
Exit codes: 0 all profiled, 1 a case failed, 3 time is up.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile

import programs
import runs

sys.path.insert(0, str(runs.PEERS))
import cases  # noqa: E402
import dtrain_steps  # noqa: E402
import kernel_times  # noqa: E402
from random_data import RandomData  # noqa: E402

BUILD = runs.TOP / "build" / "release"
GRACE_S, CASE_S = 45, 120  # perf/gpu_session.sh leaves more than this grace after --limit-s
# Steps of the shorter run, and those that the other has more: enough of these that what differs by chance does not matter.
LENGTHS = {"gpt2-124M": (8, 12), "resnet18-128": (12, 60), "resnet18-2048": (10, 20), "vgg11-512": (12, 40)}


def parse():
    parser = argparse.ArgumentParser(prog="perf/gpu/step_profile.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=[*LENGTHS], default=["gpt2-124M", "resnet18-128"])
    parser.add_argument("--kernels", nargs="+", choices=["own", "fused"], default=["own", "fused"])
    parser.add_argument("--limit-s", type=float, default=200, help="seconds after which none begins [200]")
    parser.add_argument("--dtrain", type=pathlib.Path, default=BUILD / "bin" / "dtrain")
    parser.add_argument("--device-times", type=pathlib.Path, default=BUILD / "perf" / "gpu" / "device_times.so")
    return parser.parse_args()


def options_of(bench, name):
    if name in cases.GPT:
        return cases.of_text(bench, name, "bf16")[0]
    model, batch = name.split("-")
    return cases.of_images(bench, model, int(batch), "bf16")[0]


def profile(bench, name, kernels, library):
    """The table of a case."""
    options = [*options_of(bench, name), "--device", "cuda", "--kernels", kernels]
    short, more = LENGTHS[name]
    found = []
    for steps in (short, short + more):
        file = bench.scratch / f"times-{steps}.csv"
        os.environ.update(CUDA_INJECTION64_PATH=str(library), DTRAIN_DEVICE_TIMES=str(file))
        plan = dtrain_steps.Plan(short, 1, steps - short)
        folder = dtrain_steps.run(bench.program, bench.scratch, plan, options, bench.limits)
        found.append(kernel_times.times_of(file))
    step_s = dtrain_steps.times_of(folder, plan)["time_s"]
    return f"{step_s * 1e3:.3f} ms a step by the clock\n{kernel_times.table(kernel_times.of_a_step(*found, more))}"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    arguments = parse()
    failed = False
    with tempfile.TemporaryDirectory(prefix="dtrain-gpu-profile-") as scratch:
        scratch = pathlib.Path(scratch)
        bench = cases.Bench(program=arguments.dtrain.absolute(), device="cuda", gpus=1, quick=False, compiled=False, sides=["*"], rounds=1, scratch=scratch,
                            data=RandomData(scratch, False), limits=programs.Limits(arguments.limit_s, GRACE_S, CASE_S))
        for name in arguments.cases:
            for kernels in arguments.kernels:
                if bench.limits.spent():
                    print(f"time is up before {name} --kernels {kernels}")
                    return 3
                bench.limits.begin_case()
                print(f"\n== {name}, bf16, --kernels {kernels}", flush=True)
                try:
                    print(profile(bench, name, kernels, arguments.device_times.absolute()), flush=True)
                except programs.OutOfTime:
                    return 3
                except (programs.Failed, OSError) as error:
                    print(error, flush=True)
                    failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
