"""A trained model measured again, its predictions, its weights in PyTorch, PyTorch's weights in dtrain, bad files."""

import json
import struct
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

from dtrain_run import refused, run


def torch_mlp():
    class Mlp(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.input_fc, self.hidden_fc = torch.nn.Linear(784, 20), torch.nn.Linear(20, 12)
            self.output_fc = torch.nn.Linear(12, 10)

        def forward(self, x):
            return self.output_fc(torch.relu(self.hidden_fc(torch.relu(self.input_fc(x.flatten(1))))))
    return Mlp()


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        raw = value.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_h5(path, tensors):
    with h5py.File(path, "w") as file:
        for name, value in tensors.items():
            file[f"model/{name}"] = value


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        small = ["--model", "mlp", "--model-option", "hidden=20,12"]
        run(binary, 1, "stage", "pictures", "--format", "synthetic", "--samples", 2000, cwd=folder)
        data = ["--dataset", "pictures"]
        run(binary, 2, *small, *data, "--epochs", 2, "--name", "first", cwd=folder)
        best = "runs/first/checkpoints/best"
        with h5py.File(folder / "runs/first/results.h5") as results:
            test = results["test"][0]

        # The same measure, whatever the number of ranks; predictions in the order of the samples.
        for ranks in (1, 3):
            said = run(binary, ranks, "evaluate", best, "--predictions", f"said-{ranks}.h5", cwd=folder).stdout
            assert f"loss {test['loss']:.4f}, accuracy {test['accuracy']:.4f}" in said, said
        with h5py.File(folder / "said-1.h5") as one, h5py.File(folder / "said-3.h5") as three:
            np.testing.assert_allclose(one["outputs"][:], three["outputs"][:], rtol=0, atol=1e-5)
            for name in ("targets", "predicted", "classes"):
                assert np.array_equal(one[name][:], three[name][:]), name
            assert np.mean(one["predicted"][:] == one["targets"][:]) == test["accuracy"]
            outputs, targets = one["outputs"][:], one["targets"][:]
        assert "codes" not in h5py.File(folder / "said-1.h5")

        # In double precision the weights come back whole.
        run(binary, 2, *small, *data, "--precision", "fp64", "--limit-steps", 5, "--name", "double", cwd=folder)
        with h5py.File(folder / "runs/double/results.h5") as results:
            double_test = results["test"][0]
        said = run(binary, 2, "evaluate", "runs/double/checkpoints/best", "--predictions", "double.h5", cwd=folder).stdout
        assert f"loss {double_test['loss']:.4f}" in said, said

        # PyTorch computes the same from the exported weights.
        run(binary, 1, "export", best, "first.h5", cwd=folder)
        run(binary, 1, "export", best, "first.safetensors", cwd=folder)
        with h5py.File(folder / "first.h5") as file:
            weights = {name: value[:] for name, value in file["model"].items()}
        model = torch_mlp()
        model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()}, strict=True)
        facts = json.loads((folder / "data/staged/pictures/dataset.json").read_text())
        with h5py.File(folder / "data/staged/pictures" / facts["splits"]["test"]["shards"][0]["file"]) as shard:
            images = torch.from_numpy(shard["inputs"][:].astype(np.float32)) / 255
            assert np.array_equal(shard["targets"][:], targets)
        mean, deviation = (torch.tensor(facts[key], dtype=torch.float32).view(1, -1, 1, 1) for key in ("mean", "std"))
        with torch.no_grad():
            theirs = model((images - mean) / deviation).numpy()
        np.testing.assert_allclose(outputs, theirs, rtol=0, atol=1e-5)

        # PyTorch's weights load into dtrain, from each kind of file: a step of rate 0 leaves them as they are.
        torch.manual_seed(3)
        fresh = {name: value.numpy() for name, value in torch_mlp().state_dict().items()}
        write_safetensors(folder / "fresh.safetensors", fresh)
        write_h5(folder / "fresh.h5", fresh)
        for source in ("fresh.safetensors", "fresh.h5"):
            run(binary, 2, *small, *data, "--init-from", source, "--limit-steps", 1, "--learning-rate", 1e-300,
                "--name", "loaded", "--overwrite", cwd=folder)
            run(binary, 1, "export", "runs/loaded/checkpoints/best", "loaded.h5", cwd=folder)
            with h5py.File(folder / "loaded.h5") as file:
                for name, value in fresh.items():
                    assert np.array_equal(file["model"][name][:], value), (source, name)

        # A run's folder stands for its best checkpoint.
        run(binary, 2, *small, *data, "--init-from", "runs/loaded", "--limit-steps", 1, "--learning-rate", 1e-300, "--name", "again",
            "--overwrite", cwd=folder)
        run(binary, 1, "export", "runs/again", "again.h5", cwd=folder)
        with h5py.File(folder / "again.h5") as file:
            for name, value in fresh.items():
                assert np.array_equal(file["model"][name][:], value), name

        # Another number of classes: the last layer is left out by name.
        wide = dict(fresh, **{"output_fc.weight": np.zeros((3, 12), np.float32), "output_fc.bias": np.zeros(3, np.float32)})
        write_h5(folder / "wide.h5", wide)
        start = [*small, *data, "--limit-steps", 1, "--name", "other", "--overwrite"]
        refused(binary, 1, 4, ["output_fc.weight", "[3, 12]", "[10, 12]", "--init-skip"], *start, "--init-from", "wide.h5", cwd=folder)
        refused(binary, 2, 4, ["output_fc.weight", "[3, 12]", "[10, 12]"], *start, "--init-from", "wide.h5", "--mesh", "tensor=2",
                cwd=folder)
        said = run(binary, 2, *start, "--init-from", "wide.h5", "--init-skip", "^output_fc", cwd=folder).stdout
        assert "output_fc.weight" in said, said
        write_h5(folder / "more.h5", dict(fresh, extra=np.zeros(2, np.float32)))
        assert "extra" in run(binary, 1, *start, "--init-from", "more.h5", cwd=folder).stdout
        write_h5(folder / "less.h5", {name: value for name, value in fresh.items() if name != "hidden_fc.bias"})
        refused(binary, 1, 4, ["hidden_fc.bias", "less.h5"], *start, "--init-from", "less.h5", cwd=folder)
        refused(binary, 1, 2, ["--init-skip"], *start, "--init-from", "more.h5", "--init-skip", "(", cwd=folder)
        refused(binary, 1, 4, ["nowhere.h5"], *start, "--init-from", "nowhere.h5", cwd=folder)
        refused(binary, 1, 2, ["first.txt"], *start, "--init-from", str((folder / "first.txt").write_text("") or "first.txt"), cwd=folder)
        whole = (folder / "fresh.safetensors").read_bytes()
        (folder / "cut.safetensors").write_bytes(whole[:-100])
        refused(binary, 1, 4, ["cut.safetensors"], *start, "--init-from", "cut.safetensors", cwd=folder)
        (folder / "noise.safetensors").write_bytes(b"\xff" * 64)
        refused(binary, 1, 4, ["noise.safetensors"], *start, "--init-from", "noise.safetensors", cwd=folder)
        (folder / "text.h5").write_text("no HDF5")
        refused(binary, 1, 4, ["text.h5"], *start, "--init-from", "text.h5", cwd=folder)

        # evaluate: a split or a checkpoint that is not there, another dataset that does not fit.
        refused(binary, 1, 2, ["--split"], "evaluate", best, "--split", "exam", cwd=folder)
        refused(binary, 1, 4, ["nowhere"], "evaluate", "nowhere", cwd=folder)
        run(binary, 1, "stage", "colours", "--format", "synthetic", "--task", "table_classification", cwd=folder)
        refused(binary, 1, 4, ["input_fc.weight"], "evaluate", best, "--dataset", "colours", cwd=folder)
        refused(binary, 1, 2, ["no/such"], "evaluate", best, "--predictions", "no/such/said.h5", cwd=folder)


main()
