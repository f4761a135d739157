"""`dtrain privacy`: what it prints, both ways, and what it refuses.

    command.py BINARY
"""

import re
import subprocess
import sys

BINARY = sys.argv[1]


def run(*words):
    return subprocess.run([BINARY, "privacy", *map(str, words)], text=True, capture_output=True)


def figure(text, pattern):
    return float(re.search(pattern, text).group(1))


def main():
    said = run("--epsilon", 3, "--delta", 1e-5, "--records", 50000, "--batch", 500, "--steps", 1000, "--accountant", "rdp")
    assert said.returncode == 0, said.stderr
    noise = figure(said.stdout, r"noise +([\d.]+)")
    assert abs(noise - 0.8646) < 1e-3, said.stdout
    assert "one record more or less" in said.stdout and "1,000 steps" in said.stdout.replace("1000 steps", "1,000 steps"), said.stdout
    back = run("--noise", noise, "--delta", 1e-5, "--sample-rate", 0.01, "--steps", 1000)
    assert abs(figure(back.stdout, r"epsilon +([\d.]+) .*rdp") - 3) < 2e-3, back.stdout
    for rate, epochs, steps in ((0.9, 10, 20), (0.3, 30, 120), (0.08, 30, 390)):  # an epoch's last step counts as a whole one
        for sampler in ("poisson", "once"):
            counted = run("--noise", 2, "--sample-rate", rate, "--epochs", epochs, "--sampler", sampler)
            assert f", {steps} steps" in counted.stdout.replace(",000", "000"), counted.stdout
    once = run("--noise", 1, "--records", 1000, "--batch", 10, "--epochs", 2, "--sampler", "once")
    assert "200 steps" in once.stdout and "at least" not in once.stdout, once.stdout
    assert figure(once.stdout, r"epsilon +([\d.]+) .*rdp") > figure(run(
        "--noise", 1, "--records", 1000, "--batch", 10, "--epochs", 2).stdout, r"epsilon +([\d.]+) .*rdp"), "accounted as Poisson"

    enough = ["--sample-rate", 0.01, "--steps", 10]
    for words, expected in [
        ([*enough], "--epsilon and --noise"),
        ([*enough, "--epsilon", 1, "--noise", 1], "--epsilon and --noise"),
        ([*enough, "--noise", 1, "--delta", 0], "dtrain: --delta: 0"),
        ([*enough, "--noise", 1, "--delta", 1.5], "dtrain: --delta: 1.5"),
        (["--noise", 1, "--steps", 10], "--sample-rate Q"),
        (["--noise", 1, "--sample-rate", 2, "--steps", 10], "dtrain: --sample-rate: 2 is no share"),
        (["--noise", 1, "--records", 10, "--batch", 20, "--steps", 10], "--batch"),
        (["--noise", 1, "--sample-rate", 0.1], "--steps or --epochs"),
        ([*enough, "--noise", 1, "--sampler", "shuffled"], "dtrain: --sampler: 'shuffled' is no way to draw records; use poisson, or once"),
        ([*enough, "--noise", 1, "--accountant", "moments"], "dtrain: --accountant: 'moments' is no accountant; use rdp or pld"),
        ([*enough, "--epsilon", 1e-7, "--accountant", "rdp"], "cannot be reached"),
        ([*enough, "--epsilon", "nan"], "dtrain: --epsilon: nan is no epsilon"),
        ([*enough, "--epsilon", 0], "dtrain: --epsilon: 0 is no epsilon"),
        ([*enough, "--noise", -1], "dtrain: --noise: -1 is no multiple"),
        ([*enough, "--noise", "nan"], "dtrain: --noise: nan is no multiple"),
    ]:
        done = run(*words)
        assert done.returncode == 2 and expected in done.stderr and done.stderr.count("dtrain:") == 1, (words, done)
    print("as it should be")


if __name__ == "__main__":
    main()
