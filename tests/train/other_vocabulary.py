"""Weights of a model of text know the words they were trained on: with others of the same number they are refused, by every
command and in one sentence, unless --init-skip leaves what belongs to the words."""

import hashlib
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, refused, run, without_facts

TINY = {"nbow": ["embedding=8"], "gpt": ["layers=1", "heads=2", "width=16", "block=64"],
        "seq2seq": ["embedding=8", "hidden=12"]}
TASKS = {"nbow": "text_classification", "gpt": "language_modelling", "seq2seq": "translation"}


def sha256(*vocabularies):
    """As lib/data/shards/vocabulary_hash.hpp has it: of each list its length, then its tokens with their ends."""
    digest = hashlib.sha256()
    for tokens in vocabularies:
        digest.update(struct.pack("<Q", len(tokens)))
        for token in tokens:
            digest.update(token.encode() + b"\0")
    return digest.hexdigest()


def other_words(staged, name, *keys):
    """A copy of the dataset `name` of which one word of each vocabulary of `keys` means another; its name."""
    copy = f"{name}-{'-'.join(keys)}"
    shutil.copytree(staged / name, staged / copy)
    facts = json.loads((staged / copy / "dataset.json").read_text())
    for key in keys:
        facts["tokenizer"][key][9] = "another"
    (staged / copy / "dataset.json").write_text(json.dumps(facts))
    return copy


class Case:
    """A model trained for a step on a small set of its own."""

    def __init__(self, binary, folder, model):
        self.binary, self.folder, self.model = binary, folder, model
        self.staged = folder / "data" / "staged"
        self.options = ["--model", model, "--quiet", "--threads", 1, "--limit-steps", 1, "--learning-rate", 1e-300,
                        *(word for option in TINY[model] for word in ("--model-option", option))]
        run(binary, 1, "stage", model, "--format", "synthetic", "--task", TASKS[model], "--samples", 200, cwd=folder)
        self.best = self.train(model, "first")
        self.start = ["--init-from", self.best]
        self.manifest = json.loads((folder / self.best / "manifest.json").read_text())
        self.tokenizer = json.loads((self.staged / model / "dataset.json").read_text())["tokenizer"]

    def train(self, dataset, name, *options):
        """A step of rate 0 from the given start; the path of its checkpoint."""
        run(self.binary, 1, *self.options, "--dataset", dataset, "--name", f"{self.model}-{name}", *options, cwd=self.folder)
        return f"runs/{self.model}-{name}/checkpoints/best"

    def refuse_start(self, names, dataset, *options, ranks=1):
        """Refused because of just these tensors."""
        refused(self.binary, ranks, 4, ["another vocabulary", dataset, f"--init-skip '{'|'.join(names)}'"], *self.options,
                "--dataset", dataset, "--name", "never", *options, cwd=self.folder)

    def refuse(self, ranks, command, dataset, *options):
        refused(self.binary, ranks, 4, [self.best, "another vocabulary", dataset, "--dataset"], command, self.best,
                "--dataset", dataset, *options, cwd=self.folder)

    def evaluate(self, dataset, checkpoint):
        run(self.binary, 1, "evaluate", checkpoint, "--dataset", dataset, cwd=self.folder)

    def expect_all_but(self, names, checkpoint):
        """The weights of `checkpoint` are those of the first, the others but for these tensors' rows."""
        before, after = (checkpoint_tensors(self.folder / folder) for folder in (self.best, checkpoint))
        changed = {name for name in before if not np.array_equal(before[name], after[name])}
        assert changed <= set(names) and any(name.endswith("weight") for name in changed) == bool(names), (changed, names)


def documents(binary, folder):
    case = Case(binary, folder, "nbow")
    other = other_words(case.staged, "nbow", "vocabulary")
    case.refuse(2, "evaluate", other)
    case.refuse_start(["embedding.weight"], other, *case.start, ranks=2)
    case.expect_all_but(["embedding.weight"],
                        case.train(other, "moved", *case.start, "--seed", 2, "--init-skip", "embedding.weight"))


def running_text(binary, folder):
    case = Case(binary, folder, "gpt")
    table = "transformer.wte.weight"
    assert case.manifest["vocabulary_sha256"] == sha256(case.tokenizer["vocabulary"], []), case.manifest
    assert "source_vocabulary_sha256" not in case.manifest and "target_vocabulary_sha256" not in case.manifest
    other = other_words(case.staged, "gpt", "vocabulary")
    case.evaluate("gpt", case.best)
    case.refuse(1, "generate", other, "--prompt", "w5")
    case.refuse_start([table], other, *case.start)
    case.refuse_start([table], other, *case.start, "--init-skip", "bias$")
    case.expect_all_but([table], case.train(other, "moved", *case.start, "--seed", 2, "--init-skip", table))

    # Who moves rows from one vocabulary to another with a program of his own writes a file of weights: shapes decide.
    run(binary, 1, "export", case.best, "rows.h5", cwd=folder)
    with h5py.File(folder / "rows.h5", "a") as file:
        file[f"model/{table}"][9] = 0.5
    assert (checkpoint_tensors(folder / case.train(other, "rows", "--init-from", "rows.h5"))[table][9] == 0.5).all()

    old = without_facts(folder, case.best, "old", "vocabulary_sha256")
    case.evaluate(other, old)
    case.train(other, "from-old", "--init-from", old)


def pairs(binary, folder):
    """What reads the source language fits a set in which only the target language is another."""
    case = Case(binary, folder, "seq2seq")
    source, target = case.tokenizer["vocabulary"], case.tokenizer["target_vocabulary"]
    assert case.manifest["vocabulary_sha256"] == sha256(source, target), case.manifest
    assert case.manifest["source_vocabulary_sha256"] == sha256(source), case.manifest
    assert case.manifest["target_vocabulary_sha256"] == sha256(target), case.manifest
    other_source = other_words(case.staged, "seq2seq", "vocabulary")
    other_target = other_words(case.staged, "seq2seq", "target_vocabulary")
    both = other_words(case.staged, "seq2seq", "vocabulary", "target_vocabulary")
    of_source = ["encoder.embedding.weight"]
    of_target = ["decoder.embedding.weight", "decoder.fc_out.weight", "decoder.fc_out.bias"]

    (folder / "lines.txt").write_text("w5 w6\n")
    case.refuse(1, "evaluate", other_target)
    case.refuse(1, "generate", other_source, "--translate", "lines.txt")
    case.refuse_start(of_source, other_source, *case.start)
    case.refuse_start(of_source + of_target, both, *case.start)
    case.refuse_start(of_target[:1], other_target, *case.start, "--init-skip", "fc_out")
    # Also on the rank of a pipeline that does not hold them.
    case.refuse_start(of_target, other_target, *case.start, "--init-skip", "^encoder", "--mesh", "pipe=2", ranks=2)
    case.expect_all_but(of_target, case.train(other_target, "moved", *case.start, "--seed", 2, "--init-skip",
                                              "|".join(of_target)))

    # Before the languages were kept apart, either might be the one that differs.
    old = without_facts(folder, case.best, "pairs-old", "source_vocabulary_sha256", "target_vocabulary_sha256")
    case.evaluate("seq2seq", old)
    case.refuse_start(of_source, other_target, "--init-from", old, "--init-skip", "^decoder")


def main():
    binary = sys.argv[1]
    for check in (documents, running_text, pairs):
        with tempfile.TemporaryDirectory() as folder:
            check(binary, Path(folder))


main()
