"""The networks of the comparison, written as PyTorch users write them; parameter names as in dtrain's checkpoints."""

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """784-250-100-10 with ReLU: 222,360 parameters for MNIST."""

    def __init__(self, features=784, classes=10):
        super().__init__()
        self.input_fc = nn.Linear(features, 250)
        self.hidden_fc = nn.Linear(250, 100)
        self.output_fc = nn.Linear(100, classes)

    def forward(self, x):  # [n, ...] -> [n, classes]
        x = x.flatten(1)
        x = F.relu(self.input_fc(x))
        x = F.relu(self.hidden_fc(x))
        return self.output_fc(x)


class Cnn(nn.Module):
    """Two 5x5 convolutions with pooling and three linear layers: 62,006 parameters for CIFAR-10."""

    def __init__(self, channels=3, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):  # [n, 3, 32, 32] -> [n, classes]
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.flatten(1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


# Sample shape, samples of a synthetic training split (as many as the staged dataset's), and dtrain's default recipe.
RECIPES = {
    "mlp": {"network": Mlp, "shape": (1, 28, 28), "samples": 54000, "batch": 64, "optimizer": "adam",
            "learning_rate": 1e-3, "momentum": 0.0, "weight_decay": 0.0, "one_cycle": False},
    "cnn": {"network": Cnn, "shape": (3, 32, 32), "samples": 45000, "batch": 64, "optimizer": "sgd",
            "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "one_cycle": True},
}


def make_network(model, seed):
    """The same initial weights on every rank, as DDP would broadcast them."""
    torch.manual_seed(seed)
    return RECIPES[model]["network"]()
