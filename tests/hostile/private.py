"""Federated and private training: values that make no sense, ledgers that lie, and the command that counts epsilon."""

import shutil

from case import Family, nothing

FEDERATED = Family("federated")
PRIVACY = Family("privacy")
COMMON = ("--model-option", "hidden=8", "--threads", "1", "--name", "out", "--quiet", "--dataset", "table", "--data-root", "{given}")
ROUNDS = ("--model", "mlp", "--optimizer", "sgd", "--limit-steps", "2", *COMMON, "--strategy", "fedavg")
STEPS = ("--model", "mlp", "--global-batch", "8", "--limit-steps", "2", *COMMON)
CLIPPED = (*STEPS, "--dp-clip", "1", "--dp-noise", "1")

# ---- federated ------------------------------------------------------------------------------------------------------
VALUES = {
    "--partition": ("", "iid=", "sites", "dirichlet", "dirichlet=0", "dirichlet=-1", "dirichlet=nan", "dirichlet=inf", "classes=0", "classes=4",
                    "classes=99999999999999999999", "classes=1.5", "quantity=0", "quantity=1e999", "owners", "\x1b[2J", "x" * 100_000),
    "--clients": ("0", "-1", "33", "2147483647", "99999999999999999999", "1.5", "all"),
    "--clients-per-round": ("0", "-1", "11", "2147483648", "most"),
    "--local-epochs": ("0", "-1", "2147483648", "0.5"),
    "--local-batch": ("0", "-1", "2147483648", "half"),
    "--proximal-mu": ("-1", "nan", "inf", "1e999"),
    "--server-optimizer": ("", "adamw", "\x1b[2J"),
    "--server-rate": ("0", "-1", "nan", "inf"),
    "--server-momentum": ("-1", "1", "nan"),
    "--drop-rate": ("-0.1", "1", "nan", "inf", "often"),
    "--round-deadline": ("-1", "nan", "1e999", "soon"),
}
TAKEN = {("--partition", "dirichlet=inf"): {0, 2}, ("--partition", ""): {0}}  # empty: as if it were not given
for option, values in VALUES.items():
    rule = ("--server-optimizer", "momentum") if option in ("--server-rate", "--server-momentum") else ()
    for value in values:
        title = ascii(value)[1:-1]
        title = title if len(title) < 40 else f"{title[:20]}... of {len(title)} letters"
        FEDERATED.add(f"{option} {title}", nothing, *ROUNDS, *rule, option, value, code=TAKEN.get((option, value), {2, 3}),
                      quick=(option, value) in {("--clients", "2147483647"), ("--partition", "dirichlet=nan")})
    FEDERATED.add(f"ddp {option}", nothing, *STEPS, option, "1", code=2)
FEDERATED.add("one client for each sample", nothing, *ROUNDS, "--clients", "32", code={0, 2})
FEDERATED.add("as it should be", nothing, *ROUNDS, "--clients", "4", "--clients-per-round", "2", code=0)


# ---- options of privacy ---------------------------------------------------------------------------------------------
NOISES = {
    "--dp-clip": ("-1", "nan", "inf", "1e999", "much"),
    "--dp-noise": ("-1", "nan", "inf", "1e-999", ""),
    "--target-epsilon": ("0", "-1", "nan", "inf", "1e-300", "none"),
    "--dp-delta": ("0", "1", "-0.1", "nan", "1e-400", "small"),
    "--dp-sampler": ("", "shuffle", "\x1b[2J"),
    "--dp-accountant": ("", "moments", "\x1b[2J"),
}
for option, values in NOISES.items():
    chosen = {"--dp-clip": ("--dp-noise", "1"), "--dp-noise": ("--dp-clip", "1"), "--target-epsilon": ("--dp-clip", "1")}.get(option, CLIPPED[-4:])
    for value in values:
        PRIVACY.add(f"{option} {ascii(value)[1:-1]}", nothing, *STEPS, *chosen, option, value, code=2, quick=(option, value) == ("--dp-delta", "nan"))
for name, words in {"noise without a clip": ("--dp-noise", "1"), "an epsilon without a clip": ("--target-epsilon", "3"), "a clip alone": ("--dp-clip", "1"),
                    "a sensitivity of one's own": ("--dp-clip", "1", "--dp-noise", "1", "--sensitivity", "1"),
                    "noise and an epsilon": ("--dp-clip", "1", "--dp-noise", "1", "--target-epsilon", "3")}.items():
    PRIVACY.add(name, nothing, *STEPS, *words, code={0, 2} if name == "noise and an epsilon" else 2)

COMMAND = {
    "nothing": (), "neither epsilon nor noise": ("--sample-rate", "0.1", "--steps", "10"), "both": ("--epsilon", "1", "--noise", "1", "--sample-rate", "0.1", "--steps", "10"),
    "a rate of 0": ("--noise", "1", "--sample-rate", "0", "--steps", "10"), "a rate above 1": ("--noise", "1", "--sample-rate", "1.5", "--steps", "10"),
    "a rate that is no number": ("--noise", "1", "--sample-rate", "nan", "--steps", "10"), "no steps": ("--noise", "1", "--sample-rate", "0.1", "--steps", "0"),
    "fewer steps than none": ("--noise", "1", "--sample-rate", "0.1", "--steps", "-5"), "2^64 steps": ("--noise", "1", "--sample-rate", "0.1", "--steps", "18446744073709551616"),
    "no noise": ("--noise", "0", "--sample-rate", "0.1", "--steps", "10"), "noise below 0": ("--noise", "-1", "--sample-rate", "0.1", "--steps", "10"),
    "infinite noise": ("--noise", "inf", "--sample-rate", "0.1", "--steps", "10"), "delta 0": ("--noise", "1", "--delta", "0", "--sample-rate", "0.1", "--steps", "10"),
    "delta 1": ("--noise", "1", "--delta", "1", "--sample-rate", "0.1", "--steps", "10"), "an epsilon below 0": ("--epsilon", "-1", "--sample-rate", "0.1", "--steps", "10"),
    "an epsilon that is no number": ("--epsilon", "nan", "--sample-rate", "0.1", "--steps", "10"), "a batch above the records": ("--noise", "1", "--records", "10", "--batch", "11", "--epochs", "1"),
    "records below 0": ("--noise", "1", "--records", "-10", "--batch", "1", "--epochs", "1"), "a sampler ESC": ("--noise", "1", "--sample-rate", "0.1", "--steps", "10", "--sampler", "\x1b[2J"),
}
for name, words in COMMAND.items():
    PRIVACY.add(f"dtrain privacy of {name}", nothing, "privacy", *words, code={0, 2} if name == "no noise" else 2, quick=name == "a rate that is no number")
for epsilon in ("1e3", "1e6", "1e308", "inf"):  # the grid of their privacy loss would take the memory
    PRIVACY.add(f"dtrain privacy of epsilon {epsilon}", nothing, "privacy", "--epsilon", epsilon, "--sample-rate", "0.5", "--steps", "10", "--accountant", "pld", code=2,
                quick=epsilon == "1e6")
EXTREMES = {"a billion steps": ("--noise", "1", "--sample-rate", "0.01", "--steps", "1000000000"), "next to no noise": ("--noise", "1e-8", "--sample-rate", "0.5", "--steps", "100"),
            "a tiny rate": ("--noise", "1", "--sample-rate", "1e-12", "--steps", "1000"), "huge noise": ("--noise", "1e12", "--sample-rate", "0.5", "--steps", "100"),
            "an epsilon that is nearly none": ("--epsilon", "1e-9", "--sample-rate", "0.5", "--steps", "100000"), "a tiny delta": ("--noise", "1", "--delta", "1e-300", "--sample-rate", "0.1", "--steps", "10")}
for name, words in EXTREMES.items():
    for accountant in ("rdp", "pld"):
        PRIVACY.add(f"dtrain privacy of {name}, by {accountant}", nothing, "privacy", *words, "--accountant", accountant, code={0, 2})


# ---- ledgers --------------------------------------------------------------------------------------------------------
LEDGER = b"dtrain.privacy 1\n0 1 0.25 2\nend\n"
LEDGERS = {
    "nothing": b"", "zeros": bytes(64), "another first line": b"dtrain.privacy 2\nend\n", "no last line": LEDGER[:-4], "half a line": LEDGER[:24], "words": LEDGER.replace(b"0.25", b"much"),
    "a rate of 0": LEDGER.replace(b"0.25", b"0"), "a rate above 1": LEDGER.replace(b"0.25", b"4"), "a rate of nan": LEDGER.replace(b"0.25", b"nan"),
    "noise below 0": LEDGER.replace(b"0 1 ", b"0 -1 "), "infinite noise": LEDGER.replace(b"0 1 ", b"0 inf "), "another sampler": LEDGER.replace(b"0 1 ", b"7 1 "),
    "steps below 0": LEDGER.replace(b" 2\n", b" -2\n"), "half a step": LEDGER.replace(b" 2\n", b" 2.5\n"), "1e300 steps": LEDGER.replace(b" 2\n", b" 1e300\n"),
    "a million lines": b"dtrain.privacy 1\n" + b"0 1 0.25 2\n" * 1_000_000 + b"end\n", "40 MB in one line": b"dtrain.privacy 1\n" + b"0 " * 20_000_000 + b"\nend\n",
    "control characters": b"dtrain.privacy 1\n\x1b[2J\nend\n",
}


def private_run(ledger):
    """A private run that has completed, whose ledger another hand has written: `ledger(bytes)` of what it was."""
    def prepare(folder, given):
        shutil.copytree(given / "private_run", folder / "runs", symlinks=True)
        file = folder / "runs" / "out" / "privacy.ledger"
        changed = ledger(file.read_bytes())
        file.unlink()
        if changed is not None:
            file.write_bytes(changed)
    return prepare


RESUME = (*CLIPPED, "--limit-steps", "4", "--resume", "auto")
for name, content in LEDGERS.items():
    PRIVACY.add(f"a ledger of {name}", private_run(lambda _, c=content: c), *RESUME, code={2, 4}, quick=name in ("a rate of nan", "no last line"))
PRIVACY.add("no ledger", private_run(lambda _: None), *RESUME, code={2, 4})
PRIVACY.add("fewer steps than the checkpoint has", private_run(lambda _: LEDGER.replace(b" 2\n", b" 0\n")), *RESUME, code={0, 4})


def folder_for_a_ledger(folder, given):
    private_run(lambda _: None)(folder, given)
    (folder / "runs" / "out" / "privacy.ledger").mkdir()


PRIVACY.add("a folder for a ledger", folder_for_a_ledger, *RESUME, code={2, 3, 4})
PRIVACY.add("its own ledger", private_run(lambda own: own), *RESUME, code=0)
