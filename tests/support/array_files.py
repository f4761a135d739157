"""Arrays in the files that `stage` reads."""

import h5py
import numpy as np


def write_arrays(folder, values):
    """The arrays by name, as FOLDER/set.h5, FOLDER/set.npz and FOLDER/npy/NAME.npy."""
    with h5py.File(folder / "set.h5", "w") as file:
        for name, value in values.items():
            file[name] = value
    np.savez(folder / "set.npz", **values)
    (folder / "npy").mkdir()
    for name, value in values.items():
        np.save(folder / "npy" / f"{name}.npy", value)
