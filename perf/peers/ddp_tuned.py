"""PyTorch as fast as its own means allow: all data normalised in memory, permuted once an epoch and sliced; fused
optimizer; DDP with gradient views, a static graph and one bucket; channels-last convolutions; no .item() in the loop.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/ddp_tuned.py --model mlp --data FOLDER
    python perf/peers/ddp_tuned.py --model mlp --threads 2 --data FOLDER       # one process, without DDP

Prints the samples/s of each epoch over all ranks; the first epoch is a warm-up. No evaluation.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import optim
from torch.nn.parallel import DistributedDataParallel as DDP

from networks import RECIPES, loss_of, make_network, scale_of
from staged import training_split


def normalised(images, mean, std):
    """float32 [N, C, H, W]: bytes / 255, then (x - mean) / std."""
    x = torch.from_numpy(images)
    x = x.float().div_(255) if x.dtype == torch.uint8 else x.clone()
    return x.sub_(torch.tensor(mean).view(-1, 1, 1)).div_(torch.tensor(std).view(-1, 1, 1))


def make_optimizer(recipe, parameters, steps, variant):
    kind = {"fused": variant == "fused", "foreach": variant == "foreach"}
    if recipe["optimizer"] == "adam":
        optimizer = optim.Adam(parameters, lr=recipe["learning_rate"], **kind)
    else:
        optimizer = optim.SGD(parameters, lr=recipe["learning_rate"], momentum=recipe["momentum"],
                              weight_decay=recipe["weight_decay"], **kind)
    if not recipe["one_cycle"]:
        return optimizer, None
    return optimizer, optim.lr_scheduler.OneCycleLR(optimizer, recipe["learning_rate"], total_steps=steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=RECIPES, default="mlp")
    parser.add_argument("--data", help="a staged dataset's folder; synthetic data without it")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="use only so many samples")
    parser.add_argument("--batch", type=int, default=0, help="over all ranks; default: the recipe's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--optimizer-variant", choices=["fused", "foreach", "plain"], default="fused")
    parser.add_argument("--batches", choices=["sliced", "gathered"], default="sliced",
                        help="slices of the epoch's permuted copy, or index_select in each step")
    parser.add_argument("--memory-format", choices=["auto", "contiguous", "channels_last"], default="auto")
    parser.add_argument("--zero", choices=["none", "fill"], default="none", help="gradients between steps")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]
    torch.set_num_threads(arguments.threads)

    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    if world_size > 1:
        dist.init_process_group("gloo")

    images, labels, mean, std = training_split(arguments.data, recipe["shape"], recipe["samples"])
    if arguments.samples:
        images, labels = images[:arguments.samples], labels[:arguments.samples]
    inputs, targets = normalised(images, *scale_of(recipe, mean, std)), torch.from_numpy(labels)
    del images

    network = make_network(arguments.model, seed=1)
    channels_last = arguments.memory_format == "channels_last" or (
        arguments.memory_format == "auto" and arguments.model != "mlp")
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    if arguments.compile:
        network = torch.compile(network)
    model = network
    if world_size > 1:
        model = DDP(network, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False,
                    bucket_cap_mb=100)

    samples = len(inputs)
    batch = (arguments.batch or recipe["batch"]) // world_size
    mine = samples // world_size  # a remainder below the number of ranks is left out, in PyTorch's favour
    steps = -(-mine // batch)
    optimizer, scheduler = make_optimizer(recipe, model.parameters(), arguments.epochs * steps,
                                          arguments.optimizer_variant)
    shuffle = torch.Generator()

    for epoch in range(1, arguments.epochs + 1):
        if world_size > 1:
            dist.barrier()
        start = time.perf_counter()
        shuffle.manual_seed(epoch)
        order = torch.randperm(samples, generator=shuffle)[rank:mine * world_size:world_size]
        sliced = arguments.batches == "sliced"
        if sliced:
            epoch_inputs, epoch_targets = inputs.index_select(0, order), targets.index_select(0, order)
        total_loss = torch.zeros(())
        for first in range(0, mine, batch):
            if sliced:
                x, y = epoch_inputs[first:first + batch], epoch_targets[first:first + batch]
            else:
                rows = order[first:first + batch]
                x, y = inputs.index_select(0, rows), targets.index_select(0, rows)
            loss = loss_of(recipe, model(x), x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=arguments.zero == "none")
            if scheduler:
                scheduler.step()
            total_loss += loss.detach()
        if world_size > 1:
            dist.barrier()
        seconds = time.perf_counter() - start
        if rank == 0:
            print(f"epoch={epoch} samples={mine * world_size} seconds={seconds:.4f} "
                  f"samples_per_s={mine * world_size / seconds:.1f} loss={total_loss.item() / steps:.5f}", flush=True)
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
