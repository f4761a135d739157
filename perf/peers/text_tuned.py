"""PyTorch as fast as its own means allow on text: all samples as tensors in memory, batches of similar length, a fused
embedding bag and a fused LSTM wherever the targets' words are read, fused optimizer, DDP with gradient views.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/text_tuned.py --model nbow --data FOLDER
    python perf/peers/text_tuned.py --model nbow --threads 2 --data FOLDER       # one process, without DDP

Prints the samples/s of each epoch over all ranks; the first epoch is a warm-up. No evaluation.
"""

import argparse
import os
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import text_networks
from staged_text import Text


def batches_of(text, model, batch, generator):
    """Rows of each batch over all ranks. Sentences are shuffled, sorted by length in runs of 50 batches, and the
    batches shuffled again, so that little is padding."""
    order = torch.randperm(len(text), generator=generator)
    if model == "seq2seq":
        runs = [run[text.lengths[run].argsort()] for run in order.split(50 * batch)]
        order = torch.cat(runs)
    batches = list(order.split(batch))
    if model == "seq2seq":
        batches = [batches[i] for i in torch.randperm(len(batches), generator=generator)]
    return batches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=text_networks.RECIPES, default="nbow")
    parser.add_argument("--data", required=True, help="a staged dataset's folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="use only so many samples")
    parser.add_argument("--batch", type=int, default=0, help="over all ranks; default: the recipe's")
    parser.add_argument("--coin", choices=("word", "batch", "never"), default="batch", help="of seq2seq: decides between its word and the target's")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recipe = text_networks.RECIPES[arguments.model]
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    if world_size > 1:
        dist.init_process_group("gloo")

    text = Text(arguments.data, arguments.samples)
    network = text_networks.make_network(arguments.model, text, "tuned", arguments.coin)
    model = network
    if world_size > 1:
        static = arguments.model != "seq2seq" or arguments.coin == "never"  # else its graph depends on the coin
        model = DDP(network, gradient_as_bucket_view=True, static_graph=static, broadcast_buffers=False,
                    bucket_cap_mb=100)
    optimizer = text_networks.make_optimizer(arguments.model, network, fused=True)
    batch = arguments.batch or recipe["batch"]
    generator = torch.Generator()

    for epoch in range(1, arguments.epochs + 1):
        generator.manual_seed(epoch)
        random.seed(epoch)
        if world_size > 1:
            dist.barrier()
        start = time.perf_counter()
        batches = [rows for rows in batches_of(text, arguments.model, batch, generator) if len(rows) >= world_size]
        total_loss = torch.zeros(())
        for rows in batches:
            loss = text_networks.loss_of(arguments.model, model, text.batch(rows[rank::world_size]))
            loss.backward()
            if recipe["clip"]:
                torch.nn.utils.clip_grad_norm_(network.parameters(), recipe["clip"], foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total_loss += loss.detach()
        if world_size > 1:
            dist.barrier()
        seconds = time.perf_counter() - start
        samples = sum(len(rows) for rows in batches)
        if rank == 0:
            print(f"epoch={epoch} samples={samples} seconds={seconds:.4f} samples_per_s={samples / seconds:.1f} "
                  f"loss={total_loss.item() / len(batches):.5f}", flush=True)
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
