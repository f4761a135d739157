"""Datasets made from nothing, and runs drawn by chance that dtrain must be able to do on them."""

import csv
import random
import subprocess
from dataclasses import dataclass

import h5py
import numpy as np

WORDS = [f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "rstvz"]
LIMIT_S = 100  # of a run that takes a second or two
BATCH_NORM = ("vgg11", "resnet18")
KERNEL_LIMIT = 1 << 16  # elements of a piece: by such sizes dtrain's kernels are chosen


@dataclass(frozen=True)
class Data:
    """How a dataset is made: `write(folder, numbers)` leaves its original files."""
    write: object
    staged_by: tuple
    samples: int  # to train on, about
    shape: tuple = ()  # of a sample, but of texts
    kind: str = ""
    classes: int = 0  # of targets, where they are that

    @property
    def elements(self):
        return int(np.prod(self.shape)) if self.shape else 0

    @property
    def height(self):
        """Of images, the smaller side."""
        return min(self.shape[1:])


def arrays(inputs, targets):
    def write(folder, numbers):
        with h5py.File(folder / "arrays.h5", "w") as file:
            file["x"] = inputs(numbers)
            file["y"] = targets(numbers, len(file["x"]))
    return write


def classes(count):
    return lambda numbers, n: (np.arange(n) * 7 // 3 % count + (numbers.random(n) < 0.1)) % count


def bytes_of(*shape, below=256):
    return lambda numbers: numbers.integers(0, below, shape, np.uint8)


def floats_of(*shape):
    return lambda numbers: numbers.standard_normal(shape).astype(np.float32)


def values(numbers, n):
    return (3 * numbers.standard_normal(n) + 1).astype(np.float32)


def far_values(numbers, n):
    """Above all that a network at its start comes to: the mean absolute error then has the same slope everywhere."""
    return (1000 + numbers.standard_normal(n)).astype(np.float32)


def write_hospitals(folder, numbers):
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "hospital", "weight", "label"])
        for _ in range(211):
            rows.writerow([int(numbers.integers(18, 90)), ["north", "south", "east", "sea"][int(numbers.integers(16) ** 0.5)],
                           round(numbers.normal(70, 12), 2), ["no", "yes"][int(numbers.random() < 0.4)]])


def write_table(folder, numbers):
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "height", "colour", "weight", "label"])
        for n in range(423):
            age = "?" if n % 17 == 5 else int(numbers.integers(18, 90))
            rows.writerow([age, round(numbers.normal(170, 9), 1), ["red", "green", "blue"][n % 3],
                           round(numbers.normal(70, 12), 2), ["no", "yes"][int(numbers.random() < 0.4)]])


def sentence(numbers, most):
    return " ".join(numbers.choice(WORDS, int(numbers.integers(1, most + 1))))


def write_documents(folder, numbers):
    for split, n in (("train", 331), ("test", 41)):
        with open(folder / f"{split}.csv", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, quoting=csv.QUOTE_ALL)
            for row in range(n):
                rows.writerow([row % 3 + 1, "the text " + sentence(numbers, 40)])


def write_pairs(folder, numbers):
    for split, n in (("train", 213), ("val", 21), ("test", 19)):
        lines = [sentence(numbers, 14) for _ in range(n)]
        (folder / f"{split}.de").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (folder / f"{split}.en").write_text("".join(" ".join(line.split()[::-1]) + " so\n" for line in lines), encoding="utf-8")


def write_book(folder, numbers):
    (folder / "book.txt").write_text("\n".join(sentence(numbers, 12) for _ in range(180)) + "\n", encoding="utf-8")


ARRAYS = ("--from", "arrays.h5", "--inputs", "/x", "--targets", "/y")
DATASETS = {
    "bytes_12": Data(arrays(bytes_of(437, 1, 12, 12), classes(5)), (*ARRAYS, "--shards", 3), 349, (1, 12, 12), "images", classes=5),
    "bytes_16": Data(arrays(bytes_of(233, 3, 16, 16), classes(4)), ARRAYS, 186, (3, 16, 16), "images", classes=4),
    "bytes_33": Data(arrays(bytes_of(151, 3, 33, 35), classes(3)), ARRAYS, 120, (3, 33, 35), "images", classes=3),
    "floats_16": Data(arrays(floats_of(205, 3, 16, 16), classes(6)), ARRAYS, 164, (3, 16, 16), "images", classes=6),
    "floats_32": Data(arrays(floats_of(131, 1, 32, 36), classes(2)), (*ARRAYS, "--shards", 2), 104, (1, 32, 36), "images", classes=2),
    "table": Data(write_table, ("--from", "table.csv", "--standardize"), 338, (7,), kind="table", classes=2),
    "hospitals": Data(write_hospitals, ("--from", "table.csv", "--site", "hospital"), 169, (2,), kind="sites", classes=2),
    "narrow": Data(arrays(floats_of(613, 9), values), ARRAYS, 490, (9,), kind="values"),
    "far": Data(arrays(lambda numbers: floats_of(613, 9)(numbers) + 1, far_values), ARRAYS, 490, (9,), kind="far"),
    "broad": Data(arrays(floats_of(1201, 200), classes(10)), (*ARRAYS, "--shards", 2), 960, (200,), kind="table", classes=10),
    "wide": Data(arrays(floats_of(907, 784), classes(10)), ARRAYS, 725, (784,), kind="table", classes=10),
    "byte_rows": Data(arrays(bytes_of(347, 60, below=4), classes(3)), ARRAYS, 277, (60,), kind="table", classes=3),
    "series": Data(arrays(floats_of(311, 7, 5), classes(4)), ARRAYS, 248, (7, 5), kind="table", classes=4),
    "documents": Data(write_documents, ("--from", "."), 298, kind="documents", classes=3),
    "pairs": Data(write_pairs, ("--from", "."), 213, kind="pairs"),
    "book": Data(write_book, ("--from", "book.txt", "--max-length", 16), 261, kind="book"),
}
MODELS = {"mlp": 10, "cnn": 3, "vgg11": 2, "resnet18": 2, "conv_autoencoder": 3, "nbow": 4, "seq2seq": 3, "gpt": 4}


def stage(binary, environment, folder, name):
    """The dataset in FOLDER/data/staged, made once."""
    if (folder / "data/staged" / name).exists():
        return
    data = DATASETS[name]
    originals = folder / "originals" / name
    originals.mkdir(parents=True)
    data.write(originals, np.random.default_rng(sum(name.encode())))
    subprocess.run([binary, "stage", name, *map(str, data.staged_by), "--data-root", str(folder / "data/staged")],
                   cwd=originals, env=environment, check=True, timeout=120, stdout=subprocess.DEVNULL)


@dataclass
class Case:
    """A run: options that say what is computed, and those that say how, which must change nothing but rounding.

    Values are as on the command line, without dashes in front of names; `model-option` is a dictionary. Keys in capitals are
    not options of dtrain: RANKS started, ONE_CORE for all of them, what happens on the way (CRASH, STOP, KILL), the MESH of
    those that go on afterwards, whether updates come IN_ANY_ORDER; and of what is computed the NETWORK that is to be exported,
    and whether it HAS_BATCH_NORM.
    """
    what: dict
    how: dict

    def words(self, of=None):
        found = []
        for name, value in {**self.what, **(self.how if of is None else of)}.items():
            if name == "model-option":
                for key, chosen in value.items():
                    found += ["--model-option", f"{key}={chosen}"]
            elif not name.isupper():
                found += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return found


def has_batch_norm(case):
    return case.what["model"] in BATCH_NORM or "HAS_BATCH_NORM" in case.what


PLAIN = {"precision": "fp64", "kernels": "libtorch", "threads": 1}


def ranks_in(mesh):
    return int(np.prod([int(part.split("=")[1]) for part in mesh.split(",")]))


def mesh_words(data, pipe, tensor):
    return f"data={data},pipe={pipe},tensor={tensor}"


def layers_of(model, options):
    if model == "mlp":
        return 2 * len(options["hidden"].split(",")) + 2
    if model == "gpt":
        return 2 * options["layers"] + 2
    if model == "conv_autoencoder":
        return 4 * len(options["channels"].split(","))
    return {"cnn": 12, "vgg11": 20, "resnet18": 10, "nbow": 2, "seq2seq": 2}[model]


def draw_model(chance, model):
    """A dataset for the model, and the model's options."""
    pick = chance.choice
    options = {}
    images = [name for name, data in DATASETS.items() if data.kind == "images"]
    if model == "mlp":
        dataset = chance.choices(list(DATASETS), [{"images": 1, "table": 2, "values": 2}.get(data.kind, 0) *
                                                  (2 if data.elements >= 200 else 1) for data in DATASETS.values()])[0]
        options = {"hidden": pick(["250,100", "512", "300,40"] if DATASETS[dataset].elements >= 200 and chance.random() < 0.6
                                  else ["8", "33,17,9", "64", "250,100"]),
                   "activation": pick(["relu", "relu", "tanh", "gelu", "sigmoid"])}
    elif model == "conv_autoencoder":
        dataset, options["channels"] = pick([("bytes_12", "5,7"), ("bytes_16", "12,24,48"), ("floats_32", "3,8"),
                                             ("bytes_16", "6,32")])
    elif model in ("cnn", "vgg11", "resnet18"):
        least = {"cnn": 16, "vgg11": 32, "resnet18": 12}[model]
        dataset = pick([name for name in images if DATASETS[name].height >= least])
        if model == "vgg11":
            options = {"width": pick([4, 8]), "hidden": pick([16, 40]), "dropout": pick([0, 0.5])}
        if model == "resnet18":
            options = {"width": pick([4, 8, 32]) if DATASETS[dataset].height < 32 else pick([4, 8]),
                       "stem": pick(["cifar", "cifar", "imagenet"]) if DATASETS[dataset].height >= 32 else "cifar"}
    elif model == "nbow":
        dataset, options = "documents", {"embedding": pick([5, 16, 64]), "max-tokens": pick([3, 20, 256])}
    elif model == "seq2seq":
        dataset = "pairs"
        options = {"embedding": pick([8, 12]), "hidden": pick([8, 20]), "layers": pick([1, 2]), "dropout": pick([0, 0.5]),
                   "teacher-forcing": pick([0, 0.5, 1])}
    else:
        dataset = "book"
        heads = pick([1, 2, 4])
        options = {"layers": pick([1, 2, 3]), "heads": heads, "width": heads * pick([4, 8]), "block": 16,
                   "dropout": pick([0, 0.2])}
    return dataset, options


def draw_batch(chance, data, least_pieces, least_per_piece, most_per_piece):
    """Samples of a step and its pieces: often one sample off what divides, or pieces on both sides of a kernel's limit."""
    pieces = least_pieces * chance.choice([1, 1, 1, 2, 3]) + chance.choice([0, 0, 1, 2])
    if data.elements and chance.random() < 0.4:
        pieces = max(pieces, 2)
        batch = KERNEL_LIMIT // data.elements * pieces + chance.randrange(1, pieces)
        if batch <= min(data.samples, most_per_piece * pieces):
            return batch, pieces
    most = min(data.samples, 24 * pieces, most_per_piece * pieces)
    least = pieces * least_per_piece
    return chance.randint(least, max(least, most)), pieces


MESHES = {(1, 1, 1): 6, (2, 1, 1): 5, (3, 1, 1): 3, (4, 1, 1): 2, (1, 2, 1): 3, (2, 2, 1): 2, (1, 3, 1): 1, (1, 1, 2): 3,
          (2, 1, 2): 2, (1, 2, 2): 2}


def meshes_of(model, options):
    """Which of MESHES the model's layers and heads have room for, as a function of the stages that a rank of a pipeline has."""
    def fitting(virtual=1):
        return [(data, pipe, tensor) for data, pipe, tensor in MESHES if pipe * (virtual if pipe > 1 else 1) <= layers_of(model, options)
                and options.get("heads", tensor) % tensor == 0]
    return fitting


def draw_mesh(chance, meshes, pieces=99):
    fitting = [mesh for mesh in meshes if mesh[0] * mesh[1] <= pieces]
    return chance.choices(fitting, [MESHES[mesh] for mesh in fitting])[0]


def update_rule(chance, rules=("sgd", "sgd", "adam", "adamw")):
    optimizer = chance.choice(rules)
    momentum = {"momentum": chance.choice([0, 0.9])} if optimizer == "sgd" else {}
    return {"optimizer": optimizer, "weight-decay": chance.choice([0, 0.01]), "grad-clip": chance.choice([0, 0, 0.5]),
            "learning-rate": chance.choice([0.02, 0.003] if optimizer == "sgd" else [1e-3, 2e-4]), **momentum}


def draw_how(chance, meshes, mesh, precision, pieces, steps, ulfm):
    """`meshes`: as of meshes_of()."""
    data, pipe, tensor = mesh
    ranks = data * pipe * tensor
    how = {"RANKS": ranks, "mesh": mesh_words(*mesh), "precision": precision, "threads": chance.choice([1, 1, 2])}
    sometimes = lambda share: chance.random() < share
    if pipe > 1:
        schedules = ["1f1b", "eager-1f1b", "gpipe", "layerwise"] + (["interleaved"] if mesh in meshes(2) else [])
        how["pipeline"] = chance.choice(schedules)
        if sometimes(0.2):
            how["balance"] = "dynamic"
    if sometimes(0.25):
        how["recompute"] = "full"
    elif sometimes(0.1):
        how |= {"recompute": "auto", "memory-limit": "3GiB"}
    if sometimes(0.3):
        how["staging"] = chance.choice(["memory", "local=copies"])
    if sometimes(0.15) and how.get("pipeline") != "interleaved":
        how["reproducible"] = True
    if sometimes(0.25):
        how["all-reduce"] = chance.choice(["mpi", "ring", "tree", "hierarchical"])
    if sometimes(0.25):
        how["bucket-mb"] = chance.choice([0.001, 0.05])
    if sometimes(0.15):
        how["rank-order"] = "launched"
    if sometimes(0.1):
        how["verify-every"] = 1
    if sometimes(0.15):
        how["ONE_CORE"] = True
    if sometimes(0.05):
        how["trace"] = True
    if ulfm and ranks > 1 and sometimes(0.12):
        phase = chance.choice(["forward", "backward", "all_reduce", "optimizer"])
        how |= {"KILL": f"kill:rank={chance.randrange(ranks)},phase={phase},step={chance.randint(1, steps)}",
                "checkpoint-every": f"{chance.randint(1, 3)}steps", "watchdog": 20}
    elif steps > 1 and sometimes(0.25):
        virtual = 2 if how.get("pipeline") == "interleaved" else 1
        then = draw_mesh(chance, meshes(virtual), pieces)
        how |= {"checkpoint-every": f"{chance.randint(1, 2)}steps", "MESH": mesh_words(*then)}
        if sometimes(0.6):
            how["CRASH"] = f"fail:rank={chance.randrange(ranks)},step={chance.randint(2, steps)}"
        else:
            how["STOP"] = chance.randint(1, 2)
    return how


def draw(seed, ulfm):
    """The case of a seed: the same on every machine, but for kills, which not every MPI outlives."""
    chance = random.Random(seed)
    pick = chance.choice
    model = chance.choices(list(MODELS), list(MODELS.values()))[0]
    dataset, options = draw_model(chance, model)
    data = DATASETS[dataset]
    meshes = meshes_of(model, options)
    mesh = draw_mesh(chance, meshes())
    precision = chance.choices(["fp64", "fp32", "bf16", "fp16"], [8, 7, 1, 1])[0]
    most_per_piece = {"mlp": 400, "conv_autoencoder": 90}.get(model, 24)
    batch, pieces = draw_batch(chance, data, mesh[0] * mesh[1], 4 if model in BATCH_NORM else 1, most_per_piece)
    epochs = pick([1, 1, 2, 3])
    steps = min(epochs * -(-data.samples // batch), pick([1, 2, 3, 4, 6]))
    if model in BATCH_NORM:  # two values have hardly a deviation: a smaller last step would make noise of rounding
        steps = min(steps, max(data.samples // batch, 1))
    what = {"model": model, "model-option": options, "dataset": dataset, "global-batch": batch, "micro-batches": pieces,
            "epochs": epochs, "limit-steps": steps, "seed": chance.randint(1, 10**6)}
    optimizer = pick(["sgd", "sgd", "adam", "adamw"])
    what |= {"optimizer": optimizer, "weight-decay": pick([0, 0.01])}
    if optimizer == "sgd":
        what |= {"momentum": pick([0, 0.9]), "learning-rate": 0.002 if model in BATCH_NORM else pick([0.02, 0.003])}
    else:
        what["learning-rate"] = pick([1e-3, 2e-4])
    what["schedule"] = pick(["constant", "constant", "step", "cosine", "one_cycle", "linear", "wsd"])
    what["warmup-steps"] = pick([0, 0, 1]) if what["schedule"] != "one_cycle" and steps > 2 else 0
    what["grad-clip"] = pick([0, 0, 0.5])
    if data.kind == "values" or model == "conv_autoencoder":
        what["loss"] = pick(["mse", "mae"])
    elif model not in ("seq2seq", "gpt") and chance.random() < 0.2:
        what["class-weights"] = "balanced"
    if data.kind == "images":
        what["augment"] = pick(["on", "off"])
    case = Case(what, draw_how(chance, meshes, mesh, precision, pieces, steps, ulfm))
    draw_refinements(chance, case, data)
    return case


FREEZABLE = {"mlp": "input_fc", "cnn": "conv1", "vgg11": r"features\.", "resnet18": "layer1|^bn1", "nbow": "embedding",
             "seq2seq": "encoder", "conv_autoencoder": "encoder", "gpt": "wte|ln_"}

WIDER = {"mlp": {"hidden": "1024"}, "vgg11": {"width": 32, "hidden": 200}, "nbow": {"embedding": 200}}


def draw_refinements(chance, case, data):
    """Options that few runs have. Drawn last, so that a seed's other options stay when there are more of these."""
    what, how = case.what, case.how
    sometimes = lambda share: chance.random() < share
    if sometimes(0.1):
        what["freeze"] = chance.choice([FREEZABLE[what["model"]], "bias$"])
    if sometimes(0.15) and "loss" not in what:
        what["label-smoothing"] = 0.1
    if sometimes(0.3) and what.get("momentum"):
        what["nesterov"] = True
    if sometimes(0.1):
        what["decay"] = "matrices"
    if sometimes(0.3) and what.get("augment") == "on":
        what["augment"] = chance.choice(["crop", "flip"])
    if sometimes(0.2):
        how["eval-batch"] = chance.choice([1, 7])
    if sometimes(0.15):
        how["validate-every"] = f"{chance.randint(1, 2)}steps"
    if sometimes(0.25) and what["optimizer"] != "sgd":
        what |= {"beta1": chance.choice([0, 0.5, 0.95]), "beta2": chance.choice([0.9, 0.9999]), "epsilon": chance.choice([1e-4, 1e-6])}
    if sometimes(0.1) and what["model"] in WIDER:
        what["model-option"] |= WIDER[what["model"]]


def valid(case):
    """Whether dtrain must take a case that was made smaller."""
    what, how = case.what, case.how
    steps = what["limit-steps"] if "limit-steps" in what else what["rounds"]
    for words in (how.get("mesh", mesh_words(1, 1, 1)), how.get("MESH", mesh_words(1, 1, 1))):
        data, pipe, _ = (int(part.split("=")[1]) for part in words.split(","))
        if "micro-batches" in what and not data * pipe <= what["micro-batches"] <= what["global-batch"]:
            return False
    numbers = [int(word.split("=")[1]) for word in how.get("KILL", how.get("CRASH", "")).replace(":", ",").split(",")
               if word.startswith(("rank=", "step="))]
    return not numbers or (numbers[0] < how["RANKS"] and numbers[1] <= steps)


def without(case, key):
    """The case with one option at its plain value, or None where it is there already."""
    what, how = dict(case.what), dict(case.how)
    plain = {"grad-clip": 0, "warmup-steps": 0, "schedule": "constant", "weight-decay": 0, "momentum": 0, "augment": "off",
             "optimizer": "sgd", "epochs": 1, "limit-steps": 1, "seed": 1}
    if key in plain and key in what:
        if what[key] == plain[key]:
            return None
        what[key] = plain[key]
        if key in ("optimizer", "momentum"):
            what["momentum"] = 0
            for name in ("nesterov", "beta1", "beta2", "epsilon"):
                what.pop(name, None)
    elif key in ("beta1", "beta2", "epsilon", "loss", "class-weights", "freeze", "label-smoothing", "nesterov", "decay") and key in what:
        del what[key]
    elif key == "mesh":
        if how["RANKS"] == 1:
            return None
        for name in ("mesh", "pipeline", "balance", "KILL", "CRASH", "MESH", "STOP"):
            how.pop(name, None)
        how |= {"RANKS": 1, "mesh": mesh_words(1, 1, 1)}
    elif key == "threads" and how["threads"] == 1 or key == "precision" and how["precision"] == "fp64":
        return None
    elif key in PLAIN:
        how[key] = PLAIN[key]
    elif key in how and key not in ("RANKS", "MESH"):
        del how[key]
        if key == "recompute":
            how.pop("memory-limit", None)
        if key in ("CRASH", "STOP"):
            how.pop("MESH", None)
    else:
        return None
    return Case(what, how)


def halves(case):
    """The case with fewer pieces, samples or steps, one thing at a time."""
    for key, least in (("micro-batches", 1), ("global-batch", 1), ("limit-steps", 1), ("rounds", 1)):
        now = case.what.get(key, least)
        for smaller in sorted({least, now // 2, now - 1} - {0}):
            if least <= smaller < now:
                yield Case({**case.what, key: smaller}, dict(case.how))
