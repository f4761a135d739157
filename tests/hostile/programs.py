"""Exported programs (.pt2): the archive, its graph, its list of weights and its golden batch, each of which may lie."""

import copy
import io
import json
import random
import zipfile
from pathlib import Path

import trained
from case import Family, nothing

FAMILY = Family("exported programs")
TRAIN_NET = ("--model", "net.pt2", "--dataset", "images", "--data-root", "{given}", "--limit-steps", "1", "--global-batch", "8", "--threads", "1",
             "--name", "out", "--quiet")
PLAIN = (Path(__file__).parent.parent / "fuzz" / "corpus" / "exported" / "plain").read_bytes()
MODEL = "archive/models/model.json"
WEIGHTS = "archive/data/weights/model_weights_config.json"
GOLDEN = "archive/extra/dtrain_golden.json"


def records():
    with zipfile.ZipFile(io.BytesIO(PLAIN)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(members, packing=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def net(content):
    def prepare(folder, given):
        (folder / "net.pt2").write_bytes(content() if callable(content) else content)
    return prepare


def with_record(name, content):
    return lambda: packed(records() | {name: content() if callable(content) else content})


def with_model(change):
    """The file after `change(model)`, model being the JSON of the graph."""
    def make():
        members = records()
        model = json.loads(members[MODEL])
        members[MODEL] = json.dumps(change(model) or model).encode()
        return packed(members)
    return make


def with_weights(change):
    def make():
        members = records()
        config = json.loads(members[WEIGHTS])
        change(config["config"])
        members[WEIGHTS] = json.dumps(config).encode()
        return packed(members)
    return make


def without(name):
    return lambda: packed({key: content for key, content in records().items() if key != name})


FAMILY.add("as it should be", net(PLAIN), *TRAIN_NET, code=0, check=trained.completed(), quick=True)
FAMILY.add("in another zip", net(lambda: packed(records())), *TRAIN_NET, code=0, check=trained.completed())

# ---- the archive ----------------------------------------------------------------------------------------------------
ARCHIVES = {
    "nothing": b"", "noise": random.Random(1).randbytes(40_000), "text": b"import torch\n" * 100, "only an end": b"PK\5\6" + bytes(18), "a zip of nothing": packed({}),
    "half of it": PLAIN[: len(PLAIN) // 2], "its second half": PLAIN[len(PLAIN) // 2:], "without a graph": without(MODEL), "without a list of weights": without(WEIGHTS),
    "without a weight": without("archive/data/weights/weight_4"), "without a version": without("archive/.data/version"),
    "a version of 999999": with_record("archive/.data/version", b"999999\n"), "a version of control characters": with_record("archive/.data/version", b"\x1b[2J\n"),
    "a short weight": with_record("archive/data/weights/weight_4", bytes(8)), "an empty weight": with_record("archive/data/weights/weight_4", b""),
    "big-endian": with_record("archive/byteorder", b"big"), "a graph of 300 MB": with_record(MODEL, lambda: b" " * (300 << 20)),
    "a graph of noise": with_record(MODEL, b"\x1b[2J" * 99), "an empty graph": with_record(MODEL, b""), "a graph of null": with_record(MODEL, b"null"),
    "a graph of a list": with_record(MODEL, b"[]"), "a graph of depth 100000": with_record(MODEL, b"[" * 100_000), "ten million numbers": with_record(MODEL, lambda: b"[" + b"1," * 10_000_000 + b"1]"),
    "a list of weights of depth 100000": with_record(WEIGHTS, b'{"config":' * 100_000), "a list of weights of nothing": with_record(WEIGHTS, b"{}"),
    "TorchScript": lambda: packed({"archive/data.pkl": b"\x80\2.", "archive/code/net.py": b"x", "archive/version": b"3\n", "archive/.data/version": b"3\n"}),
    "packed a thousandfold": lambda: packed(records() | {MODEL: b" " * (250 << 20) + records()[MODEL]}, zipfile.ZIP_DEFLATED),
    "an id that unpacks to 250 MB": lambda: packed(records() | {"archive/.data/serialization_id": bytes(250 << 20)}, zipfile.ZIP_DEFLATED),
    "a code that Python would run": with_record("archive/data/weights/weight_0", b"cos\nsystem\n(S'touch /tmp/dtrain-pwned'\ntR."),
}
for name, content in ARCHIVES.items():
    FAMILY.add(f"the file: {name}", net(content), *TRAIN_NET, code={0, 2, 4} if name in ("big-endian", "without a version") else 4 if name not in ("TorchScript",) else {2, 4},
               check=trained.completed(), quick=name in ("packed a thousandfold", "a graph of depth 100000"))


# ---- the graph ------------------------------------------------------------------------------------------------------
def graph(model):
    return model["graph_module"]["graph"]


def node(model, target):
    return next(each for each in graph(model)["nodes"] if target in each["target"])


def argument(model, target, name):
    return next(each for each in node(model, target)["inputs"] if each["name"] == name)


def argument_set(target, name, value):
    def change(model):
        argument(model, target, name)["arg"] = value
    return change


def target_set(target, new):
    def change(model):
        node(model, target)["target"] = new
    return change


def sizes_set(tensor, sizes):
    def change(model):
        graph(model)["tensor_values"][tensor]["sizes"] = sizes
    return change


def added(target, inputs, output="extra", sizes=(2,)):
    """A node before all others, whose output is a new tensor: the convolution's bias."""
    def change(model):
        argument(model, "conv2d", "bias")["arg"] = {"as_tensor": {"name": output}}
        meta = copy.deepcopy(graph(model)["tensor_values"]["x"])
        meta["sizes"] = [{"as_int": size} for size in sizes]
        graph(model)["tensor_values"][output] = meta
        made = copy.deepcopy(node(model, "conv2d"))
        made.update(target=target, name=output, outputs=[{"as_tensor": {"name": output}}],
                    inputs=[{"name": name, "arg": value, "kind": 1} for name, value in inputs.items()])
        graph(model)["nodes"].insert(0, made)
    return change


def used_before(model):
    graph(model)["nodes"].reverse()


def repeated(model):
    graph(model)["nodes"] *= 2


def unknown_value(model):
    node(model, "conv2d")["inputs"][0]["arg"] = {"as_tensor": {"name": "\x1b[2Jghost"}}


def itself(model):
    node(model, "conv2d")["inputs"][0]["arg"] = {"as_tensor": {"name": "conv2d"}}


def no_nodes(model):
    graph(model)["nodes"] = []


def no_outputs(model):
    model["graph_module"]["signature"]["output_specs"] = []


def no_inputs(model):
    model["graph_module"]["signature"]["input_specs"] = []


def output_is_weight(model):
    model["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = {"as_tensor": {"name": "p_conv_weight"}}


def schema(major):
    def change(model):
        model["schema_version"]["major"] = major
    return change


def many_nodes(model):
    relu = next(each for each in graph(model)["nodes"] if "relu" in each["target"])
    place = graph(model)["nodes"].index(relu)
    graph(model)["nodes"][place:place] = [copy.deepcopy(relu) | {"target": "torch.ops.aten.relu_.default", "name": f"r{i}",
                                          "outputs": [{"as_tensor": {"name": f"r{i}"}}]} for i in range(20_000)]
    graph(model)["tensor_values"] |= {f"r{i}": graph(model)["tensor_values"]["conv2d"] for i in range(20_000)}


def long_names(model):
    text = json.dumps(model).replace("p_conv_weight", "x" * 100_000)
    return json.loads(text)


def deep_expression(model):
    sizes_set("conv2d", [{"as_expr": {"expr_str": "Add(" * 5000 + "1" + ")" * 5000, "hint": None}}])(model)


INT = lambda value: {"as_int": value}
GRAPHS = {
    "an operator that is none": target_set("conv2d", "torch.ops.aten.frobnicate.default"), "an operator of control characters": target_set("conv2d", "\x1b[2J\x07"),
    "an operator of Python": target_set("conv2d", "os.system"), "an operator that reads files": target_set("conv2d", "torch.ops.aten.from_file.default"),
    "an operator that prints": target_set("relu_", "torch.ops.aten._print.default"), "an empty operator": target_set("relu_", ""),
    "a random operator": target_set("relu_", "torch.ops.aten.bernoulli.default"), "an operator that resizes": target_set("relu_", "torch.ops.aten.resize_.default"),
    "an operator on raw memory": target_set("relu_", "torch.ops.aten.set_.default"),
    "values before they are made": used_before, "all nodes twice": repeated, "an unknown value": unknown_value, "a node that uses itself": itself, "no nodes": no_nodes,
    "no outputs": no_outputs, "no inputs": no_inputs, "a weight as output": output_is_weight, "schema 0": schema(0), "schema 2^40": schema(2**40), "a schema of text": schema("8"),
    "20000 nodes": many_nodes, "a name of 100 KB": long_names, "a size of depth 5000": deep_expression,
    "a negative size": sizes_set("p_conv_weight", [INT(-2), INT(1), INT(3), INT(3)]), "sizes whose product wraps": sizes_set("p_conv_weight", [INT(2**62), INT(4), INT(3), INT(3)]),
    "a view into other numbers": argument_set("view", "size", {"as_ints": [INT(7), INT(13)]}), "a view of 2^62": argument_set("view", "size", {"as_ints": [2**62, 2, -1]}),
    "a view of -5": argument_set("view", "size", {"as_ints": [-5, 2, -1]}),
    "a select beyond the end": argument_set("select.int", "index", INT(2**40)), "a select before the begin": argument_set("select.int", "index", INT(-(2**40))),
    "a dim of 2^62": argument_set("unsqueeze", "dim", INT(2**62)), "dropout of 7": argument_set("dropout.default", "p", {"as_float": 7.0}),
    "dropout of NaN": argument_set("dropout.default", "p", {"as_float": "NaN"}), "attention's dropout of -1": argument_set("scaled_dot", "dropout_p", {"as_float": -1.0}),
    "text for a number": argument_set("dropout.default", "p", {"as_string": "\x1b[2J"}), "a tensor for a number": argument_set("dropout.default", "p", {"as_tensor": {"name": "x"}}),
    "an argument of two kinds": argument_set("dropout.default", "p", {"as_float": 0.1, "as_int": 1}), "an argument of no kind": argument_set("dropout.default", "p", {}),
    "an argument of an unknown kind": argument_set("dropout.default", "p", {"as_\x1b[2J": 1}),
    "batch_norm without training": argument_set("batch_norm", "training", {"as_bool": False}), "a batch_norm's epsilon of NaN": argument_set("batch_norm", "eps", {"as_float": "NaN"}),
    "a batch_norm's momentum of 1e300": argument_set("batch_norm", "momentum", {"as_float": 1e300}),
    "zeros of a negative size": argument_set("aten.zeros", "size", {"as_ints": [2, -8, 2]}),
    "a view of a weight beyond its end": added("torch.ops.aten.as_strided.default", {"self": {"as_tensor": {"name": "p_conv_bias"}}, "size": {"as_ints": [2]},
                                                                                  "stride": {"as_ints": [1]}, "storage_offset": INT(2**30)}),
    "a view of a weight before its begin": added("torch.ops.aten.as_strided.default", {"self": {"as_tensor": {"name": "p_conv_bias"}}, "size": {"as_ints": [2]},
                                                                                    "stride": {"as_ints": [1]}, "storage_offset": INT(-4)}),
    "a gather beyond the end": added("torch.ops.aten.select.int", {"self": {"as_tensor": {"name": "p_lstm_weight_ih_l0"}}, "dim": INT(0), "index": INT(1000)}),
}
for name, change in GRAPHS.items():
    # What dtrain cannot see before it trains may end by its loss, or by LibTorch's own refusal.
    may_run = name in ("batch_norm without training", "20000 nodes", "a batch_norm's momentum of 1e300", "a batch_norm's epsilon of NaN", "a weight as output", "a name of 100 KB",
                       "a select before the begin", "a size of depth 5000", "a node that uses itself")
    FAMILY.add(f"the graph: {name}", net(with_model(change)), *TRAIN_NET, code={0, 1, 2, 4} if may_run else {2, 4},
               quick=name in ("an operator that reads files", "a view of a weight beyond its end"))


# Operators that a forward pass has no use for, with all their arguments as they should be.
BIAS, TRUE = {"as_tensor": {"name": "p_conv_bias"}}, {"as_bool": True}
REFUSED = {
    "a file that is opened": ("aten.from_file", {"filename": {"as_string": "opened"}, "shared": TRUE, "size": INT(2)}),
    "memory seen otherwise": ("inductor._reinterpret_tensor", {"self": BIAS, "size": {"as_ints": [2]}, "stride": {"as_ints": [1]}, "offset_increment": INT(2**30)}),
    "a view of a buffer": ("aten._nested_view_from_buffer", {"self": BIAS, "nested_size": BIAS, "nested_strides": BIAS, "offsets": BIAS}),
    "packed weights": ("aten.fbgemm_linear_fp16_weight", {"input": BIAS, "packed_weight": BIAS, "bias": BIAS}),
    "sparse without checks": ("aten._sparse_coo_tensor_unsafe", {"indices": BIAS, "values": BIAS, "size": {"as_ints": [2]}}),
    "another's operators": ("mkldnn._is_mkldnn_bf16_supported", {}), "a backward pass": ("aten.embedding_dense_backward", {
        "grad_output": BIAS, "indices": BIAS, "num_weights": INT(2), "padding_idx": INT(-1), "scale_grad_by_freq": TRUE}),
}
for name, (target, inputs) in REFUSED.items():
    FAMILY.add(f"the graph: {name}", net(with_model(added(f"torch.ops.{target}.default", inputs))), *TRAIN_NET, code=2, says=(target.split(".")[1],),
               after=lambda folder, given, output: "the file was made" if (folder / "opened").exists() else "", quick=name == "a file that is opened")


# A program is a computation: its operators may take any memory. --memory-limit bounds it.
BOUNDED = (*TRAIN_NET, "--memory-limit", "256MiB")
LARGE = {
    "zeros of 2^40": argument_set("aten.zeros", "size", {"as_ints": [2, 2**40, 2]}), "zeros of 16 GB": argument_set("aten.zeros", "size", {"as_ints": [2, 2**30, 2]}),
    "a new tensor of 64 GB": added("torch.ops.aten.ones.default", {"size": {"as_ints": [2**34]}}, sizes=(2**34,)),
    "an expansion to 2^50 that is written out": added("torch.ops.aten.repeat.default", {"self": {"as_tensor": {"name": "p_conv_bias"}}, "repeats": {"as_ints": [2**49]}}, sizes=(2**50,)),
}
for name, change in LARGE.items():
    FAMILY.add(f"the graph: {name}", net(with_model(change)), *BOUNDED, code={1, 2, 4}, quick=name == "a new tensor of 64 GB")


# ---- the list of weights --------------------------------------------------------------------------------------------
def meta_set(name, **facts):
    return lambda config: config[name]["tensor_meta"].update(facts)


def entry_set(name, **facts):
    return lambda config: config[name].update(facts)


WEIGHT_LISTS = {
    "a negative stride": meta_set("conv.weight", strides=[INT(-9), INT(9), INT(3), INT(1)]), "a stride of 2^62": meta_set("conv.weight", strides=[INT(2**62), INT(9), INT(3), INT(1)]),
    "an offset beyond the end": meta_set("conv.weight", storage_offset=INT(2**40)), "a negative offset": meta_set("conv.weight", storage_offset=INT(-1)),
    "an offset that wraps": meta_set("conv.weight", storage_offset=INT(2**63 - 1)), "fewer strides than sizes": meta_set("conv.weight", strides=[INT(1)]),
    "an unknown type": meta_set("conv.weight", dtype=999), "a type of text": meta_set("conv.weight", dtype="\x1b[2J"), "whole numbers to train": meta_set("conv.weight", dtype=5),
    "a size of 2^62": meta_set("conv.weight", sizes=[INT(2**62), INT(1), INT(3), INT(3)]), "sizes that are expressions": meta_set("conv.weight", sizes=[{"as_expr": {"expr_str": "1"}}] * 4),
    "a pickled weight": entry_set("conv.weight", use_pickle=True), "a path that climbs": entry_set("conv.weight", path_name="../../../../etc/passwd"),
    "an absolute path": entry_set("conv.weight", path_name="/etc/passwd"), "a path of the graph": entry_set("conv.weight", path_name="../../models/model.json"),
    "a path of 100 KB": entry_set("conv.weight", path_name="x" * 100_000), "two weights of one record and other shapes": entry_set("conv.bias", path_name="weight_0"),
    "a weight left out": lambda config: config.pop("lstm.weight_hh_l0"), "a name of control characters": lambda config: config.update({"\x1b[2J": config.pop("conv.weight")}),
}
for name, change in WEIGHT_LISTS.items():
    FAMILY.add(f"weights: {name}", net(with_weights(change)), *TRAIN_NET, code={0, 2, 4} if name == "a path of the graph" else {2, 4}, quick=name == "a path that climbs")
NAN = b"\0\0\xc0\x7f"
FAMILY.add("weights: values that are not numbers", net(with_record("archive/data/weights/weight_0", NAN * 18)), *TRAIN_NET, code={1, 2, 4})

# ---- the golden batch -----------------------------------------------------------------------------------------------
GOOD = {"version": 1, "loss": "cross_entropy", "dropout": "off", "inputs": [{"name": "x", "dtype": "float64", "shape": [2, 1, 4, 4], "values": [0.5] * 32}],
        "target": {"dtype": "int64", "shape": [2], "values": [0, 1]}, "value": 1.0, "gradients": {}}
INPUT = GOOD["inputs"][0]
GOLDENS = {
    "another loss": GOOD, "a loss of NaN": GOOD | {"value": None}, "a shape of 2^60": GOOD | {"inputs": [INPUT | {"shape": [2**60, 16]}]},
    "a negative shape": GOOD | {"inputs": [INPUT | {"shape": [-2, 1, 4, -4]}]}, "a shape whose product wraps": GOOD | {"inputs": [INPUT | {"shape": [2**32, 2**32, 32]}]},
    "other images": GOOD | {"inputs": [INPUT | {"shape": [2, 16]}]}, "no inputs": GOOD | {"inputs": []}, "two inputs": GOOD | {"inputs": [INPUT, INPUT]},
    "a class beyond the last": GOOD | {"target": {"dtype": "int64", "shape": [2], "values": [0, 2**40]}}, "a negative class": GOOD | {"target": {"dtype": "int64", "shape": [2], "values": [0, -5]}},
    "targets of another number": GOOD | {"target": {"dtype": "int64", "shape": [1], "values": [0]}}, "no target": GOOD | {"target": None}, "text": GOOD | {"value": "\x1b[2J"},
    "an unknown loss": GOOD | {"loss": "\x1b[2J"}, "a gradient without numbers": GOOD | {"gradients": {"conv.weight": {}}}, "version 7": GOOD | {"version": 7},
    "values of text": GOOD | {"inputs": [INPUT | {"values": ["a"] * 32}]}, "values beyond 64 bits": GOOD | {"target": {"dtype": "int64", "shape": [2], "values": [0, 1e300]}},
}
for name, content in GOLDENS.items():
    FAMILY.add(f"golden: {name}", net(with_record(GOLDEN, json.dumps(content).encode())), *TRAIN_NET, code={2, 4}, quick=name == "a class beyond the last")
FAMILY.add("golden: depth 100000", net(with_record(GOLDEN, b"[" * 100_000)), *TRAIN_NET, code=4)

# ---- bytes changed by chance ----------------------------------------------------------------------------------------
for seed in range(25):
    def mutated(seed=seed):
        content = bytearray(PLAIN)
        chance = random.Random(seed)
        for _ in range(chance.choice((1, 4, 16))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        return bytes(content)
    FAMILY.add(f"bytes changed, {seed}", net(mutated), *TRAIN_NET, code={0, 1, 2, 4})
for name, words in {"a table instead of images": ("--dataset", "table"), "tensor=2": ("--mesh", "tensor=2"), "a loss that does not fit": ("--loss", "mse"),
                    "a model option": ("--model-option", "hidden=8")}.items():
    FAMILY.add(f"with {name}", net(PLAIN), *TRAIN_NET, *words, code={2, 4} if name != "a table instead of images" else {2, 3, 4})
FAMILY.add("the words: a file in a folder that is not there", nothing, *TRAIN_NET[2:], "--model", "gone/net.pt2", code=2)
