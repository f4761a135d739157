"""Reads what stage wrote, for cases whose input is right."""

import json

import h5py
import numpy as np


def facts(folder):
    return json.loads((folder / "data" / "staged" / "set" / "dataset.json").read_text())


def array(folder, name):
    """All rows of all splits, one behind the other."""
    place = folder / "data" / "staged" / "set"
    parts = []
    for split in facts(folder)["splits"].values():
        for shard in split["shards"]:
            with h5py.File(place / shard["file"]) as file:
                parts.append(file[name][()])
    return np.concatenate(parts)


def spans(folder):
    """Where each text begins and ends in the tokens of its shard."""
    place = folder / "data" / "staged" / "set"
    for split in facts(folder)["splits"].values():
        for shard in split["shards"]:
            with h5py.File(place / shard["file"]) as file:
                offsets = file["offsets"][()].tolist()
            yield from zip(offsets, offsets[1:])


def same_rows(folder, name, wanted):
    """What is wrong with the staged rows, in whatever order they are, as the original has them; empty: nothing."""
    found = array(folder, name)
    if columns := facts(folder).get("columns") if name == "inputs" else None:
        found = found * [column.get("scale", 1) for column in columns] + [column.get("shift", 0) for column in columns]
    if found.shape != wanted.shape:
        return f"{name} has the shape {found.shape}, not {wanted.shape}"
    order = lambda rows: np.sort(rows.reshape(len(rows), -1), axis=0)
    # Scaled and back, float32 keeps six places of the largest of them.
    return "" if np.allclose(order(found), order(wanted), rtol=0, atol=1e-6 * np.abs(wanted).max()) else f"{name} has other values"
