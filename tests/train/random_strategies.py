"""Runs of strategies other than `ddp` drawn by chance, and for each the plainest run that must have the same results."""

import random

from random_cases import (DATASETS, LIMIT_S, PLAIN, Case, draw, draw_batch, draw_how, draw_model, mesh_words, meshes_of, update_rule)
from random_networks import build, draw_networks

CLASSIFIERS = {"mlp": 5, "cnn": 2, "nbow": 3, "vgg11": 1}
NO_BATCH_NORM = {"mlp": 5, "cnn": 2, "nbow": 3, "seq2seq": 2, "gpt": 2, "conv_autoencoder": 2}


def weighted(chance, choices):
    return chance.choices(list(choices), list(choices.values()))[0]


def least_ranks(case):
    """The fewest ranks that a run like this has, its mesh, and what protects nothing: one, but for copies and the server of secure sums."""
    if case.what.get("strategy") in ("local_sgd", "easgd"):
        copies = int(case.how["mesh"].split(",")[0].split("=")[1])
        return {"RANKS": copies, "mesh": mesh_words(copies, 1, 1)}
    if "secure-aggregation" in case.what:
        return {"RANKS": 2, "mesh": mesh_words(2, 1, 1), "secure-aggregation": "unmasked"}
    return {"RANKS": 1, "mesh": mesh_words(1, 1, 1)}


def plain_of(case):
    """How the run is computed that a case is compared with. In half precision the plain run is rounded alike: whether a gradient
    overflows decides which steps are left out."""
    precision = case.how["precision"]
    return {**least_ranks(case), **PLAIN, "precision": precision if precision in ("bf16", "fp16") else "fp64"}


def same_bits_of(case):
    """How the run is computed whose bits a case must have, or None where only rounding is promised."""
    alike = {**least_ranks(case), **{key: case.how[key] for key in ("precision", "threads")}}
    if case.what.get("strategy") == "fedavg":
        return alike
    if "reproducible" in case.how and "tensor=2" not in case.how["mesh"] + case.how.get("MESH", ""):
        return {**alike, "reproducible": True}
    return None


# ---- the state in shards, and updates that wait for no other, in lock-step ----------------------------------------------
def draw_shards(seed, ulfm):
    """A run in lock-step whose copies share out their state, or push to servers: compared with `ddp` on one rank."""
    chance = random.Random(f"shards {seed}")
    case = draw(seed, ulfm)
    while case.how["mesh"].startswith("data=1,"):
        seed += 1_000_000
        case = draw(seed, ulfm)
    how = case.how
    how["strategy"] = chance.choice(["zero1", "zero2", "zero3"])
    if chance.random() < 0.3 and "MESH" not in how and "KILL" not in how:  # one rank has nothing to share out
        how["shard-within"] = "node"
    if case.how["mesh"].endswith("pipe=1,tensor=1") and chance.random() < 0.2:
        how["strategy"] = "asgd"
        how |= {"staleness": 0, "servers": chance.choice([0, 1])}
        how.pop("shard-within", None)
    return case


# ---- copies that agree after rounds -----------------------------------------------------------------------------------
def draw_copies(seed, ulfm):
    """`local_sgd` or `easgd` in rounds: compared with as many copies of one rank each, of LibTorch's operators."""
    chance = random.Random(f"copies {seed}")
    pick = chance.choice
    model = weighted(chance, {"mlp": 8, "cnn": 2, "conv_autoencoder": 2, "nbow": 3, "seq2seq": 2, "gpt": 3})
    dataset, options = draw_model(chance, model)
    data = DATASETS[dataset]
    meshes = {(2, 1, 1): 5, (3, 1, 1): 4, (4, 1, 1): 2, (2, 2, 1): 3, (2, 1, 2): 2}
    fitting = meshes_of(model, options)
    meshes = {mesh: weight for mesh, weight in meshes.items() if mesh in fitting()}
    mesh = weighted(chance, meshes)
    batch, pieces = draw_batch(chance, data, mesh[0] * mesh[1], 1, {"mlp": 400}.get(model, 24))
    epochs, steps = pick([1, 2, 3]), pick([2, 3, 5, 8])
    steps = min(epochs * -(-data.samples // batch), steps)
    period = pick([1, 2, 3, 4])
    what = {"model": model, "model-option": options, "dataset": dataset, "global-batch": batch, "micro-batches": pieces,
            "epochs": epochs, "limit-steps": steps, "seed": chance.randint(1, 10**6), "schedule": pick(["constant", "cosine"]),
            **update_rule(chance), "sync-period": period}
    if data.kind == "values" or model == "conv_autoencoder":
        what["loss"] = pick(["mse", "mae"])
    if data.kind == "images":
        what["augment"] = pick(["on", "off"])
    if chance.random() < 0.35:
        what |= {"strategy": "easgd", **({"elasticity": pick([0.1, 0.9 / mesh[0]])} if chance.random() < 0.5 else {})}
    else:
        what |= {"strategy": "local_sgd", "sync-optimizer": pick(["keep", "average", "reset"])}
        if chance.random() < 0.3:
            what |= {"outer-optimizer": "nesterov", "outer-learning-rate": pick([0.5, 1]), "outer-momentum": pick([0, 0.8])}
        if chance.random() < 0.3:
            what["local-after"] = pick([1, 2])
        if chance.random() < 0.3:
            what["fragments"] = chance.randint(1, period)
        if chance.random() < 0.3:
            what["overlap-steps"] = chance.randint(0, period - 1)
        if what["sync-period"] == "adaptive":
            for name in ("fragments", "overlap-steps"):
                what.pop(name, None)
        if mesh[1] > 1:  # each stage cuts its own weights
            what.pop("fragments", None)
    precision = weighted(chance, {"fp64": 8, "fp32": 6, "bf16": 1})
    how = draw_how(chance, fitting, mesh, precision, pieces, steps, ulfm=False)
    how.pop("reproducible", None)
    if "MESH" in how:  # copies are not created from nothing
        then = [other for other in meshes if other[0] == mesh[0] and other[0] * other[1] <= pieces and
                ("fragments" not in what or other[1] == 1)]
        how["MESH"] = mesh_words(*pick(then))
    return Case(what, how)


# ---- federated ----------------------------------------------------------------------------------------------------------
def draw_federated(seed, ulfm):
    """Rounds of clients on some ranks: compared with one rank, to the bit where both compute alike."""
    chance = random.Random(f"federated {seed}")
    pick = chance.choice
    sometimes = lambda share: chance.random() < share
    model = weighted(chance, CLASSIFIERS)
    dataset, options = draw_model(chance, model)
    data = DATASETS[dataset]
    clients = pick([1, 2, 3, 5, 8])
    rounds = pick([1, 2, 3])
    rule = pick(["fedavg", "fedavg", "fedavg", "fednova", "scaffold", "local"])
    what = {"model": model, "model-option": options, "dataset": dataset, "strategy": "fedavg", "clients": clients, "rounds": rounds,
            "local-batch": pick(["all", 7, 16, 33]), "seed": chance.randint(1, 10**6), "local-epochs": pick([1, 1, 2]),
            **update_rule(chance, ("sgd",) if rule in ("fednova", "scaffold") else ("sgd", "adam")), "federated-rule": rule}
    sites = model == "mlp" and sometimes(0.3)
    if rule == "scaffold":
        what["momentum"] = 0
    if sites:
        clients = 4
        what |= {"dataset": "hospitals", "model-option": {"hidden": "8"}, "clients": clients, "partition": "sites"}
    elif data.kind == "values":
        what |= {"loss": "mse", "partition": pick(["iid", "quantity=2"])}
    else:
        each = min(max(2, -(-data.classes // clients)), data.classes)
        what["partition"] = pick(["iid", "dirichlet=2", f"classes={each}", "quantity=2", "pooled" if clients == 1 else "iid"])
    private = sometimes(0.35) and rule == "fedavg" and model != "vgg11"
    secure = clients >= 3 and sometimes(0.5) and rule == "fedavg" and not private and model != "vgg11"
    if sometimes(0.3) and rule == "fedavg":
        what["proximal-mu"] = 0.1
    alone = rule == "local"  # without a server
    if not alone and sometimes(0.4):
        what |= {"server-optimizer": pick(["momentum", "adam", "yogi"]), "server-rate": pick([0.01, 0.1])}
    if not alone and sometimes(0.25):
        what["drop-rate"] = 0.1 if secure else 0.3
    if private:
        what |= {"dp-clip": pick([0.1, 1]), "dp-noise": pick([0.5, 2]), "noise-source": "seeded", "dp-delta": 1e-3,
                 "dp-unit": pick(["record", "client"])}
        if what["dp-unit"] == "client" and sometimes(0.4):
            what["dp-adaptive-clip"] = 0.5
    if secure:
        what |= {"secure-aggregation": "on", "secure-ring": pick([32, 64]), "secure-threshold": clients // 2 + 1}
    elif not alone and sometimes(0.7):
        what["clients-per-round"] = chance.randint(1, clients)
    ranks = max(pick([1, 2, 3, 4]), 2 if secure else 1)
    how = {"RANKS": ranks, "mesh": mesh_words(ranks, 1, 1), "precision": pick(["fp64", "fp64", "fp32", "fp32", "fp32" if private else "bf16"]),
           "threads": pick([1, 1, 2])}
    if sometimes(0.3):
        how["staging"] = pick(["memory", "local=copies"])
    if not private and not alone and sometimes(0.2):
        how["round-deadline"] = LIMIT_S  # which no round comes to: it changes nothing
    if sometimes(0.15):
        how["ONE_CORE"] = True
    if ulfm and how["RANKS"] > (2 if secure else 1) and sometimes(0.2):  # the server of secure sums needs another rank
        killed = chance.randrange(1 if secure else 0, ranks)
        how |= {"KILL": f"kill:rank={killed},phase={pick(['forward', 'backward', 'all_reduce'])},step={chance.randint(1, rounds)}",
                "checkpoint-every": "1steps", "watchdog": 20}
    elif rounds > 1 and sometimes(0.4):
        then = max(pick([1, 2, 3]), 2 if secure else 1)
        how |= {"checkpoint-every": "1steps", "MESH": mesh_words(then, 1, 1)}
        if sometimes(0.6):
            how["CRASH"] = f"fail:rank={chance.randrange(how['RANKS'])},step={chance.randint(2, rounds)}"
        else:
            how["STOP"] = 1
    return Case(what, how)


# ---- differential privacy of samples ------------------------------------------------------------------------------------
def draw_private(seed, ulfm):
    """Private steps of `ddp`, with noise of the run's seed: compared with one rank."""
    chance = random.Random(f"private {seed}")
    pick = chance.choice
    network = chance.random() < 0.35
    if network:
        dataset = pick([name for name, data in DATASETS.items() if data.kind not in ("pairs", "far", "sites")])
        while build(seed, dataset, 9)[1].batch_norm:
            seed += 1_000_000
        model, options = f"network-{seed}.pt2", None
    else:
        model = weighted(chance, NO_BATCH_NORM)
        dataset, options = draw_model(chance, model)
    data = DATASETS[dataset]
    ranks = pick([1, 2, 3, 4])
    batch, pieces = draw_batch(chance, data, ranks, 1, {"mlp": 200}.get(model, 24))
    epochs = pick([1, 2])
    steps = min(epochs * -(-data.samples // batch), pick([1, 2, 3, 4]))
    what = {"model": model, **({"NETWORK": seed} if network else {"model-option": options}), "dataset": dataset, "global-batch": batch,
            "micro-batches": pieces, "epochs": epochs, "limit-steps": steps, "seed": chance.randint(1, 10**6), **update_rule(chance), "dp-clip": pick([0.05, 1, 20]),
            "dp-noise": pick([0, 0.7, 2]), "noise-source": "seeded", "dp-sampler": pick(["poisson", "once"]), "dp-delta": 1e-4}
    what["grad-clip"] = 0
    if data.kind == "values" or model == "conv_autoencoder":
        what["loss"] = "mse" if network else pick(["mse", "mae"])
    if data.kind == "images" and not network:
        what["augment"] = pick(["on", "off"])
    how = draw_how(chance, lambda virtual=1: [(ranks, 1, 1) for ranks in (1, 2, 3)], (ranks, 1, 1), pick(["fp64", "fp64", "fp32"]), pieces, steps, ulfm)
    how.pop("reproducible", None)  # private sums agree to rounding only
    return Case(what, how)


# ---- copies that wait for no other --------------------------------------------------------------------------------------
def draw_late(seed, ulfm):
    """`asgd` whose updates come late, or `easgd` through servers, of a network whose gradients are the same wherever its parameters
    are: compared with `ddp` on one rank. So an update that is lost, done twice, or by another rate is seen."""
    chance = random.Random(f"late {seed}")
    pick = chance.choice
    sometimes = lambda share: chance.random() < share
    ranks, elastic = pick([2, 2, 3, 3, 4]), sometimes(0.35)
    servers = chance.randrange(0, ranks)
    batch, pieces = draw_batch(chance, DATASETS["far"], ranks, 1, 60)
    epochs = pick([1, 2, 3])
    steps = min(epochs * -(-DATASETS["far"].samples // batch), pick([2, 5, 9, 20]))
    what = {"model": f"network-{seed}.pt2", "NETWORK": seed, "dataset": "far", "loss": "mae", "global-batch": batch, "micro-batches": pieces,
            "epochs": epochs, "limit-steps": steps, "seed": chance.randint(1, 10**6), "optimizer": "sgd", "momentum": 0, "weight-decay": 0,
            "grad-clip": pick([0, 0, 1e6]), "learning-rate": pick([0.02, 0.003]), "schedule": pick(["constant", "cosine", "linear"])}
    how = {"RANKS": ranks, "mesh": mesh_words(ranks, 1, 1), "precision": weighted(chance, {"fp64": 5, "fp32": 3, "bf16": 1}), "threads": pick([1, 1, 2]),
           "IN_ANY_ORDER": True, "servers": servers}
    if elastic:
        how |= {"strategy": "easgd", "easgd-mode": "asynchronous", "sync-period": pick([1, 2, 3, 7])}
        if sometimes(0.5):
            how["elasticity"] = pick([0.1, 0.9 / (ranks - servers)])
    else:
        how |= {"strategy": "asgd", "staleness": pick([1, 2, 5])}
    if sometimes(0.4):
        how["validate-every"] = f"{chance.randint(1, 4)}steps"
    if sometimes(0.3):
        how["staging"] = pick(["memory", "local=copies"])
    if sometimes(0.2):
        how["verify-every"] = chance.randint(1, 4)
    if sometimes(0.15):
        how["ONE_CORE"] = True
    if sometimes(0.2):
        how["rank-order"] = "launched"
    if ulfm and not elastic and ranks - max(servers, 1) >= 2 and sometimes(0.3):
        phase = pick(["forward", "backward", "optimizer"])
        how |= {"KILL": f"kill:rank={chance.randrange(ranks)},phase={phase},step={chance.randint(1, steps)}",
                "checkpoint-every": f"{chance.randint(1, 3)}steps", "watchdog": 20}
    elif steps > 1 and sometimes(0.35):
        then = ranks if elastic else chance.randint(servers + 1, 4)
        how |= {"checkpoint-every": f"{chance.randint(1, 3)}steps", "MESH": mesh_words(min(then, pieces), 1, 1)}
        if sometimes(0.6):
            how["CRASH"] = f"fail:rank={chance.randrange(ranks)},step={chance.randint(2, steps)}"
        else:
            how["STOP"] = chance.randint(1, 2)
    return Case(what, how)


def draw_any(seed, ulfm):
    """One of the others in turn."""
    return list(FAMILIES.values())[2 + seed % (len(FAMILIES) - 2)](seed, ulfm)


FAMILIES = {"lock_step": draw, "any_other": draw_any, "shards": draw_shards, "copies": draw_copies, "federated": draw_federated,
            "private": draw_private, "networks": draw_networks, "late": draw_late}
