"""Figures of federated runs: rounds, what clients hold, how they and the sites fare, and epsilon."""

import h5py
import numpy as np

from . import style
from .recording import Nothing, rows_of

MOST_CLIENTS = 40  # with a name or number of their own along an axis
SCORES = [("accuracy", "accuracy"), ("f1", "F1"), ("auc", "AUC")]


def table(run, name):
    """A table of results.h5; None where the run has none."""
    with h5py.File(run.folder / "results.h5", "r", locking=False) as file:
        return rows_of(file[name]) if name in file else None


def needed(run, name, what):
    found = table(run, name)
    if found is None or len(found) == 0:
        raise Nothing(f"{run.name} has no {what}: /{name} is not in its results.h5")
    return found


def owners(run):
    """Names and scores on test samples of clients that are sites, else of the sites, else of clients by number."""
    clients, sites = table(run, "test_clients"), table(run, "test_sites")
    if clients is not None and len(clients) and clients["name"][0]:
        return [name.decode() for name in clients["name"]], clients
    if sites is not None and len(sites):
        return [name.decode() for name in sites["site"]], sites
    if clients is not None and len(clients):
        return [str(number) for number in clients["client"]], clients
    raise Nothing(f"{run.name} has no scores of sites or clients")


def spread(scores, column="accuracy"):
    """Worst, median, best, mean and standard deviation over the owners, each counting alike."""
    known = scores[column][np.isfinite(scores[column])]
    if not len(known):
        return None
    return {"worst": known.min(), "median": float(np.median(known)), "best": known.max(), "mean": known.mean(), "deviation": known.std()}


def rounds(run):
    rows = needed(run, "rounds", "rounds")
    figure, (loss, clients, norm) = style.figure(columns=3)
    epochs = run.epochs
    loss.plot(epochs["epoch"], epochs["train_loss"], color=style.TRAIN, label="local steps")
    if np.isfinite(epochs["validation_loss"]).any():
        loss.plot(epochs["epoch"], epochs["validation_loss"], color=style.VALIDATION, label="validation")
    loss.set(title="Loss", xlabel="round")
    loss.legend()
    clients.step(rows["round"], rows["sampled"], where="mid", color=style.LIGHT, label="sampled")
    clients.step(rows["round"], rows["handed_in"], where="mid", color=style.TRAIN, label="handed in")
    clients.set(title="Clients", xlabel="round", ylim=(0, None))
    clients.legend()
    norm.plot(rows["round"], rows["update_norm"], color=style.TRAIN)
    norm.set(title="Norm of the mean update", xlabel="round", ylim=(0, None))
    for axes in (loss, clients, norm):
        style.whole_numbers(axes.xaxis)
    style.whole_numbers(clients.yaxis)
    return figure


def clients(run):
    rows = needed(run, "clients", "clients")
    classes = table(run, "client_classes")
    figure, axes = style.figure(columns=1 if classes is None else 2)
    sizes = axes if classes is None else axes[0]
    names = [row["name"].decode() or str(row["client"]) for row in rows]
    sizes.bar(np.arange(len(rows)), rows["samples"], color=style.TRAIN)
    sizes.set(title="Training samples", xlabel="client")
    if len(rows) <= MOST_CLIENTS:
        sizes.set_xticks(np.arange(len(rows)), list(map(style.plain, names)), rotation=90 if max(map(len, names)) > 3 else 0)
    if classes is not None:
        shares = classes / np.maximum(classes.sum(axis=1, keepdims=True), 1)
        image = axes[1].imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes[1].set(title="Share of each class", xlabel="class", ylabel="client")
        axes[1].grid(False)
        style.whole_numbers(axes[1].xaxis)
        style.whole_numbers(axes[1].yaxis)
        figure.colorbar(image, ax=axes[1])
    return figure


def by_owner(runs):
    """Bars by site or client, one colour for each run."""
    found = []
    for run in runs:
        try:
            found.append((run, *owners(run)))
        except Nothing:
            continue
    if not found:
        raise Nothing("none of the runs has scores of sites or clients")
    order = list(dict.fromkeys(name for _, names, _ in found for name in names))
    if len(order) > MOST_CLIENTS:
        return by_rank(found)
    scores = [(column, title) for column, title in SCORES if any(np.isfinite(rows[column]).any() for _, _, rows in found)]
    figure, axes = style.figure(rows=len(scores), height=2.8 * len(scores))
    width = 0.8 / len(found)
    for axis, (column, title) in zip(np.atleast_1d(axes), scores):
        for number, (run, names, rows) in enumerate(found):
            places = np.array([order.index(name) for name in names])
            axis.bar(places + width * (number - (len(found) - 1) / 2), rows[column], width, label=style.plain(run.name),
                     color=style.RUN_COLOURS[number % len(style.RUN_COLOURS)])
        axis.set_xticks(np.arange(len(order)), list(map(style.plain, order)))
        axis.set(title=f"Test {title}")
    np.atleast_1d(axes)[0].legend(ncols=2)
    return figure


def by_rank(found):
    """Many clients: the accuracy of each run's from the worst to the best."""
    figure, axes = style.figure()
    for number, (run, _, rows) in enumerate(found):
        known = np.sort(rows["accuracy"][np.isfinite(rows["accuracy"])])
        axes.plot(np.linspace(0, 1, len(known)), known, label=style.plain(run.name), color=style.RUN_COLOURS[number % len(style.RUN_COLOURS)])
    axes.set(title="Test accuracy", xlabel="share of the clients, from the worst", ylim=(None, 1))
    axes.legend()
    return figure


def privacy(run):
    rows = needed(run, "privacy", "account of differential privacy")
    figure, axes = style.figure(height=3.0)
    axes.plot(rows["epoch"], rows["epsilon"], color=style.TRAIN)
    axes.set(title=f"Epsilon at delta {rows['delta'][-1]:g}", xlabel="epoch or round", ylim=(0, None))
    style.whole_numbers(axes.xaxis)
    return figure
