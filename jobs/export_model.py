"""Exports a PyTorch module into a file that `dtrain --model NET.pt2` trains. Needs PyTorch alone.

    from export_model import export_model
    export_model(net, torch.randn(4, 3, 32, 32), "net.pt2", loss="cross_entropy")

    python3 jobs/export_model.py mynets:make_net net.pt2 --shape 3,32,32 --loss cross_entropy

The file is an ordinary one of torch.export.save, which torch.export.load reads. It holds the module in training mode, with
a first dim that takes any batch, and one golden batch: inputs, loss and gradients that dtrain computes again when it loads
the file. A module that dtrain cannot train is refused with the line of Python and what to write instead.
"""

import argparse
import contextlib
import copy
import importlib
import importlib.util
import inspect
import io
import json
import logging
import math
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

LOSSES = ("cross_entropy", "mse", "mae", "model")
GOLDEN_FILE = "dtrain_golden.json"
TRAINING_FILE = "dtrain_in_training"  # a part that is in evaluation mode all the same stays so
GOLDEN_SAMPLES = 8  # most samples of the golden batch
TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
# Operators that draw random numbers and that dtrain replaces by its own, whose masks do not depend on the ranks.
OWN_RANDOM = ("aten.dropout.default", "aten.dropout_.default", "aten.scaled_dot_product_attention.default", "aten.lstm.input")
SAME_VALUES = ("aten.dropout.default", "aten.dropout_.default", "aten.contiguous.default", "aten.clone.default", "aten.alias.default", "aten.detach.default")
# Of modules that wrap a part of the forward pass: what to write instead.
WRAPPED = {"set_grad_enabled": "use x.detach() in place of torch.no_grad() or torch.set_grad_enabled()",
           "autocast": "leave autocast out and use dtrain's --precision bf16",
           "cond": "compute both sides and choose with torch.where", "while_loop": "use a Python loop of fixed length",
           "scan": "use a Python loop of fixed length", "map": "use operators on the whole batch"}


class NotExportable(ValueError):
    """The module cannot become a program for dtrain; the text says where and what to write instead."""


def export_model(module, example_inputs, path, *, loss="cross_entropy", target=None, sequence_dim=None, golden=True, operators=()):
    """Writes `module` as a program that `dtrain --model PATH` trains, and returns the torch.export.ExportedProgram.

    module          any torch.nn.Module on the CPU. All of it is exported in training mode; it is left as it was.
    example_inputs  a tensor, or a tuple of the positional arguments of forward: tensors [N, ...] with N >= 2.
    path            the file to write; its name ends in .pt2.
    loss            of the first output: "cross_entropy" ([N, C] with targets [N]; [N, T, V] with [N, T]; [N, C, H, W] with
                    [N, H, W]), "mse" or "mae" (targets as the output), or "model": the last input is the targets, and
                    the output is the mean loss of the batch.
    target          targets of the golden batch; without them random ones of the right shape.
    sequence_dim    the dim of the inputs that varies from batch to batch as well, such as 1 for texts [N, T].
    golden          False leaves the golden batch out.
    operators       namespaces of your own operators (torch.library), such as ("mine",): training needs --plugin with the
                    library that registers them.

    Throws NotExportable with one sentence.
    """
    path = Path(path)
    inputs = _checked_inputs(example_inputs)
    if path.suffix != ".pt2":
        raise NotExportable(f"the file's name must end in .pt2, and {path.name} does not")
    if loss not in LOSSES:
        raise NotExportable(f"the loss '{loss}' is none of {', '.join(LOSSES)}")
    with _training(module):
        program = _exported(module, inputs, sequence_dim)
        check_program(program, loss, operators)
        extra = {TRAINING_FILE: "1"}
        if golden:
            extra[GOLDEN_FILE] = json.dumps(golden_batch(module, inputs, loss, target))
        if loss != "model":
            _warn_of_other_branches(module, inputs, sequence_dim, program)
    # The file appears at once and whole. The folder in the archive has the file's name, therefore another folder for it.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
        torch.export.save(program, str(Path(folder, path.name)), extra_files=extra)
        os.replace(Path(folder, path.name), path)
    return program


def _checked_inputs(example_inputs):
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    if not inputs or not all(isinstance(value, torch.Tensor) for value in inputs):
        raise NotExportable("example_inputs must be tensors: move every other argument of forward into the module's constructor")
    sizes = [value.shape[0] if value.dim() else 0 for value in inputs]
    if min(sizes) < 2 or max(sizes) != min(sizes):
        raise NotExportable(f"the first dim of every example input is the batch, of one size and at least 2; here it is "
                            f"{', '.join(map(str, sizes))}")
    return inputs


@contextlib.contextmanager
def _training(module):
    """All of the module in training mode; afterwards each part as before."""
    modes = {part: part.training for part in module.modules()}
    module.train()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


@contextlib.contextmanager
def _quiet():
    """Without the pages that PyTorch logs about a failed export: the exception has what matters."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _recurrent_shapes():
    """While it lasts, shapes are all that LSTM, GRU and RNN compute. PyTorch 2.11 runs through their steps instead, which ties the
    program to the example's length, and takes the last state of an LSTM for one of four dims."""
    def shapes_of(inputs, state, parameters, has_biases, layers, dropout, train, bidirectional, batch_first):
        states = [state] if isinstance(state, torch.Tensor) else state
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        return inputs.new_empty((*inputs.shape[:2], width)), *map(torch.empty_like, states)

    operators = [getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")]
    kernels = [dict(operator.py_kernels) for operator in operators]
    for operator in operators:
        operator.py_kernels.update(dict.fromkeys(operator.py_kernels, shapes_of))
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, former in zip(operators, kernels):
            operator.py_kernels.update(former)
            operator._dispatch_cache.clear()


def _exported(module, inputs, sequence_dim):
    batch = torch.export.Dim("batch", min=2)
    dims = {0: batch}
    if sequence_dim is not None:
        if any(value.dim() <= sequence_dim for value in inputs):
            raise NotExportable(f"sequence_dim is {sequence_dim}, and an example input has only {min(v.dim() for v in inputs)} dims")
        # AUTO takes the longest length that the module allows, as tables of positions limit it.
        dims[sequence_dim] = torch.export.Dim.AUTO
    try:
        with _quiet(), _recurrent_shapes():
            return torch.export.export(module, inputs, dynamic_shapes=tuple(dict(dims) for _ in inputs))
    except Exception as error:  # PyTorch's own kinds of errors, of the module's, or of Python's
        raise NotExportable(_why_not(module, error, inputs[0].shape[0])) from error


def _warn_of_other_branches(module, inputs, sequence_dim, program):
    """Warns where the module would compute something else in evaluation mode. Of a copy: eval() of some modules changes their weights."""
    try:
        other = _exported(copy.deepcopy(module).eval(), inputs, sequence_dim)
    except Exception:  # what cannot be copied or exported so has no other branch that dtrain could know of
        return
    trained, evaluated = _computed(program), _computed(other)
    if [call for call, _ in trained] == [call for call, _ in evaluated]:
        return
    place = next((node for (call, node), (theirs, _) in zip(trained, evaluated) if call != theirs), None)
    warnings.warn(f"{type(module).__name__} computes something else in evaluation mode{place_of(place) if place else ''}: dtrain "
                  "evaluates and predicts as it trains, so leave 'if self.training' out of forward", stacklevel=3)


def _computed(program):
    """The operators that the first output depends on, each with its plain numbers, and their nodes. What differs between the modes
    anyway, and is dtrain's own, is left out."""
    reached, todo = set(), [value for value in program.graph.output_node().args[0] if isinstance(value, torch.fx.Node)][:1]
    while todo:
        node = todo.pop()
        if node not in reached:
            reached.add(node)
            todo.extend(node.all_input_nodes)
    found = []
    for node in program.graph.nodes:
        if node.op == "call_function" and node in reached and str(node.target) not in SAME_VALUES:
            own = str(node.target) in OWN_RANDOM or "norm" in str(node.target)
            found.append(((str(node.target), () if own else tuple(repr(arg) for arg in node.args if type(arg) in (float, int))), node))
    return found


def _why_not(module, error, samples):
    name, text = type(module).__name__, str(error)
    place = _place_of_error(error, text)
    if "data-dependent" in text:
        return (f"{name} branches on the values of a tensor{place}: use torch.where on whole tensors in place of if, while, "
                ".item(), int() and bool()")
    if re.search(rf"specialized it to be a constant \({samples}\)", text):
        return (f"{name} works for a batch of {samples} alone: take the batch from x.shape[0], or use flatten(1) and "
                "unflatten(1, ...), in place of a number")
    if "Constraints violated" in text:
        limit = re.search(r"Not all values of (\w+) = .* satisfy the generated guard (.*)", text)
        return (f"{name} does not take every batch" + (f" ({limit[2]})" if limit else f": {_first_line(text)}") +
                ": no table and no size may depend on the number of samples")
    return f"PyTorch cannot export {name}{place}: {type(error).__name__}: {_first_line(text)}"


def _first_line(text):
    lines = [line.strip(" -") for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:300]


def _user_frame(frames):
    """Of (file, line) pairs the innermost that is not PyTorch's; an empty text where there is none."""
    users = [frame for frame in frames if not frame[0].startswith((TORCH_FOLDER, "<")) and Path(frame[0]).name != Path(__file__).name]
    return f" ({users[-1][0]}, line {users[-1][1]})" if users else ""


def _place_of_error(error, text):
    found = re.findall(r'File "([^"]+)", line (\d+), in (?:forward|\w+)', text)
    frames, trace = [], error.__traceback__
    while trace:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _user_frame(frames) or _user_frame(found)


def place_of(node):
    """Where in the module and in the user's Python a node comes from: " in PATH (FILE, line N)"."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return (f" in {path}" if path else "") + _user_frame(frames)


# ---- what dtrain does not run ----------------------------------------------------------------------------------------
def check_program(program, loss, operators=()):
    """Throws NotExportable at the first node, buffer, size or type of an exported program that dtrain does not train."""
    if program.graph_signature.buffers_to_mutate:
        raise NotExportable("the program is functional: export it with torch.export.export alone, without run_decompositions()")
    symbols = [_batch_symbol(program, node) for node in _user_inputs(program)]
    output = _first_output(program)
    _check_operators(program, operators)
    _check_buffers(program)
    _check_types(program)
    if loss == "model":
        if output.dim() != 0:
            raise NotExportable(f"with loss='model' the output is the mean loss, a scalar; here it has the shape {_shape(output)}")
        if not output.dtype.is_floating_point:
            raise NotExportable(f"with loss='model' the output is the mean loss; here it is of {output.dtype}")
    elif output.dim() == 0 or not _is_batch(output.shape[0], symbols[0]):
        raise NotExportable(f"the first output must have the batch as its first dim; here its shape is {_shape(output)}")


def _user_inputs(program):
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]


def _shape(value):
    return "[" + ", ".join(map(str, value.shape)) + "]"


def _batch_symbol(program, node):
    size = node.meta["val"].shape[0]
    if isinstance(size, int):
        raise NotExportable(f"the batch of the input {node.name} is fixed at {size}: export with "
                            "dynamic_shapes={0: torch.export.Dim('batch', min=2)}")
    limits = program.range_constraints.get(size.node.expr)
    if limits is not None and int(limits.lower) > 2 or limits is not None and limits.upper < 2**31:
        raise NotExportable(f"the module takes batches from {limits.lower} to {limits.upper} only: take the batch from x.shape[0]")
    return str(size)


def _is_batch(size, symbol):
    """Is a size the batch, also where PyTorch writes it as an expression, such as (s0*s1 + s1 - 1)//s1 of nn.EmbeddingBag?"""
    if isinstance(size, int):
        return False
    expression = size.node.expr
    return all(expression.subs({one: batch if one.name == symbol else other for one in expression.free_symbols}) == batch
               for batch, other in ((3, 5), (7, 2), (16, 11)))


def _first_output(program):
    for value in program.graph.output_node().args[0]:
        if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
            return value.meta["val"]
    raise NotExportable("the module returns no tensor: return its outputs, or with loss='model' the mean loss")


def _check_operators(program, operators):
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            advice = next((text for part, text in WRAPPED.items() if part in str(target)), "use plain operators")
            raise NotExportable(f"dtrain does not run the operator {target}{place_of(node)}: {advice}")
        if not isinstance(target, torch._ops.OpOverload):
            continue  # Python's arithmetic on sizes
        if target.namespace != "aten" and target.namespace not in operators:
            raise NotExportable(f"the operator {target} is not PyTorch's own{place_of(node)}: use PyTorch's operators, or export "
                                f"with operators=('{target.namespace}',) and train with --plugin")
        if torch.Tag.nondeterministic_seeded in target.tags and str(target) not in OWN_RANDOM and _draws(node):
            raise NotExportable(f"the operator {target} draws random numbers{place_of(node)}: use nn.Dropout, attention's or "
                                "nn.LSTM's dropout, or random numbers that come with the data")
        if str(target) == "aten.instance_norm.default" and len(node.args) > 3 and node.args[3] is not None:
            raise NotExportable(f"the operator {target} keeps running statistics{place_of(node)}: use track_running_stats=False")
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and _from_data(value):
            raise NotExportable(f"{target} reads a value of a tensor{place_of(node)}: leave it a tensor of one element, without "
                                ".item(), int() and float()")
        if isinstance(value, torch.Tensor) and value.is_complex():
            raise NotExportable(f"{target} gives complex numbers{place_of(node)}, which dtrain does not train: compute with real "
                                "ones, such as products with tables of cosines and sines")
        if isinstance(value, torch.Tensor) and any(_from_data(size) for size in value.shape):
            raise NotExportable(f"the size of what {target} returns depends on values{place_of(node)}: use masks and "
                                "torch.where in place of boolean indices and nonzero()")


def _from_data(size):
    """Is a number one that only the values of a tensor tell? Sizes of inputs have symbols that begin with s."""
    return not isinstance(size, int) and any(symbol.name.startswith(("u", "z")) for symbol in size.node.expr.free_symbols)


def _draws(node):
    """Does a node with a probability draw anything? A GRU without dropout does not."""
    named = dict(zip((argument.name for argument in node.target._schema.arguments), node.args)) | node.kwargs
    return not any(named.get(name) == 0 for name in ("p", "dropout", "dropout_p"))


def _check_buffers(program):
    """Only batch_norm and its counter may change a buffer: dtrain does both once per step, whatever the micro-batches."""
    signature = program.graph_signature
    buffers = signature.inputs_to_buffers
    behind = {node: buffers.get(node.name) for node in program.graph.nodes if node.op == "placeholder"}
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, value in zip(node.target._schema.arguments, node.args):
            name = behind.get(value) if isinstance(value, torch.fx.Node) else None
            if name is None or argument.alias_info is None:
                continue
            if not argument.alias_info.is_write:
                behind[node] = name  # a view of the buffer
            elif not (str(node.target) == "aten.add_.Tensor" and name.split(".")[-1] == "num_batches_tracked"):
                raise NotExportable(f"the buffer {name} changes in the forward pass{place_of(node)}: only BatchNorm's statistics "
                                    "may; make it a parameter, or compute it from the inputs")
            else:
                behind[node] = name


def _check_types(program):
    for name, value in [*program.state_dict.items(), *program.constants.items()]:
        if isinstance(value, torch.Tensor) and (value.is_complex() or value.is_quantized or value.layout != torch.strided):
            raise NotExportable(f"{name} is of {value.dtype}, {value.layout}: dtrain trains dense numbers that are not complex")
    if not any(value.requires_grad for value in program.parameters()):
        raise NotExportable("the module has no parameter that requires a gradient: there is nothing to train")


# ---- the golden batch ------------------------------------------------------------------------------------------------
class _NoDropout(TorchFunctionMode):
    """Every dropout with the probability 0, also inside attention and LSTM."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name in ("dropout", "dropout_"):
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":  # query, key, value, mask, probability, causal
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        elif name == "multi_head_attention_forward":
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.arguments["dropout_p"] = 0.0
            args, kwargs = bound.args, bound.kwargs
        elif name == "lstm":  # input, state, weights, with biases, layers, probability, ...
            args = (*args[:5], 0.0, *args[6:])
        return function(*args, **kwargs)


def mean_loss(loss, outputs, targets):
    """The mean loss of a batch as dtrain defines it; `outputs` are a module's, the first tensor counts."""
    output = next(value for value in pytree.tree_leaves(outputs) if isinstance(value, torch.Tensor))
    if loss == "model":
        return output
    if loss == "cross_entropy":
        if output.dim() == 3:  # [N, T, V] with [N, T]
            return F.cross_entropy(output.flatten(0, 1), targets.flatten())
        return F.cross_entropy(output, targets)
    return (F.mse_loss if loss == "mse" else F.l1_loss)(output, targets.view_as(output))


def random_targets(loss, output):
    """Targets that fit an output, the same ones for the same shape."""
    generator = torch.Generator().manual_seed(1)
    if loss != "cross_entropy":
        return torch.randn(output.shape, generator=generator, dtype=output.dtype)
    if output.dim() < 2:
        raise NotExportable(f"cross_entropy needs an output with a dim of classes; here its shape is {_shape(output)}; "
                            "of a regression the loss is mse, here by --loss mse")
    classes = output.shape[2] if output.dim() == 3 else output.shape[1]
    shape = output.shape[:2] if output.dim() == 3 else (output.shape[0], *output.shape[2:])
    return torch.randint(classes, shape, generator=generator)


def golden_batch(module, inputs, loss, target):
    """Inputs, mean loss and, of each parameter's gradient, norm and projection on cos(0), cos(1), ..., all in float64."""
    try:
        double = copy.deepcopy(module).double().train()
    except Exception as error:
        raise NotExportable(f"{type(module).__name__} cannot be copied, which the golden batch needs: {_first_line(str(error))}; "
                            "or leave the golden batch out with golden=False") from error
    # Four digits keep the file short, and float64 represents what is written exactly.
    inputs = [_rounded(value[:GOLDEN_SAMPLES]) for value in inputs]
    try:
        with _NoDropout(), _quiet():
            outputs = double(*(value.clone() for value in inputs))  # forward may write to them
            if loss == "model":
                target = None
            else:
                first = next(value for value in pytree.tree_leaves(outputs) if isinstance(value, torch.Tensor))
                target = random_targets(loss, first) if target is None else _rounded(target[:GOLDEN_SAMPLES])
            value = mean_loss(loss, outputs, target)
            value.backward()
    except NotExportable:
        raise
    except Exception as error:
        if "'indices'" in str(error):
            raise NotExportable(f"{type(module).__name__} takes ids{_place_of_error(error, '')}, and an example input has real "
                                "numbers: give whole ones, here by --dtype int64 --below N, N ids being known") from error
        raise NotExportable(f"{type(module).__name__} does not run in float64 with {loss}{_place_of_error(error, '')}: "
                            f"{_first_line(str(error))}; use x.dtype in place of torch.float32, or leave the golden batch out "
                            "with golden=False") from error
    if value.dtype != torch.float64:
        raise NotExportable(f"the loss is of {value.dtype} although the module is in float64: use x.dtype in place of "
                            "torch.float32, or leave the golden batch out with golden=False")
    if not math.isfinite(value.item()):
        raise NotExportable(f"the loss of the example batch is {value.item()}: give example_inputs as training has them, or "
                            "leave the golden batch out with golden=False")
    gradients = {name: fingerprint(parameter.grad) for name, parameter in double.named_parameters() if parameter.grad is not None}
    return {"version": 1, "loss": loss, "dropout": "off", "inputs": [_described(value) for value in inputs],
            "target": None if target is None else _described(target), "value": value.item(), "gradients": gradients}


def fingerprint(gradient):
    """The norm of a gradient and its projection on cos(0), cos(1), ... in the order of its elements."""
    flat = gradient.detach().double().flatten()
    return {"norm": flat.norm().item(), "projection": torch.dot(flat, torch.arange(len(flat), dtype=torch.float64).cos()).item()}


def _rounded(value):
    if not value.dtype.is_floating_point:
        return value
    return torch.tensor([float(f"{number:.4g}") for number in value.flatten().tolist()], dtype=torch.float64).view(value.shape)


def _described(value):
    kind = "float64" if value.dtype.is_floating_point else "bool" if value.dtype == torch.bool else "int64"
    numbers = value.flatten().tolist()
    return {"dtype": kind, "shape": list(value.shape), "values": [int(number) for number in numbers] if kind == "bool" else numbers}


# ---- the command -----------------------------------------------------------------------------------------------------
def _load(source):
    """What MODULE:NAME or FILE.py:NAME names, called: a torch.nn.Module."""
    where, _, name = source.rpartition(":")
    if not where or not name:
        raise NotExportable(f"'{source}' names no module: write package.module:function or file.py:function")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            loaded = importlib.util.module_from_spec(spec)
            sys.path.insert(0, str(Path(where).resolve().parent))
            sys.modules[spec.name] = loaded  # where dataclasses look for it
            spec.loader.exec_module(loaded)
        else:
            sys.path.insert(0, os.getcwd())
            loaded = importlib.import_module(where)
        made = getattr(loaded, name)
    except (ImportError, OSError, AttributeError) as error:
        raise NotExportable(f"cannot load {source}: {error}") from error
    if isinstance(made, torch.nn.Module):
        return made
    try:
        inspect.signature(made).bind()
    except (TypeError, ValueError) as error:
        raise NotExportable(f"{source} cannot be called without arguments ({error}): name a function that returns the module") from error
    made = made()
    if not isinstance(made, torch.nn.Module):
        raise NotExportable(f"{source} returns a {type(made).__name__}, and must return a torch.nn.Module")
    return made


def _example(shape, dtype, below):
    try:
        sizes = [int(size) for size in shape.split(",") if size.strip()]
    except ValueError:
        raise NotExportable(f"--shape takes the sizes of one sample, such as 3,32,32, and not '{shape}'") from None
    generator = torch.Generator().manual_seed(1)
    if dtype == "int64":
        return torch.randint(below, (4, *sizes), generator=generator)
    return torch.randn((4, *sizes), generator=generator, dtype=getattr(torch, dtype))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="export_model.py", description="Exports a PyTorch module for dtrain --model NET.pt2.")
    parser.add_argument("source", help="package.module:function or file.py:function; the function returns the module")
    parser.add_argument("out", help="the file to write, NET.pt2")
    parser.add_argument("--shape", action="append", required=True, metavar="SIZES",
                        help="sizes of one sample, such as 3,32,32; once per input; '' for a number")
    parser.add_argument("--dtype", action="append", choices=("float32", "float64", "int64"), help="of each input; default float32")
    parser.add_argument("--below", type=int, default=2, metavar="N", help="int64 examples are in [0, N): the vocabulary's size")
    parser.add_argument("--loss", choices=LOSSES, default="cross_entropy")
    parser.add_argument("--varying-length", action="store_true", help="the inputs' second dim varies, as of texts [N, T]")
    parser.add_argument("--operators", action="append", default=[], metavar="NAMESPACE",
                        help="a namespace of your own operators, which a --plugin of the training registers")
    parser.add_argument("--no-golden", action="store_true", help="write no golden batch")
    given = parser.parse_args(arguments)
    try:
        types = given.dtype or ["float32"]
        if len(types) not in (1, len(given.shape)):
            raise NotExportable(f"{len(types)} --dtype for {len(given.shape)} --shape: give one for all inputs or one for each")
        types = types * len(given.shape) if len(types) == 1 else types
        module = _load(given.source)
        inputs = tuple(_example(shape, dtype, given.below) for shape, dtype in zip(given.shape, types))
        program = export_model(module, inputs, given.out, loss=given.loss, sequence_dim=1 if given.varying_length else None,
                               golden=not given.no_golden, operators=given.operators)
    except (NotExportable, OSError) as error:
        print(f"export_model: {error}", file=sys.stderr)
        return 2
    numbers = sum(value.numel() for value in program.parameters())
    nodes = sum(node.op == "call_function" for node in program.graph.nodes)
    print(f"{given.out}: {numbers:,} parameters, {nodes} operations; next: ./dtrain --model {given.out}"
          f"{' --loss model' if given.loss == 'model' else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
