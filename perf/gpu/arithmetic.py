"""What follows from sizes alone: operations of gpt, peaks of GPUs, and the bytes of a batch."""

import re

# Operations per second of dense products: NVIDIA's datasheets of H100 (SXM) and H200 (SXM), where those of bf16 are given with
# sparsity, twice as many. Other forms of these GPUs are slower. fp32 without TF32, as dtrain computes it.
PEAKS = [(re.compile(r"^NVIDIA (H200|H100 80GB HBM3)$"), {"bf16": 989e12, "fp32": 67e12})]


def peak_flops(gpu, precision):
    """None where it is not known."""
    for name, peaks in PEAKS:
        if name.match(gpu):
            return peaks.get(precision)
    return None


def gpt_parameters(sizes):
    """Token and position embeddings, the blocks, the last norm; the output layer is the token embedding again."""
    width = sizes["width"]
    return (sizes["vocabulary"] + sizes["block"]) * width + sizes["layers"] * (12 * width + 13) * width + 2 * width


def gpt_flops_per_token(sizes):
    """Forward and backward: 6 N + 12 L H Q T, where H Q is the width (Chowdhery et al. 2022, PaLM, appendix B)."""
    return 6 * gpt_parameters(sizes) + 12 * sizes["layers"] * sizes["width"] * sizes["block"]


# Training samples of the study's datasets, and the shape of one.
STUDY = {"mlp": {"dataset": "mnist", "samples": 54000, "batch": 64, "shape": (1, 28, 28)},
         "cnn": {"dataset": "cifar10", "samples": 45000, "batch": 64, "shape": (3, 32, 32)},
         "vgg11": {"dataset": "cifar10", "samples": 45000, "batch": 128, "shape": (3, 32, 32)},
         "nbow": {"dataset": "imdb", "samples": 22500, "batch": 64, "words": 256},
         "seq2seq": {"dataset": "multi30k", "samples": 29000, "batch": 128, "words": 13, "target_words": 14},
         "conv_autoencoder": {"dataset": "cifar10", "samples": 45000, "batch": 64, "shape": (3, 32, 32)}}
BYTE, INT32, INT64 = 1, 4, 8


def travelling_bytes(model, batch):
    """Of each array of a batch that dtrain copies to the device in a step. Images travel as the bytes that are stored, and a
    kernel makes floats of them; ids go as they are stored, when the embedding reads them, and targets as int64, when the loss does.
    Of seq2seq the mean of Multi30k's lengths, since what is padding stays behind; of nbow the most words that it reads."""
    facts = STUDY[model]
    if model == "seq2seq":
        return {"source ids": batch * facts["words"] * INT32, "target ids": batch * facts["target_words"] * INT32,
                "targets": batch * facts["target_words"] * INT64}
    if model == "nbow":
        return {"ids": batch * facts["words"] * INT32, "targets": batch * INT64}
    elements = 1
    for extent in facts["shape"]:
        elements *= extent
    images = {"images": batch * elements * BYTE}
    return images if model == "conv_autoencoder" else {**images, "targets": batch * INT64}  # whose target is its input


def steps_per_epoch(model, batch):
    return -(-STUDY[model]["samples"] // batch)
