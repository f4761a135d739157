"""Values of options and configuration files that make no sense, and names that are paths."""

import trained
from case import TRAIN, Family, nothing

OPTIONS = Family("options")
TOML = Family("TOML")
NAMES = Family("names")
SMALL = ("--model", "mlp", "--limit-steps", "1", "--global-batch", "8", "--threads", "1", "--name", "out", "--quiet", "--dataset", "table",
             "--data-root", "{given}")

# ---- values ---------------------------------------------------------------------------------------------------------
VALUES = {
    "--threads": ("-1", "100000", "2147483647", "2147483648", "many", "", "1e3", "0x10"),
    "--global-batch": ("0", "-1", "2147483648", "1.5", "\x1b[2J", "nan"),
    "--micro-batches": ("-1", "9", "2147483647"),
    "--watchdog": ("0", "-5", "nan", "1e999", "-inf", "soon"),
    "--epochs": ("0", "-1", "99999999999999999999"),
    "--limit-steps": ("-1", "1e6", "2147483648"),
    "--learning-rate": ("0", "-1", "nan", "inf", "1e999", "fast"),
    "--bucket-mb": ("-1", "nan", "inf", "1e300"),
    "--grad-clip": ("-1", "nan", "inf"),
    "--memory-limit": ("-1GiB", "99999999999GiB", "2QiB", "nanGiB", "1e30", "many"),
    "--exit-after": ("-5min", "1e30h", "soon", "nan"),
    "--checkpoint-every": ("0steps", "-1steps", "99999999999999999999steps", "1fortnight", "nanmin"),
    "--record-steps": ("-1", "0", "often"),
    "--trace-steps": ("-1", "0-5", "7-3", "5-", "-", "all-", "1-99999999999999999999", "\x1b[2J"),
    "--keep": ("-1", "99999999999"),
    "--seed": ("-1", "18446744073709551616", "x"),
    "--mesh": ("data=0", "data=-1", "data=99999999999999999999", "data=2147483647,pipe=2147483647", "data=1,data=1", "colour=2", "data", "=,=", "data=1,,"),
    "--model": ("../mlp", "\x1b[2Jmlp\x07", "x" * 100_000, "gone.pt2"),
    "--model-option": ("hidden=0", "hidden=-5", "hidden=99999999999999999999", "hidden=16777216,16777216", "hidden", "=5", "hidden=\x1b[2J"),
    "--freeze": ("(" * 5000, "[", "*", "(a+)+$\x07"),
    "--inject": ("kill:rank=-1,step=0", "frob:rank=0,step=1", "kill:rank=99999999999999999999,step=1", "\x1b[2J"),
    "--loss": ("\x1b[31m", "crossentropy"),
    "--precision": ("fp8",),
    "--staging": ("local=", "elsewhere", "local"),
    "--eval-batch": ("-1", "2147483648"),
    "--spares": ("-1", "2147483647"),
    "--replicate": ("-1", "0.5"),
    "--cluster": ("0x0", "99999999x99999999", "2", "-1x2", "1x1"),
    "--augment-padding": ("-1", "2147483647"),
    "--virtual-stages": ("0", "2147483647"),
    "--strategy": ("", "sgd", "\x1b[2J", "x" * 100_000),
    "--resume": ("gone", "\x1b[2J", ""),
    "--golden": ("maybe", "\x1b[2J"),
    "--early-stopping": ("-1", "2147483648", "1.5", "soon"),
    "--validate-every": ("0steps", "-1steps", "nansteps", "2epochs", "0.5epoch", "1fortnight", "often", ""),
}
# Of the strategies in rounds: each value beside the strategy whose option it is.
ROUNDS = {
    "--sync-period": ("local_sgd", ("0", "-1", "1.5", "2147483648", "99999999999999999999", "nan", "", "adaptive2", "\x1b[2J")),
    "--sync-optimizer": ("local_sgd", ("", "mean", "\x1b[2J")),
    "--local-after": ("local_sgd", ("-1", "2147483648", "1e3", "many")),
    "--outer-optimizer": ("local_sgd", ("adam", "\x1b[2J")),
    "--outer-learning-rate": ("local_sgd", ("0", "-1", "nan", "inf", "1e999")),
    "--outer-momentum": ("local_sgd", ("-0.1", "1", "nan", "inf")),
    "--fragments": ("local_sgd", ("0", "-1", "17", "1001", "2147483648", "few")),
    "--overlap-steps": ("local_sgd", ("-1", "16", "2147483648", "1.5", "late")),
    "--exchange-type": ("local_sgd", ("", "int4", "\x1b[2J")),
    "--compression": ("ddp", ("", "fp8", "powersgd", "powersgd=0", "powersgd=2147483648", "topk", "topk=nan", "topk=1e-999", "topk=0.51", "\x1b[2J")),
    "--offload": ("ddp", ("", "state", "\x1b[2J")),
    "--compression-after": ("ddp", ("-1", "1", "2147483648", "1.5", "soon")),
    "--easgd-mode": ("easgd", ("", "round", "\x1b[2J")),
    "--servers": ("asgd", ("-1", "2", "2147483647", "2147483648", "all")),
    "--staleness": ("asgd", ("-1", "1001", "0.5", "late")),
    "--elasticity": ("easgd", ("0", "1", "-1", "nan", "inf", "1e-999", "much")),
}
ALLOWED = {("--resume", "gone"): 4, ("--resume", "\x1b[2J"): 4, ("--exit-after", "1e30h"): {0, 2}, ("--checkpoint-every", "99999999999999999999steps"): {0, 2}, ("--record-steps", "0"): {0, 2},
           ("--model-option", "hidden=16777216,16777216"): {1, 2}}
QUICK = {("--threads", "100000"), ("--watchdog", "nan"), ("--mesh", "data=2147483647,pipe=2147483647"), ("--model", "\x1b[2Jmlp\x07")}
for option, values in VALUES.items():
    for value in values:
        title = ascii(value)[1:-1]
        title = title if len(title) < 40 else f"{title[:20]}... of {len(title)} letters"
        OPTIONS.add(f"{option} {title}", nothing, *SMALL, option, value, code=ALLOWED.get((option, value), 2), check=trained.completed(), quick=(option, value) in QUICK)
for option, (strategy, values) in ROUNDS.items():
    outer = ("--outer-optimizer", "nesterov") if option in ("--outer-learning-rate", "--outer-momentum") else ()
    for value in values:
        OPTIONS.add(f"{strategy} {option} {ascii(value)[1:-1]}", nothing, *SMALL, "--strategy", strategy, *outer, option, value,
                    code=2, quick=(option, value) == ("--elasticity", "nan"))
    OPTIONS.add(f"ddp {option}", nothing, *SMALL, option, "1", code=2)
# Of rounds of clients, and of their secure sums, which take two ranks: one prints the configuration of both.
CLIENTS = ("--model", "mlp", "--threads", "1", "--name", "out", "--quiet", "--dataset", "table", "--data-root", "{given}", "--strategy", "fedavg", "--clients", "3")
FEDERATED = {"--rounds": ("0", "-1", "2147483648", "1.5", "many"), "--clients": ("0", "-1", "2147483648"), "--local-epochs": ("0", "-1", "2147483648"),
             "--partition": ("heap", "dirichlet=0", "dirichlet=nan", "quantity=-1", "classes=0", "classes=99999999999", "dirichlet=1e-300", "\x1b[2J")}
SECURE = {"--secure-bits": ("0", "1", "-1", "64", "2147483648", "1.5", "few"), "--secure-clip": ("0", "-1", "nan", "inf", "1e999", "1e-999", "1e-300", "1e30", "much"),
          "--secure-threshold": ("0", "-1", "2147483648", "1.5", "most"), "--secure-ring": ("0", "-1", "16", "33", "2147483648"),
          "--secure-noise": ("-1", "nan", "inf", "1e999")}
for extra, options in (((), FEDERATED), (("--rounds", "1", "--secure-aggregation", "on", "--mesh", "data=2", "--print-config"), SECURE)):
    for option, values in options.items():
        words = CLIENTS[:-2] if option == "--clients" else CLIENTS
        for value in values:
            OPTIONS.add(f"fedavg {option} {ascii(value)[1:-1]}", nothing, *words, *extra, option, value, code=2, says=(option,))
for value in ("0", "-1", "2147483648", "99999999999999999999", "1.5", "many"):
    OPTIONS.add(f"generate --max-tokens {value}", nothing, "generate", "{given}/checkpoint", "--prompt", "w5", "--max-tokens", value, code=2, says=("--max-tokens",))
OPTIONS.add("an outer rate without an outer optimizer", nothing, *SMALL, "--strategy", "local_sgd", "--outer-learning-rate", "0.7", code=2)
OPTIONS.add("local_sgd with fp16", nothing, *SMALL, "--strategy", "local_sgd", "--precision", "fp16", code=2)
OPTIONS.add("local_sgd as it should be", nothing, *SMALL, "--strategy", "local_sgd", "--sync-period", "2", code={0, 2}, check=trained.completed())
OPTIONS.add("--watchdog inf", nothing, *SMALL, "--watchdog", "inf", code=0, check=trained.completed(), quick=True)
OPTIONS.add("--threads 0", nothing, *SMALL, "--threads", "0", code=0, check=trained.completed())
OPTIONS.add("an unknown option", nothing, "--fr\x1b[2Job", "1", code=2)
OPTIONS.add("an unknown command", nothing, "fr\x1b[2Job", code=2, quick=True)
OPTIONS.add("a command of 100 KB", nothing, "x" * 100_000, code=2)
OPTIONS.add("bytes that are no text", nothing, *SMALL, "--model", b"m\xff\xfelp".decode("utf-8", "surrogateescape"), code=2)
OPTIONS.add("no words", nothing, "evaluate", code=2)
OPTIONS.add("an option without a value", nothing, "--model", code=2)
STAGED = {"--shards 2147483647": {0, 2, 3}, "--samples 2147483647": {1, 2, 3}}
for name, words in {"--shards 0": ("--shards", "0"), "--shards 2147483647": ("--shards", "2147483647"), "--shards 99999999999": ("--shards", "99999999999"),
                    "--samples 2147483647": ("--samples", "2147483647"), "--samples -1": ("--samples", "-1"),
                    "--vocab-size 2147483647": ("--task", "text_classification", "--vocab-size", "2147483647"),
                    "--max-length 2147483647": ("--task", "language_modelling", "--max-length", "2147483647"), "--task ESC": ("--task", "\x1b[2J")}.items():
    OPTIONS.add(f"stage {name}", nothing, "stage", "set", "--format", "synthetic", *words, code=STAGED.get(name, {2, 3}))
for name, words in {"--pipe 0": ("--pipe", "0"), "--pipe -1": ("--pipe", "-1"), "--pipe 100000": ("--pipe", "100000"),
                    "--micro-batches 2147483647": ("--micro-batches", "2147483647"), "--schedule ESC": ("--schedule", "\x1b[2J"),
                    "--virtual-stages 2147483647": ("--schedule", "interleaved", "--virtual-stages", "2147483647")}.items():
    OPTIONS.add(f"plan {name}", nothing, "plan", *words, code=2)
CLUSTERS = ("0x8", "8x0", "-1x2", "2x-2", "99999999x99999999", "2147483648x1", "1x2147483648", "65536x65536", "2x2x2", "2", "x", "", "nanx2", "1.5x2", "\x1b[2J")
for cluster in CLUSTERS:
    OPTIONS.add(f"plan --cluster {ascii(cluster)[1:-1]}", nothing, "plan", "--cluster", cluster, code=2 if cluster else 0, quick=cluster == "65536x65536")
for name, words in {"--memory 0": ("--memory", "0"), "--memory -1GiB": ("--memory", "-1GiB"), "--memory nanGiB": ("--memory", "nanGiB"), "--memory 1e30": ("--memory", "1e30"),
                    "--memory ESC": ("--memory", "\x1b[2J"), "--model of a path": ("--model", "../mlp"), "--model ESC": ("--model", "\x1b[2J"), "--model of a file that is gone": ("--model", "gone.pt2"),
                    "--model-option of 2^62": ("--model-option", f"hidden={2**62}"), "--dataset ESC": ("--dataset", "\x1b[2J"), "--dataset of a path": ("--dataset", "/etc"),
                    "--global-batch 0": ("--global-batch", "0"), "--global-batch 2^31": ("--global-batch", str(2**31)), "--optimizer ESC": ("--optimizer", "\x1b[2J"),
                    "--precision fp8": ("--precision", "fp8"), "--pipe with a cluster": ("--pipe", "2"), "--micro-batches 2^31": ("--micro-batches", str(2**31))}.items():
    OPTIONS.add(f"plan --cluster and {name}", nothing, "plan", "--cluster", "2x4", *words, code={2, 3} if "--dataset" in name else 2)
OPTIONS.add("plan --memory of nothing much", nothing, "plan", "--cluster", "2x4", "--memory", "1", code={1, 2})
for cluster in ("1x1", "4096x8", "997x1", "1x100000"):
    OPTIONS.add(f"plan of {cluster}", nothing, "plan", "--cluster", cluster, "--all", code={0, 1, 2})
for name, words in {"--sizes -1": ("--sizes", "-1"), "--sizes 8EiB": ("--sizes", "8EiB"), "--sizes of nothing": ("--sizes", ",,"),
                    "--sizes 99999999999GiB": ("--sizes", "99999999999GiB")}.items():
    OPTIONS.add(f"topology {name}", nothing, "topology", "--benchmark", *words, code=2)

# ---- configuration files --------------------------------------------------------------------------------------------
CONFIGURED = ("--config", "c.toml", "--dataset", "table", "--data-root", "{given}", "--limit-steps", "1", "--threads", "1", "--name", "out", "--quiet")
FILES = {
    "nothing but noise": b"\x00\x01\xff\xfe" * 50, "Latin-1": "model = \"für\"".encode("latin-1"), "depth": b"x = " + b"[" * 100_000,
    "deep tables": b"[" + b"a." * 50_000 + b"a]\nx = 1\n", "deep objects": b"x = " + b"{a = " * 50_000, "an open string": b'model = "mlp',
    "an unknown key": b"frobnicate = 3\n", "a table": b"[model]\nname = 1\n", "a date": b"epochs = 2020-01-01\n", "two of one key": b"epochs = 1\nepochs = 2\n",
    "a number beyond 64 bits": b"epochs = 99999999999999999999\n", "not a number": b"learning-rate = nan\n", "infinity": b"learning-rate = inf\n",
    "text for a number": b'epochs = "many"\n', "a list for a number": b"epochs = [1, 2]\n", "control characters": b'model = "\\u001b[2Jmlp"\n',
    "control characters in a key": b'"\\u001b[2J" = 1\n', "a string of 40 MB": b'model = "' + b"x" * 40_000_000 + b'"\n',
    "ten million lines": b"\n" * 9_999_999 + b"x\n", "a negative batch": b"global-batch = -8\n",
}
for name, content in FILES.items():
    TOML.add(name, lambda folder, given, c=content: (folder / "c.toml").write_bytes(c), *CONFIGURED, code=2,
             quick=name in ("depth", "control characters in a key", "deep objects"))
EMULATED = {
    "2^60 ranks": b"[[node]]\nranks = [0, 1152921504606846976]\n", "a million nodes": b"[[node]]\nranks = [0]\n" * 1_000_000, "a factor of 1e308": b"[[slow]]\nrank = 0\nfactor = 1e308\n",
    "a link of nan": b"[[node]]\nranks = [0]\n[[link]]\nlatency_ms = nan\n", "a latency below 0": b"[[node]]\nranks = [0]\n[[link]]\nlatency_ms = -5\n",
    "no bandwidth": b"[[node]]\nranks = [0]\n[[link]]\ngbit_per_s = 0\n", "steps to nowhere": b"[[slow]]\nrank = 0\nfactor = 2\nfrom_step = 99999999999999999999\n",
}
for name, content in {**FILES, **EMULATED}.items():
    TOML.add(f"a machine of {name}", lambda folder, given, c=content: (folder / "c.toml").write_bytes(c), *SMALL, "--emulate", "c.toml", code=2, quick=name == "deep tables")
TOML.add("nothing", lambda folder, given: (folder / "c.toml").write_bytes(b""), *CONFIGURED, code=0)
TOML.add("a missing file", nothing, "--config", "gone.toml", code=2)
TOML.add("a folder", lambda folder, given: (folder / "c.toml").mkdir(), *CONFIGURED, code=2)

# ---- names ----------------------------------------------------------------------------------------------------------
PATHS = {"a slash": "a/b", "the folder above": "..", "a path upwards": "../outside/kept", "an absolute path": "/tmp/dtrain-set", "a dot": ".", "nothing": "",
         "a hidden folder": ".set", "control characters": "a\x1b[2J\x07b", "a line end": "a\nb", "300 letters": "x" * 300,
         "bytes that are no text": b"a\xff\xfe".decode("utf-8", "surrogateescape")}
for name, path in PATHS.items():
    NAMES.add(f"a dataset of {name}", nothing, "stage", path, "--format", "synthetic", "--samples", "16", code={2, 3} if path == "x" * 300 else 2,
              quick=name in ("a path upwards", "control characters"))
for name, path in PATHS.items():
    if name not in ("nothing", "a hidden folder"):
        NAMES.add(f"a run of {name}", nothing, *TRAIN[:-3], "--name", path, "--quiet", "--dataset", "table", "--data-root", "{given}", code=2)


def foreign(folder, given):
    """A folder that dtrain did not write, where the dataset would go."""
    place = folder / "data" / "staged" / "set"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("years of work")


def still_there(path):
    def check(folder, given, output):
        return "" if (folder / path).exists() else f"removed {path}"
    return check


def foreign_run(folder, given):
    place = folder / "runs" / "out"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("years of work")


def linked(folder, given):
    place = folder / "data" / "staged"
    place.mkdir(parents=True)
    (place / "set").symlink_to(folder.parent / "outside" / "kept")


def linked_partial(folder, given):
    place = folder / "data" / "staged"
    place.mkdir(parents=True)
    (place / "set.partial").symlink_to(folder.parent / "outside" / "kept")


STAGE = ("stage", "set", "--format", "synthetic", "--samples", "16", "--overwrite", "--task", "table_classification")
NAMES.add("--overwrite of a foreign folder", foreign, *STAGE, code={2, 3}, after=still_there("data/staged/set/thesis.txt"), quick=True)
NAMES.add("--overwrite of a link", linked, *STAGE, code={0, 2, 3})
NAMES.add("--overwrite beside a link .partial", linked_partial, *STAGE, code={0, 2, 3})
NAMES.add("--overwrite of a foreign run", foreign_run, *TRAIN, "--dataset", "table", "--data-root", "{given}", "--overwrite", code={0, 2},
          after=still_there("runs/out/thesis.txt"))
NAMES.add("a dataset that is gone", nothing, *TRAIN, "--dataset", "gone\x1b[2J", code=3)
NAMES.add("a dataset of 100 KB", nothing, *TRAIN, "--dataset", "x" * 100_000, code=3)
