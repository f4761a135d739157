"""All figures, in the order of a page: name, title, what the reader sees, and the function that draws it."""

from dataclasses import dataclass
from typing import Callable

from . import comparison, curves, federated, growth, peers, ranks, timeline
from .recording import Nothing


@dataclass
class Picture:
    name: str
    title: str
    caption: str
    draw: Callable


OF_RUN = [
    Picture("loss", "Loss", "The mean over all ranks, smoothed, and each rank lightly behind it; dots are validations. "
            "Vertical lines are losses of ranks, resumptions and changes of the layout.", curves.loss),
    Picture("metrics", "Metrics", "What this model is judged by beside its loss.", curves.metrics),
    Picture("rate_gradient", "Learning rate and gradient",
            "The norm is that of the whole gradient of a step, before clipping.", curves.rate_and_gradient),
    Picture("throughput", "Throughput over time",
            "Gaps are time without training steps: validations, restarts, checkpoints.", curves.throughput),
    Picture("phases", "Where time went, by rank",
            "Warm colours are waiting: for other ranks' gradients or for other stages. A rank with less of them than the "
            "others keeps the others waiting.", ranks.phases),
    Picture("waiting", "Waiting, by rank and step", "Part of each step that a rank waited for others; grey where it recorded "
            "nothing. A light row in a dark map is the rank that the others wait for.", ranks.waiting),
    Picture("timeline", "Some steps, moment by moment",
            "Upper lane of each rank: what its compute thread did. Lower lane: operations of communication, copies and a GPU "
            "beside it.", timeline.timeline),
    Picture("memory", "Memory", "The peak that the operating system or the GPU counted.", ranks.memory),
    Picture("traffic", "Bytes between ranks", "Payload from rank to rank in all epochs; of an epoch that was interrupted what "
            "came after. Of collectives through shared memory, by MPI itself and over NCCL the other ranks count alike.",
            ranks.traffic),
]

OF_RUNS = [
    Picture("losses", "Losses", "By epoch, and by the time that it took.", comparison.losses),
    Picture("scaling", "Speed and scaling", "Dotted: the ideal, the speed per rank of the model's run with the fewest "
            "ranks. More ranks than cores cannot keep it. Where the number of ranks changed, the epochs since then count.", comparison.scaling),
    Picture("phase_shares", "Where time went, by run", "Warm colours are waiting.", comparison.phase_shares),
]

OF_FEDERATED = [
    Picture("rounds", "Rounds", "The loss of the clients' local steps and of the global model's validation; clients that were sampled, and "
            "that handed an update in; how far the mean update moved the model.", federated.rounds),
    Picture("clients", "What clients hold", "Training samples of each, and the share of each class among them.", federated.clients),
    Picture("privacy", "Privacy spent", "What an observer may learn of a record or a client, as far as the ledger goes.", federated.privacy),
]

OF_FEDERATED_RUNS = [
    Picture("owners", "Scores by site or client", "On test samples; of clients that train alone each by its own model.", federated.by_owner),
]

OF_PEERS = [
    Picture("peers", "Beside PyTorch", "Medians of the pairs, and their range, on two ranks of one thread.", peers.speeds),
]

OF_GROWTH = [
    Picture("growth", "What a step costs as it grows", "Medians of the rounds.", growth.growth),
    Picture("checked", "Predicted and measured", "On the line a prediction is right. More ranks than cores share them.", growth.checked),
    Picture("ahead", "Up to 1,024 ranks", "Predicted from the cost of a sample on one rank, the exchange of two ranks and the link.", growth.ahead),
]


def drawn(pictures, subject):
    """(picture, figure, sentence) of each; the figure is None where the sentence says why there is none."""
    for picture in pictures:
        try:
            yield picture, picture.draw(subject), ""
        except Nothing as nothing:
            yield picture, None, str(nothing)
