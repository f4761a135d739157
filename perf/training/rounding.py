"""How fast rounding grows in training: torchvision's resnet18 in fp64, with and without noise on its convolutions.

Each line: the noise in units of an output's standard deviation (fp32: a run in fp32 without noise), the step, by how much its
loss differs, and the largest relative difference of a parameter after it. A value that noise moves across 0 switches a ReLU:
at the first one, differences jump from the size of the noise to thousandths.

    python perf/training/rounding.py [--steps 4]
"""

import argparse
import copy

import torch
import torchvision

RATE = 0.02
BATCH = 64
LEVELS = {"fp32": (torch.float32, 0.0), "1e-7": (torch.float64, 1e-7), "1e-6": (torch.float64, 1e-6), "1e-5": (torch.float64, 1e-5)}


def train(first, inputs, targets, steps, dtype, noise):
    """Loss and parameters of each step."""
    model = copy.deepcopy(first).to(dtype).train()
    generator = torch.Generator().manual_seed(5)

    def disturb(_module, _inputs, output):
        return output + noise * output.std().detach() * torch.randn(output.shape, generator=generator, dtype=dtype)

    for module in model.modules():
        if noise and isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(disturb)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs.to(dtype)), targets)
        loss.backward()
        optimizer.step()
        yield loss.item(), {name: value.detach().double().clone() for name, value in model.named_parameters()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first = torchvision.models.resnet18(num_classes=10)
    inputs, targets = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    exact = list(train(first, inputs, targets, steps, torch.float64, 0.0))
    print("noise step loss parameter name")
    for name, (dtype, noise) in LEVELS.items():
        for step, (loss, values) in enumerate(train(first, inputs, targets, steps, dtype, noise)):
            true_loss, true_values = exact[step]
            differences = {key: float((values[key] - true).norm() / true.norm()) for key, true in true_values.items()}
            worst = max(differences, key=differences.get)
            print(f"{name} {step + 1} {loss - true_loss:.1e} {differences[worst]:.1e} {worst}")


if __name__ == "__main__":
    main()
