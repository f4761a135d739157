"""Times torch.distributed's all_reduce over gloo for the sizes of perf/comm/all_reduce_bench.cpp.

    torchrun --standalone --nproc-per-node 2 perf/peers/gloo_all_reduce.py [--rounds 7] [--seconds 0.1]

Prints the same CSV columns; the time is that of the slowest rank, the iterations are agreed.
"""
import argparse
import time

import torch
import torch.distributed as dist


def timed(values, iterations):
    """Seconds per all_reduce, the slowest rank's."""
    for _ in range(2):
        dist.all_reduce(values)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(values)
    seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item() / iterations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--sizes", default="4096,262144,4194304,37748736")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print("# torch", torch.__version__, "gloo")
        print("bytes,contender,mode,ranks,nodes,round,iterations,microseconds,bus_gb_per_s")
    for size in (int(item) for item in options.sizes.split(",")):
        values = torch.full((size // 4,), float(rank + 1))
        dist.all_reduce(values)
        assert torch.all(values == ranks * (ranks + 1) / 2), "wrong sums"
        values.zero_()
        wanted = torch.tensor([max(3, int(options.seconds / timed(values, 3)))])
        dist.all_reduce(wanted, op=dist.ReduceOp.MAX)
        iterations = int(wanted.item())
        for step in range(options.rounds):
            seconds = timed(values, iterations)
            bus = 2 * (ranks - 1) / ranks * size / seconds * 1e-9
            if rank == 0:
                print(f"{size},gloo,repeated,{ranks},1,{step},{iterations},{seconds * 1e6:.4f},{bus:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
