"""DistributedDataParallel with a DataLoader and a DistributedSampler on text, the way PyTorch's tutorials write it.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/text_tutorial.py --model nbow --data FOLDER

Prints the samples/s of each epoch over all ranks; the first epoch is a warm-up. No evaluation.
"""

import argparse
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import text_networks
from staged_text import Text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=text_networks.RECIPES, default="nbow")
    parser.add_argument("--data", required=True, help="a staged dataset's folder")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=0, help="use only so many samples")
    parser.add_argument("--batch", type=int, default=0, help="over all ranks; default: the recipe's")
    arguments = parser.parse_args()
    recipe = text_networks.RECIPES[arguments.model]
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    text = Text(arguments.data, arguments.samples)
    sampler = DistributedSampler(range(len(text)), shuffle=True)
    batch = (arguments.batch or recipe["batch"]) // world_size
    loader = DataLoader(range(len(text)), batch_size=batch, sampler=sampler,
                        collate_fn=lambda rows: text.batch(torch.tensor(rows)))
    model = DDP(text_networks.make_network(arguments.model, text, "tutorial"))
    optimizer = text_networks.make_optimizer(arguments.model, model, fused=None)

    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        random.seed(epoch)
        dist.barrier()
        start = time.perf_counter()
        running_loss = 0.0
        for rows in loader:
            optimizer.zero_grad()
            loss = text_networks.loss_of(arguments.model, model, rows)
            loss.backward()
            if recipe["clip"]:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip"])
            optimizer.step()
            running_loss += loss.item()
        dist.barrier()
        seconds = time.perf_counter() - start
        if rank == 0:
            print(f"epoch={epoch} samples={len(text)} seconds={seconds:.4f} samples_per_s={len(text) / seconds:.1f} "
                  f"loss={running_loss / len(loader):.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
