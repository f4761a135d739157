"""Options drawn by chance, a few at a time, in combinations that no other test has: a run ends well, or is refused in one sentence.

    random_options.py BINARY [--runs K] [--seed N|dated] [--limit-s S] [--folder FOLDER]     seeds N, N + 1, ...

After a run that has ended well, `report` and `evaluate` must, too. random_runs.py says whether what was computed is right.
"""

import argparse
import random
import re
import shlex
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from random_cases import MODELS, draw_model, mesh_words, ranks_in, stage
from random_runs import Failed, environment, first_seed, launch

MESHES = [(1, 1, 1), (1, 1, 1), (2, 1, 1), (2, 1, 1), (3, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2)]
COMMON = {
    "class-weights": ["balanced"], "label-smoothing": [0.1], "freeze": ["bias$"], "staging": ["memory", "local=copies"],
    "augment": ["on", "off", "flip", "crop"], "augment-padding": [1], "rank-order": ["launched"], "adaptive-batch": [True],
    "eval-batch": [1, 5], "pipeline": ["eager-1f1b", "gpipe", "interleaved", "layerwise"], "virtual-stages": [2, 3], "balance": ["dynamic", "data"],
    "recompute": ["full", "auto"], "memory-limit": ["3GiB", "900MiB"], "exit-after": ["0.001s"], "optimizer": ["sgd", "adam", "adamw"],
    "momentum": [0, 0.5], "nesterov": [True], "weight-decay": [0.1], "decay": ["matrices"], "optimizer-state-bits": [8],
    "schedule": ["constant", "step", "cosine", "one_cycle", "linear", "wsd"], "warmup-steps": [0, 2], "min-learning-rate": [1e-5],
    "grad-clip": [0, 0.1], "precision": ["fp64", "bf16", "fp16"], "reproducible": [True], "validate-every": ["1steps", "2steps"],
    "best-by": ["accuracy", "loss"], "early-stopping": [1], "threads": [1, 2], "kernels": ["libtorch", "fused"],
    "all-reduce": ["mpi", "ring", "tree", "hierarchical"], "bucket-mb": [0.001, 1], "watchdog": [30, "inf"],
    "on-failure": ["abort", "recover"], "replicate": [1, 3], "verify-every": [1], "checkpoint-every": ["end", "1steps", "1epoch"],
    "keep": [1], "record-steps": [2, "off"], "trace": [True], "trace-steps": ["1-2"], "tensorboard": [True], "dry-run": [True],
    "micro-batches": [1, 4, 7], "global-batch": [16, 33], "limit-steps": [1, 2, 5], "epochs": [1, 2], "spares": [1],
    "loss": ["mse", "cross_entropy"], "emulate": ["apart.toml"], "seed": [7],
}
PRIVATE = {"dp-clip": [1], "dp-noise": [0.8, 0], "target-epsilon": [5], "dp-delta": [1e-3], "dp-sampler": ["once"], "dp-accountant": ["pld"],
           "noise-source": ["seeded"]}
OF_STRATEGIES = {
    "ddp": {"compression": ["fp16", "int8", "powersgd=2", "topk=0.1", "auto"], "compression-after": [1], **PRIVATE},
    "zero1": {"compression": ["bf16", "powersgd=1"], "shard-within": ["node"]}, "zero2": {"shard-within": ["node"], "compression": ["int8"]},
    "zero3": {"shard-within": ["node"], "compression": ["fp16"]},
    "local_sgd": {"sync-period": [1, 3, "adaptive"], "sync-optimizer": ["average", "reset"], "local-after": [2], "outer-optimizer": ["nesterov"],
                  "outer-momentum": [0.5], "fragments": [2], "overlap-steps": [1], "exchange-type": ["bfloat16", "int8"]},
    "easgd": {"sync-period": [1, 3], "easgd-mode": ["asynchronous"], "elasticity": [0.3], "servers": [0, 1]},
    "asgd": {"servers": [0, 1, 2], "staleness": [0, 2], "staleness-rate": ["divided"]},
    "fedavg": {"clients": [1, 3, 6], "clients-per-round": [1, 3], "rounds": [1, 2], "local-epochs": [2], "local-batch": [5, "all"],
               "partition": ["iid", "dirichlet=1", "classes=2", "quantity=1", "pooled"], "federated-rule": ["fednova", "scaffold", "local"],
               "proximal-mu": [0.1], "server-optimizer": ["momentum", "adam", "yogi"], "server-rate": [0.1], "drop-rate": [0.3],
               "round-deadline": [20], "secure-aggregation": ["on", "unmasked"], "secure-ring": [64], "secure-clip": [0.5], "secure-noise": [0.3],
               "secure-threshold": [2], "dp-unit": ["client", "record"], "dp-adaptive-clip": [0.5], **PRIVATE},
}


def draw_options(chance):
    """By name, with a value each; model, dataset, mesh and strategy among them; `model-option` has a list."""
    model = chance.choice(list(MODELS))
    dataset, of_model = draw_model(chance, model)
    strategy = chance.choice(["ddp", "ddp", *OF_STRATEGIES])
    chosen = {"model": model, "model-option": [f"{key}={value}" for key, value in of_model.items()], "dataset": dataset,
              "mesh": mesh_words(*chance.choice(MESHES)), "strategy": strategy}
    own = OF_STRATEGIES[strategy]
    names = chance.sample(list(own), min(len(own), chance.randint(0, 4))) + chance.sample(list(COMMON), chance.randint(1, 7))
    if "dp-noise" in names or "target-epsilon" in names or chance.random() < 0.1 and "dp-clip" in own:
        names += ["dp-clip", chance.choice(["dp-noise", "target-epsilon"])]
    chosen |= {name: chance.choice({**COMMON, **own}[name]) for name in names}
    chosen.setdefault("rounds" if strategy == "fedavg" else "limit-steps", 3)
    return chosen


NOT_LEFT_OUT = ("model", "model-option", "dataset", "rounds", "limit-steps")


def words_of(chosen):
    found = []
    for name, value in chosen.items():
        for one in value if isinstance(value, list) else [value]:
            found += [f"--{name}"] if one is True else [f"--{name}", str(one)]
    return found


class Trials:
    def __init__(self, binary, folder):
        self.binary, self.folder = str(Path(binary).resolve()), folder
        (folder / "copies").mkdir(exist_ok=True)
        (folder / "apart.toml").write_text("".join(f"[[node]]\nranks = [{rank}]\n" for rank in range(3)))

    def command(self, chosen):
        ranks = ranks_in(chosen.get("mesh", "data=1")) + int(chosen.get("spares", 0))
        mpirun = str(Path(__file__).parent.parent / "support/mpirun.sh")
        return ([mpirun, str(ranks)] if ranks > 1 else []) + [self.binary, *words_of(chosen), "--name", "drawn", "--quiet"]

    def outcome(self, chosen):
        """`done`, or the sentence of a refusal. Throws Failed."""
        stage(self.binary, environment(), self.folder, chosen["dataset"])
        shutil.rmtree(self.folder / "runs/drawn", ignore_errors=True)
        code, said = launch(self.command(chosen), self.folder)
        if code == 2:
            sentences = [line for line in said.splitlines() if line.startswith("dtrain: ") and " warning: " not in line]
            if len(sentences) != 1:
                raise Failed("is refused otherwise than in one sentence", said[-1500:])
            return sentences[0]
        if code not in ((0, 75) if "exit-after" in chosen else (0,)):
            raise Failed(f"ends with {code}", said[-1500:])
        if "dry-run" in chosen or code == 75:
            return "done"
        for command in (["report", "runs/drawn"], ["evaluate", "runs/drawn", "--split", "validation"]):
            code, said = launch([self.binary, *command], self.folder)
            if code != 0:
                raise Failed(f"{command[0]} ends with {code}", said[-1500:])
        return "done"

    def settle(self, chance, chosen):
        """Leaves out what refusals name until the run is done: so most draws come to something. Returns how many were refused."""
        refusals = 0
        while (said := self.outcome(chosen)) != "done":
            refusals += 1
            named = [name for name in chosen if name not in NOT_LEFT_OUT and re.search(rf"--{name}(?![a-z-])", said)]
            if not named:
                named = [name for name in chosen if name not in NOT_LEFT_OUT]
            if not named:
                raise Failed("is refused with nothing left to leave out", said)
            del chosen[chance.choice(named)]
            if "strategy" not in chosen and chosen.pop("rounds", None):
                chosen["limit-steps"] = 3
        return refusals


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", default="1", help="a number, or dated")
    parser.add_argument("--folder", type=Path, help="where datasets and runs stay; else they are removed")
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin no run after so long")
    arguments = parser.parse_args()
    begun, outcomes, bad = time.monotonic(), Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        trials = Trials(arguments.binary, folder.resolve())
        first = first_seed(arguments.seed, arguments.runs)
        for seed in range(first, first + arguments.runs):
            if time.monotonic() > begun + arguments.limit_s:
                break
            chance = random.Random(f"options {seed}")
            chosen = draw_options(chance)
            try:
                outcomes["refused first"] += trials.settle(chance, chosen)
                outcomes["done"] += 1
            except Failed as failure:
                outcomes[failure.kind] += 1
                bad.append(seed)
                print(f"seed {seed}: {failure}\n  {shlex.join(trials.command(chosen))}", flush=True)
    print(f"seeds {first} on, {outcomes['done'] + len(bad)} draws in {time.monotonic() - begun:.0f} s: {dict(outcomes)}")
    if bad:
        raise SystemExit(f"seeds {bad}: --seed N --runs 1 does one again")


if __name__ == "__main__":
    main()
