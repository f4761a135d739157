"""PyTorch's own ways to shard a model and to compress gradients, on CPUs over gloo: FSDP2, and DDP with its PowerSGD and fp16 hooks.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/sharded.py --model resnet18 --way fsdp2

Prints of each rank the wall and CPU seconds of a step, in the median, and the most memory that the process has had.
"""

import argparse
import resource
import statistics
import time

import torch
import torch.distributed as dist
from torch import optim
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from networks import RECIPES, loss_of, make_network


def wrapped(network, way, rank):
    """The network as PyTorch runs it on several ranks."""
    if way == "fsdp2":
        for child in network.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
        return fully_shard(network)
    model = DDP(network, gradient_as_bucket_view=True, broadcast_buffers=False)
    if way == "ddp-powersgd":
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif way == "ddp-fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=RECIPES, default="resnet18")
    parser.add_argument("--way", choices=["ddp", "fsdp2", "ddp-powersgd", "ddp-fp16"], default="ddp")
    parser.add_argument("--rank", type=int, default=2, help="of PowerSGD")
    parser.add_argument("--batch", type=int, default=0, help="over all ranks; default: the recipe's")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    samples = (arguments.batch or recipe["batch"]) // dist.get_world_size()
    network = make_network(arguments.model, seed=1)
    inputs = torch.randn(samples, *recipe["shape"])
    targets = torch.randint(10, (samples,))
    model = wrapped(network, arguments.way, arguments.rank)
    optimizer = optim.Adam(model.parameters(), lr=recipe["learning_rate"])
    wall, cpu = [], []
    for _ in range(arguments.steps):
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        loss_of(recipe, model(inputs), inputs, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"rank={dist.get_rank()} way={arguments.way} step_s={statistics.median(wall):.4f} cpu_s={statistics.median(cpu):.4f} "
          f"peak_bytes={peak}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
