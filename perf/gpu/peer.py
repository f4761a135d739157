"""PyTorch's side of one case: makes the network once, then measures a round for each line that it reads.

    echo again | python perf/gpu/peer.py --model resnet18 --batch 128 --precision bf16 --device cuda [--compile MODE]

Prints one line of JSON when it has warmed up, and one per round with the seconds of a step: `copied`, with the batch copied from
pinned memory in each step, and `resident`, with the batch on the device already. Convolutions are channels-last, the optimizer
is fused, no loss is read. fp32 is without TF32, and cuDNN tries its algorithms, both as dtrain has it.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import ddp_tuned  # noqa: E402
import networks  # noqa: E402
import text_networks  # noqa: E402

BATCHES = 4  # different ones, taken in turn
SCHEDULED_STEPS = 1_000_000  # more than there will be


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["gpt", *networks.RECIPES], required=True)
    parser.add_argument("--sizes", type=json.loads, default={}, help="JSON: of the network, by the name of its argument")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--compile", metavar="MODE", help="torch.compile the network and its loss: default, or reduce-overhead (CUDA graphs)")
    parser.add_argument("--threads", type=int, default=0, help="on the CPU; 0: as many as PyTorch takes")
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--stretches", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="of a stretch")
    return parser.parse_args()


class Images:
    """A network of networks.py with its recipe, and batches of floats."""

    def __init__(self, model, sizes):
        self.recipe = networks.RECIPES[model]
        self.network = self.recipe["network"](**sizes)

    def optimizer(self):
        return ddp_tuned.make_optimizer(self.recipe, self.network.parameters(), SCHEDULED_STEPS, "fused")

    def batch(self, size):
        images = torch.rand(size, *self.recipe["shape"]).contiguous(memory_format=torch.channels_last)
        return [images, torch.randint(0, 10, (size,))]

    def loss(self, images, targets):
        return networks.loss_of(self.recipe, self.network(images), images, targets)

    def clip(self):
        """Its recipe does not."""


class Text:
    """gpt, and batches of ids."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.network = text_networks.Gpt(**sizes)

    def optimizer(self):
        return text_networks.make_optimizer("gpt", self.network, fused=True), None

    def batch(self, size):
        shape = (size, self.sizes["block"])
        return [torch.randint(0, self.sizes["vocabulary"], shape), torch.randint(0, self.sizes["vocabulary"], shape)]

    def loss(self, ids, targets):
        return text_networks.loss_of("gpt", self.network, (ids, targets))

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), text_networks.RECIPES["gpt"]["clip"], foreach=True)


class Training:
    def __init__(self, arguments):
        self.device = torch.device(arguments.device)
        torch.manual_seed(1)
        self.side = Text(arguments.sizes) if arguments.model == "gpt" else Images(arguments.model, arguments.sizes)
        channels_last = {"memory_format": torch.channels_last} if arguments.model != "gpt" else {}
        self.side.network.to(self.device, **channels_last)
        self.optimizer, self.scheduler = self.side.optimizer()
        self.loss = torch.compile(self.side.loss, mode=arguments.compile) if arguments.compile else self.side.loss
        self.half = arguments.precision == "bf16"
        batches = [self.side.batch(arguments.batch) for _ in range(BATCHES)]
        pinned = self.device.type == "cuda"
        self.host = [[array.pin_memory() if pinned else array for array in batch] for batch in batches]
        self.resident = [self.to_device(batch) for batch in batches]
        self.taken = 0

    def to_device(self, batch):
        # On the CPU a copy all the same, so that this way is used wherever there is no GPU.
        return [array.to(self.device, non_blocking=True, copy=True) for array in batch]

    def step(self, copied):
        self.taken += 1
        torch.compiler.cudagraph_mark_step_begin()  # its graphs may write over the last step's values; else without effect
        batch = self.to_device(self.host[self.taken % BATCHES]) if copied else self.resident[self.taken % BATCHES]
        with torch.autocast(self.device.type, torch.bfloat16) if self.half else contextlib.nullcontext():
            loss = self.loss(*batch)
        loss.backward()
        self.side.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.scheduler:
            self.scheduler.step()

    def stretch_s(self, steps, copied):
        """Seconds per step, until the device has done the last one."""
        self.wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step(copied)
        self.wait()
        return (time.perf_counter() - start) / steps

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def round(self, stretches, steps):
        seconds = {}
        for name, copied in (("copied", True), ("resident", False)):
            self.stretch_s(min(steps, 3), copied)  # takes back the memory that was given away after the last round
            seconds[name] = statistics.median(self.stretch_s(steps, copied) for _ in range(stretches))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # dtrain runs beside it
        return seconds


def say(facts):
    print(json.dumps(facts), flush=True)


def main():
    arguments = parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    training = Training(arguments)
    for copied in (True, False):
        training.stretch_s(max(1, arguments.warm_up // 2), copied)
    if arguments.device == "cuda":
        torch.cuda.empty_cache()
    say({"torch": torch.__version__, "parameters": sum(parameter.numel() for parameter in training.side.network.parameters())})
    for _ in sys.stdin:
        say(training.round(arguments.stretches, arguments.steps))


if __name__ == "__main__":
    main()
