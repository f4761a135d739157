"""DistributedDataParallel with a DataLoader and a DistributedSampler, the way PyTorch's tutorials write it.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 perf/peers/ddp_tutorial.py --model mlp --data FOLDER

Prints the samples/s of each epoch over all ranks; the first epoch is a warm-up. No evaluation.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from networks import RECIPES, loss_of, make_network, scale_of
from staged import training_split


class ImageDataset(Dataset):
    def __init__(self, images, labels, mean, std):
        self.images = torch.from_numpy(images)
        self.labels = labels
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if image.dtype == torch.uint8:
            image = image.float() / 255
        return (image - self.mean) / self.std, int(self.labels[index])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=RECIPES, default="mlp")
    parser.add_argument("--data", help="a staged dataset's folder; synthetic data without it")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=0, help="use only so many samples")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    images, labels, mean, std = training_split(arguments.data, recipe["shape"], recipe["samples"])
    if arguments.samples:
        images, labels = images[:arguments.samples], labels[:arguments.samples]
    dataset = ImageDataset(images, labels, *scale_of(recipe, mean, std))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=recipe["batch"] // world_size, sampler=sampler)

    model = DDP(make_network(arguments.model, seed=1))
    if recipe["optimizer"] == "adam":
        optimizer = optim.Adam(model.parameters(), lr=recipe["learning_rate"])
    else:
        optimizer = optim.SGD(model.parameters(), lr=recipe["learning_rate"], momentum=recipe["momentum"],
                              weight_decay=recipe["weight_decay"])
    scheduler = None
    if recipe["one_cycle"]:
        scheduler = optim.lr_scheduler.OneCycleLR(optimizer, recipe["learning_rate"],
                                                  total_steps=arguments.epochs * len(loader))

    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        dist.barrier()
        start = time.perf_counter()
        running_loss = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_of(recipe, model(inputs), inputs, targets)
            loss.backward()
            optimizer.step()
            if scheduler:
                scheduler.step()
            running_loss += loss.item()
        dist.barrier()
        seconds = time.perf_counter() - start
        if rank == 0:
            print(f"epoch={epoch} samples={len(dataset)} seconds={seconds:.4f} "
                  f"samples_per_s={len(dataset) / seconds:.1f} loss={running_loss / len(loader):.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
