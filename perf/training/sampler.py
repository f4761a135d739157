"""The order in which dtrain takes samples (lib/data/sampler.cpp), written again in Python, so that a loop in PyTorch gets the same batches."""

import numpy

SAMPLING = 5  # lib/kernels/philox.hpp, Purpose
WINDOW_BATCHES = 64
MASK = 0xFFFFFFFF


def stream_of(name):
    """FNV-1a."""
    value = 2166136261
    for letter in name.encode():
        value = ((value ^ letter) * 16777619) & MASK
    return value


def philox_words(count, seed, major, stream):
    """The first `count` words of a stream: Philox4x32-10 (Salmon et al., SC11)."""
    blocks = (count + 3) // 4
    counter = [SAMPLING << 28 | numpy.arange(blocks, dtype=numpy.uint64), *(numpy.full(blocks, value, numpy.uint64) for value in (major & MASK, 0, stream))]
    low, high = seed & MASK, seed >> 32
    for _ in range(10):
        first, second = counter[0] * numpy.uint64(0xD2511F53), counter[2] * numpy.uint64(0xCD9E8D57)
        counter = [(second >> numpy.uint64(32)) ^ counter[1] ^ numpy.uint64(low), second & numpy.uint64(MASK),
                   (first >> numpy.uint64(32)) ^ counter[3] ^ numpy.uint64(high), first & numpy.uint64(MASK)]
        low, high = (low + 0x9E3779B9) & MASK, (high + 0xBB67AE85) & MASK
    return numpy.stack(counter, 1).reshape(-1)


def permutation(count, name, seed, epoch):
    """Fisher-Yates from the end, each draw from two words."""
    ids = list(range(count))
    words = philox_words(2 * count, seed, epoch, stream_of(name)).tolist()
    for i in range(count - 1, 0, -1):
        place = 2 * (count - 1 - i)
        other = ((words[place + 1] << 32 | words[place]) * (i + 1)) >> 64
        ids[i], ids[other] = ids[other], ids[i]
    return ids


def training_order(samples, batch, seed, epoch, lengths=None):
    """Ids of an epoch, counted from 1, in order; texts of like lengths share a batch."""
    order = permutation(samples, "epoch_order", seed, epoch)
    if lengths is None:
        return order
    batches = samples // batch
    whole = batches * batch
    for begin in range(0, whole, WINDOW_BATCHES * batch):
        end = min(begin + WINDOW_BATCHES * batch, whole)
        order[begin:end] = sorted(order[begin:end], key=lambda sample: lengths[sample])
    chosen = [sample for one in permutation(batches, "batch_order", seed, epoch) for sample in order[one * batch:(one + 1) * batch]]
    return chosen + order[whole:]
