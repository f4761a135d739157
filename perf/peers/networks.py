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


class Vgg11(nn.Module):
    """torchvision's vgg11_bn with an average pool to one pixel: 28,149,514 parameters for CIFAR-10."""

    def __init__(self, channels=3, classes=10, width=64, hidden=4096, pixels=1):
        super().__init__()
        layers = []
        for times in (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"):
            if times == "M":
                layers += [nn.MaxPool2d(2, 2)]
                continue
            layers += [nn.Conv2d(channels, times * width, 3, padding=1), nn.BatchNorm2d(times * width),
                       nn.ReLU(inplace=True)]
            channels = times * width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(pixels)
        self.classifier = nn.Sequential(nn.Linear(channels * pixels * pixels, hidden), nn.ReLU(inplace=True),
                                        nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(),
                                        nn.Linear(hidden, classes))

    def forward(self, x):  # [n, 3, 32, 32] -> [n, classes]
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + skip)


class ResNet18(nn.Module):
    """torchvision's names, a 3x3 stem without max-pool: 11,173,962 parameters for CIFAR-10."""

    def __init__(self, channels=3, classes=10, width=64, stem="cifar"):
        super().__init__()
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
        else:
            self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        channels = width
        for number, times in enumerate((1, 2, 4, 8), 1):
            out = times * width
            stage = nn.Sequential(BasicBlock(channels, out, 1 if number == 1 else 2), BasicBlock(out, out, 1))
            setattr(self, f"layer{number}", stage)
            channels = out
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):  # [n, 3, 32, 32] -> [n, classes]
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class ConvAutoencoder(nn.Module):
    """Three strided convolutions and their mirror: 47,355 parameters for CIFAR-10; its target is its input."""

    def __init__(self, channels=3, sizes=(12, 24, 48)):
        super().__init__()
        sizes = (channels, *sizes)
        encoder, decoder = [], []
        for inner, outer in zip(sizes, sizes[1:]):
            encoder += [nn.Conv2d(inner, outer, 4, 2, 1), nn.ReLU(inplace=True)]
        for outer, inner in zip(sizes[:0:-1], sizes[-2::-1]):
            decoder += [nn.ConvTranspose2d(outer, inner, 4, 2, 1), nn.ReLU(inplace=True)]
        self.encoder = nn.Sequential(*encoder)
        self.decoder = nn.Sequential(*decoder[:-1], nn.Sigmoid())

    def forward(self, x):  # [n, 3, 32, 32] in [0, 1] -> the same
        return self.decoder(self.encoder(x))


# Sample shape, samples of a synthetic training split, and dtrain's default recipe. Where "own_input" is set the loss is
# the mean squared error against the input, of bytes / 255; otherwise cross-entropy, of normalised images.
RECIPES = {
    "mlp": {"network": Mlp, "shape": (1, 28, 28), "samples": 54000, "batch": 64, "optimizer": "adam",
            "learning_rate": 1e-3, "momentum": 0.0, "weight_decay": 0.0, "one_cycle": False, "own_input": False},
    "cnn": {"network": Cnn, "shape": (3, 32, 32), "samples": 45000, "batch": 64, "optimizer": "sgd",
            "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "one_cycle": True, "own_input": False},
    "vgg11": {"network": Vgg11, "shape": (3, 32, 32), "samples": 1536, "batch": 128, "optimizer": "sgd",
              "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "one_cycle": True, "own_input": False},
    "resnet18": {"network": ResNet18, "shape": (3, 32, 32), "samples": 768, "batch": 128, "optimizer": "sgd",
                 "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "one_cycle": True, "own_input": False},
    "conv_autoencoder": {"network": ConvAutoencoder, "shape": (3, 32, 32), "samples": 20480, "batch": 128,
                         "optimizer": "adam", "learning_rate": 1e-3, "momentum": 0.0, "weight_decay": 0.0,
                         "one_cycle": False, "own_input": True},
}


def loss_of(recipe, outputs, inputs, targets):
    """The mean loss of a batch."""
    return F.mse_loss(outputs, inputs) if recipe["own_input"] else F.cross_entropy(outputs, targets)


def scale_of(recipe, mean, std):
    """What bytes / 255 are normalised with, per channel."""
    return ([0.0] * len(mean), [1.0] * len(std)) if recipe["own_input"] else (mean, std)


def make_network(model, seed):
    """The same initial weights on every rank, as DDP would broadcast them."""
    torch.manual_seed(seed)
    return RECIPES[model]["network"]()
