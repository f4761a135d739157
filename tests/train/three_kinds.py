"""A dataset `rows` of 200 rows with 5 numbers each, of three classes that training soon tells apart."""

import numpy as np

from dtrain_run import run


def stage_three_kinds(binary, folder):
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 3, 200)
    rows = (rng.normal(0, 1, (200, 5)) + kinds[:, None]).astype(np.float32)
    np.savez(folder / "rows.npz", x=rows, y=kinds)
    run(binary, 1, "stage", "rows", "--from", "rows.npz", "--inputs", "x", "--targets", "y", cwd=folder)
