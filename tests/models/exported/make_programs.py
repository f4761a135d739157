"""Writes small exported programs for the C++ tests: sound ones with a golden batch, and ones that dtrain refuses.

    make_programs.py FOLDER
"""

import copy
import json
import math
import sys
import warnings
import zipfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export, save

import mixed_heads
import odd_modules

warnings.filterwarnings("ignore")


class Images(nn.Module):
    """Convolution, BatchNorm, ReLU in place, a value that is used late, a mask in the state and one outside it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8, momentum=0.2, eps=1e-3)
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.fc1 = nn.Linear(8 * 4 * 4, 16)
        self.norm = nn.BatchNorm1d(16, affine=False)
        self.drop = nn.Dropout(0.3)
        self.fc2 = nn.Linear(16, 5)
        self.register_buffer("mask", (torch.arange(16) % 3 > 0).float())
        self.register_buffer("outside", torch.linspace(1, 2, 16), persistent=False)

    def forward(self, x):
        x = self.pool(self.act(self.bn(self.conv(x))))
        early = x.mean(dim=(1, 2, 3))
        x = F.relu_(self.depthwise(x)) + x
        x = x.view(x.size(0), -1)
        x = self.drop(F.relu(self.norm(self.fc1(x)))) * self.mask * self.outside + torch.arange(16)
        return self.fc2(x) + early[:, None]


class Words(nn.Module):
    """Tied weights, a frozen parameter, attention and an LSTM with dropout inside, a parameter that nothing uses."""

    def __init__(self, words=11, width=8, length=6):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width), requires_grad=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight
        self.spare = nn.Linear(2, 2)

    def forward(self, ids):
        n, length = ids.shape
        known = ids.ne(0)  # made early, used late
        x = self.embedding(ids) + self.places[:length]
        q, k, v = (part.view(n, length, 2, 4).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, 8))
        x = x + self.lstm(x)[0]
        return self.head(x * known[..., None])


class Views(nn.Module):
    """Writes through views, and into its own input."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.third = nn.Linear(6, 3)

    def forward(self, x):
        x[:, 0] = 1.0
        y = self.first(x)
        left = y[:, :3]
        z = self.second(x)
        left.mul_(2.0)
        return self.third(y * z)


class Residual(nn.Module):
    """BatchNorm and what is added to it: in several ways of writing it, with and without ReLU, and a sum of another shape."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.short, self.norm = nn.Conv2d(8, 8, 1, 2, bias=False), nn.BatchNorm2d(8)
        self.conv4, self.bn4 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.bn5, self.fc = nn.BatchNorm2d(8), nn.Linear(8 * 4 * 4, 5)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.act(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        y = self.bn3(self.conv3(x))
        y += self.norm(self.short(x))
        x = self.act(y)
        x = x + self.bn4(self.conv4(x))
        x = F.relu(self.bn5(F.adaptive_avg_pool2d(x, 1)) + x)
        return self.fc(x.flatten(1))


class Pooled(nn.Module):
    """A ReLU before a pool, a transposed convolution, and functions of values that nothing else uses, and of one that is."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2)
        self.up, self.hidden, self.fc = nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.Linear(4 * 8 * 8, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.conv(x)))
        y = torch.sigmoid(self.up(x)).flatten(1)
        z = self.hidden(y)
        return self.fc(torch.tanh(z) * z + torch.relu(self.hidden(y * 2)))


class Bag(nn.Module):
    """The mean of each text's real words."""

    def __init__(self, words=11, width=8, classes=5):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(words, width, padding_idx=0), nn.Linear(width, classes)

    def forward(self, ids):
        real = (ids != 0).unsqueeze(2)
        return self.fc((self.embedding(ids) * real).sum(1) / real.sum(1).clamp(min=1))


class MeanBag(nn.Module):
    """The same by nn.EmbeddingBag."""

    def __init__(self, words=11, width=8, classes=5):
        super().__init__()
        self.embedding, self.fc = nn.EmbeddingBag(words, width, padding_idx=0), nn.Linear(width, classes)

    def forward(self, ids):
        return self.fc(self.embedding(ids))


class OwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x, target):
        return F.cross_entropy(self.fc(x), target)


class Kept(nn.Module):
    """Buffers that stay, of several types; one is used by two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("keep", torch.arange(6) % 3 > 0)
        self.register_buffer("shift", torch.arange(6, dtype=torch.int8))
        self.register_buffer("scale", torch.linspace(1, 2, 6))
        self.register_buffer("exact", torch.full((6,), 1 / 3, dtype=torch.float64))

    def forward(self, x):
        x = torch.where(self.keep, self.first(x) * self.scale, torch.tensor(0.5).to(x.dtype)) + self.shift
        x = self.second(x) * self.scale
        return self.third((x.double() * self.exact).to(x.dtype))


class Scaled(nn.Module):
    def forward(self, ids):
        return ids.to(torch.float32) / 10 + ids * 0.1


class RealIds(nn.Module):
    """Its first layer has no parameters, and makes real numbers of ids."""

    def __init__(self):
        super().__init__()
        self.scaled, self.fc = Scaled(), nn.Linear(5, 5)

    def forward(self, ids):
        return self.fc(self.scaled(ids))


class Positions(nn.Module):
    """Texts of at most 16 words."""

    def __init__(self):
        super().__init__()
        self.embedding, self.fc, self.table = nn.Embedding(11, 4), nn.Linear(4, 5), nn.Parameter(torch.randn(16, 4))

    def forward(self, ids):
        return self.fc((self.embedding(ids) + self.table[:ids.shape[1]]).mean(1))


class Small(nn.Module):
    """One linear layer and what `then` does with its outputs."""

    def __init__(self, then):
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("one", torch.zeros(1), persistent=False)
        self.register_buffer("two", torch.ones(1), persistent=False)
        self.then = then

    def forward(self, x):
        return self.then(self, self.fc(x))


def count(module, y):
    module.seen.add_(y.sum(0).detach())
    return y + module.seen


def count_alone(module, y):
    module.steps.add_(1)
    return y * (module.steps / 100).clamp(max=1)


def count_behind(module, y):
    z = y / (module.steps + 1)
    module.steps.add_(1)
    return z


def write_without_gradient(module, y):
    with torch.no_grad():
        module.fc.weight[:, :2].clamp_(min=0)
    return y + module.fc.weight[:, 0]


def multiply_lists(_, y):
    z = y + 0
    torch._foreach_mul_([z], 3.0)
    return z


def branch(_, y):
    return torch.cond(y.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (y,))


def without_gradient(_, y):
    with torch.no_grad():
        scale = y.exp()
    return y * scale


def described(value):
    kind = "float64" if value.is_floating_point() else "int64"
    return {"dtype": kind, "shape": list(value.shape), "values": value.flatten().tolist()}


def golden(module, inputs, loss, target):
    double = copy.deepcopy(module).double().train()
    for part in double.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.LSTM):
            part.dropout = 0.0
    inputs = [value.double() if value.is_floating_point() else value for value in inputs]
    attention = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = lambda *a, dropout_p=0.0, **k: attention(*a, **k)
    outputs = double(*[value.clone() for value in inputs])
    F.scaled_dot_product_attention = attention
    if loss == "model":
        value = outputs
    else:
        value = F.cross_entropy(outputs.flatten(0, -2), target.flatten())
    value.backward()

    def print_of(gradient):
        flat = gradient.flatten()
        return {"norm": flat.norm().item(), "projection": torch.dot(flat, torch.arange(len(flat)).double().cos()).item()}

    return {"version": 1, "loss": loss, "dropout": "off", "inputs": [described(value) for value in inputs],
            "target": None if target is None else described(target), "value": value.item(),
            "gradients": {name: print_of(p.grad) for name, p in double.named_parameters() if p.grad is not None}}


def write(folder, name, module, inputs, loss=None, target=None, fixed=False, length=False, free=None, **how):
    batch = Dim("batch", min=2)
    free = free or ({0: batch, 1: Dim("length", min=2)} if length else {0: batch})
    shapes = None if fixed else tuple(free for _ in inputs)
    program = export(module.train(), inputs, dynamic_shapes=shapes, **how)
    extra = {}
    if loss:
        extra["dtrain_golden.json"] = json.dumps(golden(module, inputs, loss, target))
    save(program, str(folder / f"{name}.pt2"), extra_files=extra)


def changed_records(folder, name, new, changes):
    """The same archive with some records changed, each by a function of its bytes."""
    with zipfile.ZipFile(folder / f"{name}.pt2") as old, zipfile.ZipFile(folder / f"{new}.pt2", "w") as made:
        for entry in old.infolist():
            data = old.read(entry)
            inner = entry.filename.partition("/")[2]
            if inner in changes:
                data = changes[inner](data)
            if data is not None:
                made.writestr(f"{new}/{inner}", data)


def changed(folder, name, new, change, record="models/model.json"):
    changed_records(folder, name, new, {record: change})


def in_json(change):
    def apply(data):
        value = json.loads(data)
        change(value)
        return json.dumps(value).encode()
    return apply


def resized(folder, name, new, shapes):
    """The same program, whose weights have other shapes than its operators have inputs for."""
    def meta(shape):
        strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
        return {"sizes": [{"as_int": size} for size in shape], "strides": [{"as_int": stride} for stride in strides]}

    def in_model(model):
        values = model["graph_module"]["graph"]["tensor_values"]
        for entry, shape in shapes.items():
            for prefix in ("p_", "b_"):
                values.get(prefix + entry.replace(".", "_"), {}).update(meta(shape))

    with zipfile.ZipFile(folder / f"{name}.pt2") as old:
        config = json.loads(next(old.read(one) for one in old.namelist() if one.endswith("model_weights_config.json")))
    changes = {"models/model.json": in_json(in_model), "data/weights/model_weights_config.json": lambda _: json.dumps(config).encode()}
    for entry, shape in shapes.items():
        config["config"][entry]["tensor_meta"].update(meta(shape))
        size = 4 * math.prod(shape)
        changes[f"data/weights/{config['config'][entry]['path_name']}"] = lambda data, size=size: (data * (size // len(data) + 1))[:size]
    changed_records(folder, name, new, changes)


# By each, rows without anything but the lowest number.
LOWEST = {"fill": lambda y, low: y.masked_fill(y < 1e9, low), "fill_in_place": lambda y, low: (y * 1).masked_fill_(y < 1e9, low),
          "where": lambda y, low: torch.where(y < 1e9, low, y), "where_constant": lambda y, low: torch.where(y < 1e9, torch.full((), low, dtype=y.dtype), y),
          "clamp": lambda y, low: (y * 0 + low / 2).clamp(min=low)}


def main(folder):
    torch.manual_seed(1)
    rows, classes = torch.randn(4, 6), torch.tensor([0, 1, 2, 1])
    write(folder, "images", Images(), (torch.randn(4, 3, 8, 8),), "cross_entropy", torch.tensor([0, 3, 2, 4]))
    write(folder, "words", Words(), (torch.randint(11, (3, 6)),), "cross_entropy", torch.randint(11, (3, 6)))
    write(folder, "views", Views(), (rows,), "cross_entropy", classes)
    write(folder, "own_loss", OwnLoss(), (rows, classes), "model")
    write(folder, "residual", Residual(), (torch.randn(4, 3, 8, 8),), "cross_entropy", torch.tensor([0, 3, 2, 4]))
    write(folder, "pooled", Pooled(), (torch.randn(4, 3, 8, 8),), "cross_entropy", torch.tensor([0, 3, 2, 4]))
    for name, module in (("bag", Bag()), ("embedding_bag", MeanBag())):
        write(folder, name, module, (torch.tensor([[4, 2, 0, 9], [0, 0, 0, 0], [1, 1, 10, 4]]),), "cross_entropy", torch.tensor([0, 3, 4]),
              length=True)
    for kind, inputs, target in ((odd_modules.IMAGES, torch.randn(4, 3, 8, 8), torch.tensor([0, 3, 2, 4])), (odd_modules.ROWS, rows, classes),
                                 (odd_modules.TEXTS, torch.tensor([[4, 2, 0, 9, 4], [0, 0, 0, 0, 0], [1, 1, 10, 4, 3]]), torch.tensor([0, 3, 4]))):
        for name, module in kind.items():
            write(folder, name, module, (inputs,), "cross_entropy", target)
    write(folder, "turned_words", odd_modules.TurnedWords(), (torch.randint(11, (3, 5)),), "cross_entropy", torch.tensor([0, 3, 4]), length=True)
    elsewhere = odd_modules.DroppedTurned(False)
    elsewhere.load_state_dict(odd_modules.ROWS["dropped_turned"].state_dict())
    write(folder, "dropped_turned_elsewhere", elsewhere, (rows,))
    for name, fill in LOWEST.items():
        write(folder, f"lowest_{name}", Small(lambda _, y, fill=fill: fill(y, torch.finfo(y.dtype).min).softmax(1)), (rows,))
    for name, parts in (("mixed_heads", mixed_heads.ATTENTIONS), ("mixed_features", mixed_heads.PAIRS)):
        write(folder, name, mixed_heads.Mixed(parts), (torch.randn(4, mixed_heads.LENGTH, mixed_heads.WIDTH),))
    program = export(Images().eval(), (torch.randn(4, 3, 8, 8),), dynamic_shapes=({0: Dim("batch", min=2)},))
    save(program, str(folder / "evaluated.pt2"))

    write(folder, "random", Small(lambda _, y: y + torch.rand_like(y)), (rows,))
    write(folder, "branch", Small(branch), (rows,))
    write(folder, "no_grad", Small(without_gradient), (rows,))
    write(folder, "counts", Small(count), (rows,))
    write(folder, "no_grad_write", Small(write_without_gradient), (rows,))
    write(folder, "own_counter", Small(count_alone), (rows,))
    write(folder, "counted_behind", Small(count_behind), (rows,))
    write(folder, "lists", Small(multiply_lists), (rows,))
    write(folder, "turned", Small(lambda _, y: y.unsqueeze_(1).sum(1)), (rows,))
    write(folder, "running_instances", Small(lambda module, y: F.instance_norm(y.unsqueeze(1), module.one, module.two).squeeze(1)), (rows,))
    write(folder, "complex", Small(lambda _, y: torch.fft.fft(y).abs()), (rows,))
    write(folder, "strided", Small(lambda module, y: y + module.fc.weight.as_strided((3,), (2,))), (rows,))
    write(folder, "fixed", Small(lambda _, y: y), (rows,), fixed=True)
    write(folder, "plain", Small(lambda _, y: torch.sigmoid(y)), (rows,))
    write(folder, "kept", Kept(), (rows,), "cross_entropy", classes)
    write(folder, "real_ids", RealIds(), (torch.randint(11, (3, 5)),))
    any_batch, by_pytorch = Dim("batch", min=2), {0: Dim.AUTO}
    write(folder, "branch_on_batch", Small(lambda _, y: y * 2 if y.shape[0] > 8 else y), (rows,), free=by_pytorch)
    write(folder, "large_batches", Small(lambda _, y: y * 2 if y.shape[0] > 3 else y), (rows,), free=by_pytorch)
    write(folder, "limited", Small(lambda _, y: y), (rows,), free={0: Dim("batch", min=2, max=64)})
    write(folder, "even_batches", Small(lambda _, y: y * 2 if y.shape[0] % 2 == 0 else y), (rows,), free=by_pytorch)
    write(folder, "asserted", Small(lambda _, y: y * 2 if y.shape[0] % 2 == 0 else y), (rows,), free={0: any_batch},
          prefer_deferred_runtime_asserts_over_guards=True)
    write(folder, "positions", Positions(), (torch.randint(11, (3, 6)),), free={0: any_batch, 1: Dim.AUTO})
    write(folder, "unused_random", Small(lambda _, y: (y, torch.rand_like(y))), (rows,))

    def unknown(model):
        for node in model["graph_module"]["graph"]["nodes"]:
            node["target"] = node["target"].replace("aten.sigmoid", "mine.sigmoid")

    def called(target, *arguments, outputs=True):
        """The sigmoid is a call of another operator, with all the arguments that it needs."""
        def change(model):
            for node in model["graph_module"]["graph"]["nodes"]:
                if "aten.sigmoid" in node["target"]:
                    given = [{"name": name, "arg": arg, "kind": 1} for name, arg in arguments]
                    node.update(target=f"torch.ops.{target}", inputs=[one for one in node["inputs"] if one["name"] == "self"] + given)
                    if not outputs:  # what follows reads what the sigmoid was given
                        node["outputs"], made = [], node["outputs"][0]["as_tensor"]["name"]
                        read = node["inputs"][0]["arg"]["as_tensor"]["name"]
                        model["graph_module"]["graph"]["outputs"][0]["as_tensor"]["name"] = read
                        model["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"]["as_tensor"]["name"] = read
                        del model["graph_module"]["graph"]["tensor_values"][made]
        return in_json(change)

    sizes = {"as_ints": [4, 3]}
    changed(folder, "plain", "opens_files", called("aten.from_file.default", ("filename", {"as_string": str(folder / "opened")}), ("shared", {"as_bool": True}),
                                                   ("size", {"as_int": 12})))
    changed(folder, "plain", "internal", called("aten._nested_view_from_buffer.default", ("offsets", sizes)))
    changed(folder, "plain", "of_backward", called("aten.sigmoid_backward.default"))
    changed(folder, "plain", "other_space", called("inductor._reinterpret_tensor.default", ("size", sizes), ("stride", sizes)))
    changed(folder, "plain", "without_outputs", called("mine.scale_.default", outputs=False))

    def early(model):
        model["graph_module"]["graph"]["nodes"].reverse()

    def enlarged(config):
        config["config"]["fc.weight"]["tensor_meta"]["sizes"] = [{"as_int": 1 << 40}, {"as_int": 1 << 40}]

    resized(folder, "plain", "wide_weight", {"fc.weight": [3, 5000]})
    resized(folder, "images", "deep_weight", {"conv.weight": [8, 64, 3, 3]})
    resized(folder, "images", "short_statistics", {"bn.running_mean": [2], "bn.running_var": [2]})
    changed(folder, "plain", "unknown", in_json(unknown))
    changed(folder, "plain", "schema_9", in_json(lambda model: model["schema_version"].update(major=9, minor=1)))
    changed(folder, "plain", "backwards", in_json(early))
    changed(folder, "plain", "no_json", lambda data: data[:200])
    changed(folder, "plain", "no_model", lambda data: None)
    changed(folder, "plain", "large_tensor", in_json(enlarged), "data/weights/model_weights_config.json")
    changed(folder, "plain", "short_tensor", lambda data: data[:4], "data/weights/weight_0")
    changed(folder, "images", "other_golden", in_json(lambda found: found.update(value=found["value"] * (1 + 3e-5))),
            "extra/dtrain_golden.json")
    changed(folder, "images", "other_gradient", in_json(
        lambda found: found["gradients"]["bn.bias"].update(norm=found["gradients"]["bn.bias"]["norm"] * 1.001)),
            "extra/dtrain_golden.json")
    with zipfile.ZipFile(folder / "plain.pt2") as plain, zipfile.ZipFile(folder / "inflating.pt2", "w") as made:
        for entry in plain.infolist():  # LibTorch unpacks this record before it is asked for any
            packed = entry.filename.endswith("serialization_id")
            made.writestr(entry.filename, bytes(50 << 20) if packed else plain.read(entry), zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)
    whole = (folder / "plain.pt2").read_bytes()
    (folder / "truncated.pt2").write_bytes(whole[:len(whole) // 2])
    (folder / "text.pt2").write_text("this is no archive, but it is long enough to be one\n" * 4)
    (folder / "empty.pt2").write_bytes(b"")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]))
