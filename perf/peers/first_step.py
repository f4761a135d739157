"""One training step of DistributedDataParallel, then the end: what torchrun needs from the command to the first step.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/first_step.py --model mlp --data FOLDER

Rank 0 prints first_step_at=SECONDS, the Unix time at which the first update was complete.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import optim
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from networks import RECIPES, make_network
from staged import training_split


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=RECIPES, default="mlp")
    parser.add_argument("--data", help="a staged dataset's folder; synthetic data without it")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]
    dist.init_process_group("gloo")
    images, labels, _, _ = training_split(arguments.data, recipe["shape"], recipe["samples"])
    batch = recipe["batch"] // dist.get_world_size()
    first = dist.get_rank() * batch
    inputs = torch.from_numpy(images[first:first + batch]).float() / 255
    model = DDP(make_network(arguments.model, seed=1))
    optimizer = optim.SGD(model.parameters(), lr=recipe["learning_rate"])
    F.cross_entropy(model(inputs), torch.from_numpy(labels[first:first + batch])).backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"first_step_at={time.time():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
