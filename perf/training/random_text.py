"""Stages random text of the size and shape of IMDB, Multi30k or tinyshakespeare, for speed only: words follow Zipf's law
(the share of the r-th word falls as 1 / r), lengths are those datasets' in the mean. Shares no code with dtrain's writer."""

import hashlib
import json

import h5py
import numpy

SPECIAL = ["<pad>", "<unk>", "<start>", "<end>"]
TASKS = {"nbow": "text_classification", "seq2seq": "translation", "gpt": "language_modelling"}
# As many as IMDB has; of the slower models as many as some 30 steps take.
SAMPLES = {"nbow": {"train": 22500, "validation": 500}, "seq2seq": {"train": 3840, "validation": 128},
           "gpt": {"train": 64, "validation": 8}}
BATCH = {"nbow": 512, "seq2seq": 128, "gpt": 8}  # of all ranks, in comparisons
BLOCK = 256


def zipf(generator, count, vocabulary):
    """Ids from 4 to vocabulary - 1."""
    shares = 1.0 / numpy.arange(1, vocabulary - 3)
    return (generator.choice(vocabulary - 4, count, p=shares / shares.sum()) + 4).astype(numpy.int32)


def sentences(generator, samples, vocabulary, mean, deviation, longest, wrapped):
    """Tokens and offsets of log-normal lengths; `wrapped` in start and end."""
    sigma = numpy.sqrt(numpy.log(1 + (deviation / mean) ** 2))
    lengths = generator.lognormal(numpy.log(mean) - sigma ** 2 / 2, sigma, samples).astype(int).clip(2, longest)
    offsets = numpy.concatenate([[0], lengths.cumsum()]).astype(numpy.int64)
    tokens = zipf(generator, offsets[-1], vocabulary)
    if wrapped:
        tokens[offsets[:-1]], tokens[offsets[1:] - 1] = 2, 3
    return tokens, offsets


def arrays(model, generator, samples):
    if model == "nbow":
        tokens, offsets = sentences(generator, samples, 25000, 233, 173, 1000, False)
        return {"tokens": tokens, "offsets": offsets, "targets": generator.integers(0, 2, samples, numpy.int64)}
    if model == "seq2seq":
        source = sentences(generator, samples, 7853, 13.1, 4.2, 46, True)
        target = sentences(generator, samples, 5893, 15.1, 4.2, 43, True)
        return {"source_tokens": source[0], "source_offsets": source[1], "target_tokens": target[0],
                "target_offsets": target[1]}
    return {"tokens": generator.integers(0, 65, samples * BLOCK + 1, numpy.int32)}


def words(count):
    return SPECIAL + [f"w{i}" for i in range(4, count)]


def tokenizer_of(model):
    if model == "nbow":
        return {"kind": "word", "vocabulary": words(25000)}
    if model == "seq2seq":
        return {"kind": "word", "vocabulary": words(7853), "target_vocabulary": words(5893)}
    return {"kind": "char", "vocabulary": [chr(256 + i) for i in range(65)]}


def stage(folder, model, samples=None):
    """`samples` of train and of validation; None: SAMPLES."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = numpy.random.default_rng(1)
    facts = {"format": "dtrain.dataset", "version": 1, "name": folder.name, "task": TASKS[model],
             "classes": ["neg", "pos"] if model == "nbow" else [],
             "shape": [{"nbow": 1000, "seq2seq": 46, "gpt": BLOCK}[model]], "mean": [], "std": [],
             "tokenizer": tokenizer_of(model), "seed": 1, "splits": {}, "sources": []}
    sizes = {"train": samples, "validation": samples} if samples else SAMPLES[model]
    for split, samples in sizes.items():
        path = folder / f"{split}-00000-of-00001.h5"
        with h5py.File(path, "w", libver="earliest") as file:
            file.attrs.update({"format": "dtrain.shard", "version": 1, "dataset": folder.name, "split": split,
                               "shard_index": 0, "shard_count": 1, "first_sample": 0, "sample_count": samples})
            for name, values in arrays(model, generator, samples).items():
                file.create_dataset(name, data=values, chunks=(min(len(values), 1 << 18),), fletcher32=True)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        facts["splits"][split] = {"samples": samples,
                                  "shards": [{"file": path.name, "samples": samples, "sha256": sha256}]}
    (folder / "dataset.json").write_text(json.dumps(facts))  # last: now the dataset is whole
