"""resnet18 on CIFAR-10 in PyTorch DDP over gloo, with all bits or with its PowerSGD hook: the test accuracy after dtrain's recipe.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/compressed_training.py FOLDER --rank 2

FOLDER is the staged dataset. The recipe: sgd with momentum .9 and weight decay 5e-4, one_cycle up to .1, images flipped and cropped. The
order of the samples and the initial weights are this program's own.
"""

import argparse

import numpy
import torch
import torch.distributed as dist
from networks import ResNet18
from staged import read_split
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PADDING = 4


def images_of(folder, name):
    """float32 [N, 3, 32, 32], standardised, and targets."""
    inputs, targets, mean, std = read_split(folder, name)
    scaled = (inputs.astype(numpy.float32) / 255 - numpy.float32(mean).reshape(-1, 1, 1)) / numpy.float32(std).reshape(-1, 1, 1)
    return torch.from_numpy(scaled), torch.from_numpy(targets)


def augmented(images, generator):
    """Each flipped or not, and moved by up to 4 pixels."""
    size = images.shape[-1]
    padded = F.pad(images, [PADDING] * 4)
    moved = torch.empty_like(images)
    for at, (flip, top, left) in enumerate(zip(torch.randint(2, (len(images),), generator=generator).tolist(),
                                               *torch.randint(2 * PADDING + 1, (2, len(images)), generator=generator).tolist())):
        image = padded[at, :, top:top + size, left:left + size]
        moved[at] = image.flip(-1) if flip else image
    return moved


def accuracy_of(network, images, targets):
    network.eval()
    with torch.no_grad():
        right = sum(int((network(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), targets.split(500)))
    return right / len(targets)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rank", type=int, default=0, help="of PowerSGD; 0: all bits")
    parser.add_argument("--after", type=int, default=2, help="steps in all bits before PowerSGD begins; PyTorch wants 2 or more")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128, help="over all ranks")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="end, and let the schedule end, after so many; 0: with the epochs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(arguments.seed)
    network = ResNet18(width=arguments.width).to(memory_format=torch.channels_last)
    model = DDP(network, gradient_as_bucket_view=True, broadcast_buffers=False)
    if arguments.rank:
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=arguments.rank,
                                            start_powerSGD_iter=max(arguments.after, 2))
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    images, targets = images_of(arguments.folder, "train")
    per_epoch = len(targets) // arguments.batch
    steps = min(arguments.steps or per_epoch * arguments.epochs, per_epoch * arguments.epochs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps, cycle_momentum=False)
    order = torch.Generator().manual_seed(arguments.seed)
    moves = torch.Generator().manual_seed(1000 * arguments.seed + rank)
    step = 0
    while step < steps:
        permuted = torch.randperm(len(targets), generator=order)[:per_epoch * arguments.batch]
        for batch in permuted.split(arguments.batch)[:steps - step]:
            mine = batch[rank::ranks]
            loss = F.cross_entropy(model(augmented(images[mine], moves)), targets[mine])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
    if rank == 0:
        print(f"steps={step} test_accuracy={accuracy_of(network, *images_of(arguments.folder, 'test')):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
