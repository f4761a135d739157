"""Runs a .pt2 file in float64 from its JSON and raw weights alone: a second reader of the format, that shares no code with
torch.export.load nor with dtrain, and an answer to what an exported program computes.

Every float type of the program means its one float type, here float64; every dropout has the probability 0.
"""

import json
import math
import operator
import zipfile

import torch

TYPES = {1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
         8: torch.float64, 12: torch.bool, 13: torch.bfloat16}
FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format}
CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


class Program:
    """`tensors`: parameters and buffers by state_dict name, in float64; `inputs`: names of the user's inputs in order."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as archive:
            top = archive.namelist()[0].split("/")[0]
            model = json.loads(archive.read(f"{top}/models/model.json"))
            self.tensors = self._read(archive, f"{top}/data/weights", "model_weights_config.json", "weight")
            constants = self._read(archive, f"{top}/data/constants", "model_constants_config.json", "tensor")
            extra = f"{top}/extra/dtrain_golden.json"
            self.golden = json.loads(archive.read(extra)) if extra in archive.namelist() else None
        assert model["schema_version"]["major"] == 8, model["schema_version"]
        graph = model["graph_module"]["graph"]
        self.nodes, self.outputs = graph["nodes"], graph["outputs"]
        self.names, self.inputs = {}, []  # of the graph's values: whose tensor it is
        for spec in model["graph_module"]["signature"]["input_specs"]:
            (kind, fields), = spec.items()
            if kind == "user_input":
                self.inputs.append(fields["arg"]["as_tensor"]["name"])
            else:
                name = fields[{"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}[kind]]
                self.tensors.setdefault(name, constants.get(name))
                self.names[fields["arg"]["name"]] = name

    @staticmethod
    def _read(archive, folder, config, kind):
        tensors, files = {}, {}
        for name, entry in json.loads(archive.read(f"{folder}/{config}"))["config"].items():
            meta = entry["tensor_meta"]
            sizes, strides = ([size["as_int"] for size in meta[key]] for key in ("sizes", "strides"))
            if entry["path_name"] not in files:  # tied weights lie in one file, and are one tensor
                flat = torch.frombuffer(bytearray(archive.read(f"{folder}/{entry['path_name']}")) or bytearray(8),
                                        dtype=TYPES[meta["dtype"]])
                value = torch.as_strided(flat, sizes, strides, meta["storage_offset"]["as_int"]).clone()
                value = value.double() if value.is_floating_point() else value
                files[entry["path_name"]] = value.requires_grad_(bool(entry.get("is_param")) and meta["requires_grad"])
            tensors[name] = files[entry["path_name"]]
        return tensors

    def run(self, *inputs):
        """The first output."""
        values = {value: self.tensors[name] for value, name in self.names.items()}
        values |= dict(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            self._run_node(node, values)
        return values[self.outputs[0]["as_tensor"]["name"]]

    def _run_node(self, node, values):
        arguments = {item["name"]: self._value(item["arg"], values) for item in node["inputs"]}
        target = node["target"]
        if not target.startswith("torch.ops."):
            function = {"floordiv": operator.floordiv, "sub": operator.sub, "add": operator.add, "mul": operator.mul}[target.split(".")[-1]]
            results = function(*arguments.values())
        else:
            _, _, space, name, overload = target.split(".")
            if name in CHECKS:
                return
            if name in ("dropout", "dropout_"):
                arguments["p"] = 0.0
            for probability in ("dropout_p", "dropout"):
                if probability in arguments:
                    arguments[probability] = 0.0
            results = getattr(getattr(getattr(torch.ops, space), name), overload)(**arguments)
        outputs = node["outputs"]
        if len(outputs) == 1:
            results = [results]
        for output, result in zip(outputs, results):
            (kind, fields), = output.items()
            if kind == "as_tensors":
                values |= {field["name"]: part for field, part in zip(fields, result)}
            elif kind != "as_none":
                values[fields.get("name") or fields["as_name"]] = result

    def _value(self, argument, values):
        (kind, value), = argument.items()
        size = lambda item: item["as_int"] if "as_int" in item else values[item["as_name"]]  # noqa: E731
        match kind:
            case "as_tensor":
                return values[value["name"]]
            case "as_tensors":
                return [values[item["name"]] for item in value]
            case "as_optional_tensors":
                return [None if "as_none" in item else values[item["as_tensor"]["name"]] for item in value]
            case "as_sym_int":
                return size(value)
            case "as_sym_ints":
                return [size(item) for item in value]
            case "as_scalar_type":
                return torch.float64 if TYPES[value].is_floating_point else TYPES[value]
            case "as_none":
                return None
            case "as_device":
                return torch.device("cpu")
            case "as_layout":
                return torch.strided
            case "as_memory_format":
                return FORMATS[value]
            case "as_float":
                return float(value) if not isinstance(value, str) else math.inf * (-1 if value.startswith("-") else 1)
            case _:
                return value


def tensor_of(described):
    """A tensor of the golden batch."""
    return torch.tensor(described["values"], dtype=getattr(torch, described["dtype"])).view(described["shape"])
