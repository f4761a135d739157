"""FedAvg, FedProx, SCAFFOLD and FedNova as loops in PyTorch, on the partition of a dtrain run: accuracy on the test split after each round.

    python niid_rounds.py RUN START METHOD [--proximal-mu MU] [--order N]

RUN is the folder of a run of `--strategy fedavg`, mlp or cnn on a staged dataset of images, all clients in each round, plain sgd. START is the
.h5 file with the weights it began with (`--init-from`). The order of a client's samples is this program's own, another one for each N; with
`--local-batch all` none matters. Prints a line for each round: `round accuracy`.
"""

import argparse
import json
import tomllib
from pathlib import Path

import h5py
import numpy as np
import torch

import networks


def split(folder, facts, name):
    inputs, targets = [], []
    for shard in facts["splits"][name]["shards"]:
        with h5py.File(folder / shard["file"], "r", locking=False) as file:
            inputs.append(file["inputs"][:])
            targets.append(file["targets"][:])
    mean, std = (np.float32(facts[key]).reshape(-1, 1, 1) for key in ("mean", "std"))
    return torch.from_numpy((np.concatenate(inputs).astype(np.float32) / 255 - mean) / std), torch.from_numpy(np.concatenate(targets))


def flat(network):
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().clone()


class Client:
    def __init__(self, x, y, options, mu):
        self.x, self.y, self.options, self.mu = x, y, options, mu
        self.control = None

    def steps(self):
        """The samples of each local step."""
        batch = len(self.y) if self.options["local-batch"] == "all" else int(self.options["local-batch"])
        for _ in range(self.options["local-epochs"]):
            yield from torch.randperm(len(self.y)).split(batch)

    def train(self, network, weights, server_control):
        """Its update, and how many local steps it has made."""
        torch.nn.utils.vector_to_parameters(weights.clone(), network.parameters())
        rate, count = self.options["learning-rate"], 0
        for mine in self.steps():
            loss = torch.nn.functional.cross_entropy(network(self.x[mine]), self.y[mine])
            gradients = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.parameters()))])
            now = flat(network)
            gradients += self.mu * (now - weights)
            if server_control is not None:
                gradients += server_control - self.control
            torch.nn.utils.vector_to_parameters(now - rate * gradients, network.parameters())
            count += 1
        return flat(network) - weights, count


def run_round(method, network, weights, clients, control, rate):
    """The weights after a round; `control` is changed in place."""
    share = [len(client.y) / sum(len(other.y) for other in clients) for client in clients]
    updates = [client.train(network, weights, control) for client in clients]
    if method == "fednova":
        mean_steps = sum(p * count for p, (_, count) in zip(share, updates))
        return weights + mean_steps * sum(p * update / count for p, (update, count) in zip(share, updates))
    if method == "scaffold":
        before = control.clone()
        for client, (update, count) in zip(clients, updates):  # option II
            changed = client.control - before - update / (count * rate)
            control += (changed - client.control) / len(clients)
            client.control = changed
    return weights + sum(p * update for p, (update, _) in zip(share, updates))


def read(run, start):
    """What a dtrain run has trained: its options, its network with the weights of START, each client's samples, and those of the test split."""
    with h5py.File(run / "results.h5", "r", locking=False) as file:
        options = tomllib.loads(bytes(file.attrs["config"]).decode())
        owners, count = torch.from_numpy(file["client_of_sample"][:]), len(file["clients"])
    folder = Path(options["data-root"]) / options["dataset"]
    facts = json.loads((folder / "dataset.json").read_text())
    x, y = split(folder, facts, "train")
    network = networks.make_network(options["model"], seed=1)
    with h5py.File(start, "r") as file:
        network.load_state_dict({name: torch.from_numpy(file[f"model/{name}"][:]) for name in network.state_dict()})
    return options, network, [(x[owners == k], y[owners == k]) for k in range(count)], split(folder, facts, "test")


def accuracy(network, weights, test):
    torch.nn.utils.vector_to_parameters(weights, network.parameters())
    with torch.no_grad():
        return (network(test[0]).argmax(1) == test[1]).double().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("method", choices=["fedavg", "fedprox", "scaffold", "fednova"])
    parser.add_argument("--proximal-mu", type=float, default=0.0)
    parser.add_argument("--order", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options, network, samples, test = read(arguments.run, arguments.start)
    weights = flat(network)
    if arguments.order is not None:
        torch.manual_seed(arguments.order)
    clients = [Client(x, y, options, arguments.proximal_mu) for x, y in samples]
    control = torch.zeros_like(weights) if arguments.method == "scaffold" else None
    for client in clients:
        client.control = None if control is None else torch.zeros_like(weights)
    for number in range(1, options["rounds"] + 1):
        weights = run_round(arguments.method, network, weights, clients, control, options["learning-rate"])
        print(number, f"{accuracy(network, weights, test):.4f}", flush=True)


if __name__ == "__main__":
    main()
