"""FedAvg in Flower's simulation on the partition of a dtrain run: the weights after its rounds beside dtrain's, and clients per second.

    python flower_rounds.py RUN FIRST       needs `pip install "flwr[simulation]"`, and PyTorch and h5py beside it

RUN is the folder of a finished run of `--strategy fedavg`, mlp on a staged dataset of images, all clients in each round, sgd and
`--local-batch all`, so that the order of a client's samples does not matter, with `--precision fp64` so that no unit of a network
stands so near its kink that rounding decides on which side: in fp32 one such unit of one sample made 3e-6. FIRST is a checkpoint's folder with the weights it began
with, such as that of the same run with --rounds 1 --learning-rate 1e-300. Flower's clients make the same local steps with PyTorch;
its server is flwr's own FedAvg. Prints the largest difference of a weight, which is to be below 1e-6 (1e-4 in fp32), clients per second of both
sides: seconds of rounds on the clock, evaluation and start left out, one process that computes on each side; and the processor
seconds of a client in Flower, of this process and all of Ray's, without the first round.
"""

import argparse
import json
import os
import sys
import time
import tomllib
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from flwr.client import ClientApp, NumPyClient  # noqa: E402
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays  # noqa: E402
from flwr.server import ServerApp, ServerAppComponents, ServerConfig  # noqa: E402
from flwr.server.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/support")]
import networks  # noqa: E402
from dtrain_run import checkpoint_tensors  # noqa: E402

TOLERANCES = {"fp64": 1e-6, "fp32": 1e-4}


def training_samples(folder):
    facts = json.loads((folder / "dataset.json").read_text())
    inputs, targets = [], []
    for shard in facts["splits"]["train"]["shards"]:
        with h5py.File(folder / shard["file"], "r", locking=False) as file:
            inputs.append(file["inputs"][:])
            targets.append(file["targets"][:])
    mean, std = (np.float32(facts[name]).reshape(-1, 1, 1).astype(float) for name in ("mean", "std"))
    return torch.from_numpy((np.concatenate(inputs) / 255 - mean) / std), torch.from_numpy(np.concatenate(targets))


def processor_s():
    """Of this process and of Ray's on this machine, so far."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, stat = (process / "cmdline").read_bytes(), (process / "stat").read_text()
        except OSError:
            continue
        if int(process.name) == os.getpid() or b"ray::" in command or b"/ray/" in command:
            user, system = stat.rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


class Client(NumPyClient):
    def __init__(self, x, y, options):
        dtype = torch.float64 if options["precision"] == "fp64" else torch.float32
        self.x, self.y, self.options = x.to(dtype), y, options
        self.network = networks.make_network("mlp", seed=1).to(dtype)

    def fit(self, parameters, config):
        torch.set_num_threads(1)
        names = list(self.network.state_dict())
        self.network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in zip(names, parameters)})
        optimizer = torch.optim.SGD(self.network.parameters(), lr=self.options["learning-rate"], momentum=self.options.get("momentum", 0))
        criterion = torch.nn.CrossEntropyLoss()
        for _ in range(self.options["local-epochs"]):
            optimizer.zero_grad()
            criterion(self.network(self.x), self.y).backward()
            optimizer.step()
        return [value.numpy() for value in self.network.state_dict().values()], len(self.y), {}


class TimedFedAvg(FedAvg):
    """flwr's, which also keeps what it came to and when each round was handed out and added up."""

    def __init__(self, **how):
        super().__init__(**how)
        self.weights, self.begun_s, self.rounds_s, self.processor_s = None, 0.0, [], []

    def configure_fit(self, *arguments, **how):
        self.begun_s = time.perf_counter()
        return super().configure_fit(*arguments, **how)

    def aggregate_fit(self, server_round, results, failures):
        if failures:
            raise RuntimeError(f"round {server_round}: {failures[0]}")
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        self.weights = parameters_to_ndarrays(parameters)
        self.rounds_s.append(time.perf_counter() - self.begun_s)
        self.processor_s.append(processor_s())
        return parameters, metrics


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("first", type=Path)
    arguments = parser.parse_args()
    with h5py.File(arguments.run / "results.h5", "r", locking=False) as file:
        options = tomllib.loads(bytes(file.attrs["config"]).decode())
        owners, clients = file["client_of_sample"][:], len(file["clients"])
        seconds = file["epochs"]["train_time_s"][:]
    if options.get("local-batch") != "all" or "clients-per-round" in options:
        parser.error(f"{arguments.run}: needs --local-batch all, and all clients in each round")
    rounds = len(seconds)
    x, y = training_samples(Path(options.get("data-root", ".")) / options["dataset"])
    parts = [np.flatnonzero(owners == client) for client in range(clients)]
    first, last = checkpoint_tensors(arguments.first), checkpoint_tensors(arguments.run / "checkpoints/last")
    names = list(networks.make_network("mlp", seed=1).state_dict())
    strategy = TimedFedAvg(fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=clients, min_available_clients=clients,
                           accept_failures=False, initial_parameters=ndarrays_to_parameters([first[name] for name in names]))

    def client_fn(context):
        mine = parts[int(context.node_config["partition-id"])]
        return Client(x[mine], y[mine], options).to_client()

    def server_fn(_):
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    run_simulation(server_app=ServerApp(server_fn=server_fn), client_app=ClientApp(client_fn=client_fn), num_supernodes=clients,
                   backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1, "num_gpus": 0}})
    difference = max(np.abs(value - last[name]).max() for name, value in zip(names, strategy.weights))
    moved = max(np.abs(last[name] - first[name]).max() for name in names)
    print(f"{clients} clients, {rounds} rounds: largest difference of a weight {difference:.2e}, largest change {moved:.2e}")
    for who, spent in (("flower", strategy.rounds_s), ("dtrain", seconds)):
        if rounds > 1:
            print(f"{who}: clients_per_s={clients * (rounds - 1) / sum(spent[1:]):.1f} (without the first round)")
    if rounds > 1:
        print(f"flower: cpu_s_per_client={(strategy.processor_s[-1] - strategy.processor_s[0]) / clients / (rounds - 1):.6f} (without the first round)")
    return 0 if difference < TOLERANCES[options["precision"]] else 1


if __name__ == "__main__":
    sys.exit(main())
