"""FedAvg and FedProx in Flower's simulation, on the partition of a dtrain run: accuracy on the test split after each round.

    python flower_niid.py RUN START METHOD [--proximal-mu MU] [--order N]      needs `pip install "flwr[simulation]"`, and PyTorch and h5py beside it

RUN, START and what is printed are those of niid_rounds.py, whose local steps the clients make; sampling, weights, mean and the proximal
term's mu are Flower's (flwr.server.strategy.FedAvg and FedProx). The order of a client's samples is this program's own, another one for each N.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from flwr.client import ClientApp, NumPyClient  # noqa: E402
from flwr.common import ndarrays_to_parameters  # noqa: E402
from flwr.server import ServerApp, ServerAppComponents, ServerConfig  # noqa: E402
from flwr.server.strategy import FedAvg, FedProx  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import networks  # noqa: E402
import niid_rounds  # noqa: E402


class Client(NumPyClient):
    def __init__(self, number, samples, options):
        self.number, self.samples, self.options = number, samples, options

    def fit(self, parameters, config):
        torch.set_num_threads(1)
        client = niid_rounds.Client(*self.samples, self.options, config.get("proximal_mu", 0.0))
        weights = torch.from_numpy(parameters[0].copy())
        network = networks.make_network(self.options["model"], seed=1)
        torch.manual_seed(config["seed"] + self.number)  # of the order; the network's seed was another one
        update, _ = client.train(network, weights, None)
        return [(weights + update).numpy()], len(self.samples[1]), {}


class NoneLost:
    """A round of which a client is missing is an error."""

    def aggregate_fit(self, server_round, results, failures):
        if failures:
            raise RuntimeError(f"round {server_round}: {failures[0]}")
        return super().aggregate_fit(server_round, results, failures)


class AllOfFedAvg(NoneLost, FedAvg):
    pass


class AllOfFedProx(NoneLost, FedProx):
    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("method", choices=["fedavg", "fedprox"])
    parser.add_argument("--proximal-mu", type=float, default=0.0)
    parser.add_argument("--order", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options, network, samples, test = niid_rounds.read(arguments.run, arguments.start)

    def evaluate(number, parameters, _):
        if number > 0:
            print(number, f"{niid_rounds.accuracy(network, torch.from_numpy(parameters[0].copy()), test):.4f}", flush=True)

    how = {"fraction_fit": 1.0, "fraction_evaluate": 0.0, "min_fit_clients": len(samples), "min_available_clients": len(samples), "accept_failures": False,
           "initial_parameters": ndarrays_to_parameters([niid_rounds.flat(network).numpy()]), "evaluate_fn": evaluate,
           "on_fit_config_fn": lambda number: {"seed": 10**6 * (arguments.order - 1) + 1000 * number}}
    strategy = AllOfFedAvg(**how) if arguments.method == "fedavg" else AllOfFedProx(proximal_mu=arguments.proximal_mu, **how)

    def client_fn(context):
        number = int(context.node_config["partition-id"])
        return Client(number, samples[number], options).to_client()

    def server_fn(_):
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=options["rounds"]))

    run_simulation(server_app=ServerApp(server_fn=server_fn), client_app=ClientApp(client_fn=client_fn), num_supernodes=len(samples),
                   backend_config={"init_args": {"num_cpus": 1, "include_dashboard": False}, "client_resources": {"num_cpus": 1, "num_gpus": 0}})


if __name__ == "__main__":
    main()
