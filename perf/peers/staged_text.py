"""The training split of a staged text dataset (dataset.json and its shards) as tensors, and batches of it."""

import json
import pathlib

import h5py
import numpy
import torch

LONGEST_REVIEW = 256


class Text:
    """All samples in memory, padded with id 0: nbow `inputs` [N, 256] and `targets` [N]; seq2seq `inputs` and `targets`
    [N, longest] as pairs; gpt blocks `inputs` and `targets` [N, T], one token apart."""

    def __init__(self, folder, samples=0):
        folder = pathlib.Path(folder)
        facts = json.loads((folder / "dataset.json").read_text())
        self.task = facts["task"]
        self.classes = len(facts["classes"])
        shards = [h5py.File(folder / shard["file"], "r") for shard in facts["splits"]["train"]["shards"]]
        tokenizer = vocabularies(facts, shards[0])
        self.vocabulary, self.target_vocabulary = tokenizer
        if self.task == "text_classification":
            self.inputs = padded(shards, "tokens", "offsets", LONGEST_REVIEW)
            self.targets = torch.from_numpy(numpy.concatenate([shard["targets"][:] for shard in shards]))
        elif self.task == "translation":
            self.inputs = padded(shards, "source_tokens", "source_offsets")
            self.targets = padded(shards, "target_tokens", "target_offsets")
        else:
            length = facts["shape"][0]
            tokens = torch.from_numpy(shards[0]["tokens"][:]).long()
            blocks = (len(tokens) - 1) // length
            self.inputs = tokens[:blocks * length].view(blocks, length)
            self.targets = tokens[1:blocks * length + 1].view(blocks, length)
        if samples:
            self.inputs, self.targets = self.inputs[:samples], self.targets[:samples]
        self.lengths = (self.inputs != 0).sum(1)

    def __len__(self):
        return len(self.inputs)

    def batch(self, rows):
        """Cut to its longest member; pairs as [T, n], the way nn.LSTM reads them."""
        inputs, targets = self.inputs[rows], self.targets[rows]
        if self.task == "language_modelling":
            return inputs, targets
        inputs = inputs[:, :max(1, int((inputs != 0).sum(1).max()))]
        if self.task == "text_classification":
            return inputs, targets
        return inputs.t().contiguous(), targets[:, :int((targets != 0).sum(1).max())].t().contiguous()


def vocabularies(facts, shard):
    """Sizes, from dataset.json or from the shard, wherever the tokens lie."""
    tokenizer = facts["tokenizer"]
    sizes = []
    for name in ("vocabulary", "target_vocabulary"):
        listed = tokenizer.get(name)
        sizes.append(len(listed) if listed else len(shard[name]) if name in shard else 0)
    return sizes


def padded(shards, tokens, offsets, longest=None):
    rows = []
    for shard in shards:
        words, begins = shard[tokens][:], shard[offsets][:]
        rows += [torch.from_numpy(words[a:b][:longest]) for a, b in zip(begins, begins[1:])]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).long()
