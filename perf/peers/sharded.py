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

import text_networks
from networks import RECIPES, loss_of, make_network

LETTERS = 65  # gpt's vocabulary: text read letter by letter, 256 letters a block


def task_of(model, samples):
    """The network on random data, with the loss of its one batch as a function of the wrapped network."""
    if model == "gpt":
        torch.manual_seed(1)
        network = text_networks.Gpt(LETTERS)
        batch = torch.randint(LETTERS, (samples, 256)), torch.randint(LETTERS, (samples, 256))
        return network, lambda wrapped: text_networks.loss_of("gpt", wrapped, batch)
    recipe = RECIPES[model]
    inputs, targets = torch.randn(samples, *recipe["shape"]), torch.randint(10, (samples,))
    return make_network(model, seed=1), lambda wrapped: loss_of(recipe, wrapped(inputs), inputs, targets)


def wrapped(network, way, rank):
    """The network as PyTorch runs it on several ranks."""
    if way == "fsdp2":
        parts = network.transformer["h"] if hasattr(network, "transformer") else network.children()
        for child in parts:
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
    parser.add_argument("--model", choices=[*RECIPES, "gpt"], default="resnet18")
    parser.add_argument("--way", choices=["ddp", "fsdp2", "ddp-powersgd", "ddp-fp16"], default="ddp")
    parser.add_argument("--rank", type=int, default=2, help="of PowerSGD")
    parser.add_argument("--batch", type=int, default=32, help="over all ranks")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    network, loss_of_batch = task_of(arguments.model, arguments.batch // dist.get_world_size())
    model = wrapped(network, arguments.way, arguments.rank)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    wall, cpu = [], []
    for _ in range(arguments.steps):
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        loss_of_batch(model).backward()
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
