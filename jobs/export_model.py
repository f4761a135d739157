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
import operator
import os
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import get_alias_info
from torch.utils._sympy.printers import PythonPrinter

LOSSES = ("cross_entropy", "mse", "mae", "model")
GOLDEN_FILE = "dtrain_golden.json"
TRAINING_FILE = "dtrain_in_training"  # a part that is in evaluation mode all the same stays so
GOLDEN_SAMPLES = 8  # most samples of the golden batch
TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
# Operators that draw random numbers and that dtrain replaces by its own, whose masks do not depend on the ranks.
OWN_RANDOM = ("aten.dropout.default", "aten.dropout_.default", "aten.scaled_dot_product_attention.default", "aten.lstm.input")
SAME_VALUES = ("aten.dropout.default", "aten.dropout_.default", "aten.contiguous.default", "aten.clone.default", "aten.alias.default", "aten.detach.default")
# Operators that autocast computes in half precision.
PRODUCTS = ("linear", "matmul", "mm", "mv", "bmm", "addmm", "addbmm", "addmv", "addr", "baddbmm", "chain_matmul", "einsum", "linalg_multi_dot", "prelu",
            "scaled_dot_product_attention", "convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
            "conv_transpose3d", "lstm", "lstm_cell", "gru", "gru_cell", "rnn_tanh", "rnn_relu", "rnn_tanh_cell", "rnn_relu_cell")
# Of modules that wrap a part of the forward pass: what to write instead.
WRAPPED = {"set_grad_enabled": "use x.detach() in place of torch.no_grad() or torch.set_grad_enabled(), and checkpoint(use_reentrant=False)",
           "autocast": "leave autocast out and use dtrain's --precision bf16",
           "cond": "compute both sides and choose with torch.where", "while_loop": "use a Python loop of fixed length",
           "scan": "use a Python loop of fixed length", "map": "use operators on the whole batch"}
PARAMETRIZED = "call torch.nn.utils.parametrize.remove_parametrizations(module, name) before the export"  # spectral_norm's steps change buffers
# Sizes for which a program must compute what its module does, where PyTorch took something else for true.
BATCHES = (2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 257, 1000)
LENGTHS = (*range(2, 65), 65, 67, 97, 100, 127, 128, 129, 200, 255, 256, 257, 300, 400, 511, 512, 513, 700, 1000, 1023, 1024, 1025, 1500, 2000,
           2048, 2049, 3000, 4096, 4097, 8193)
LARGEST_SIZE = 8193
MOST_SIZES = 32
WITHOUT_LENGTH = "export without sequence_dim, here without --varying-length"
# Operators that dtrain refuses, and what to write instead.
SEES_MEMORY = ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "_reshape_alias", "set_", "resize_", "resize_as_")
TURNS_IN_PLACE = ("unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_")


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
    sequence_dim    the dim of the inputs that varies from batch to batch as well, such as 1 for texts [N, T]. A module that
                    computes something else for some lengths is refused.
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
        if sequence_dim is not None:
            _check_lengths_vary(module, program, sequence_dim)
        check_program(program, loss, operators)
        extra = {TRAINING_FILE: "1"}
        if golden:
            extra[GOLDEN_FILE] = json.dumps(golden_batch(module, inputs, loss, target))
        _check_sizes(module, program, inputs, sequence_dim)
        if loss != "model":
            _warn_of_other_branches(module, inputs, sequence_dim, program)
    # The file appears at once and whole. The folder in the archive has the file's name, therefore another folder for it.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
        try:
            torch.export.save(program, str(Path(folder, path.name)), extra_files=extra)
        except OSError:
            raise
        except Exception as error:  # PyTorch exports some of what it cannot write
            raise NotExportable(_why_not_written(module, program, error)) from error
        os.replace(Path(folder, path.name), path)
    return program


def _why_not_written(module, program, error):
    failed = re.search(r"Failed serializing node (\w+) in graph", str(error))
    node = next((node for node in program.graph.nodes if failed and node.name == failed[1]), None)
    if node is None or not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return (f"PyTorch cannot write the program of {type(module).__name__}{place_of(node) if node else ''}: "
                f"{type(error).__name__}: {_first_line(str(error))}")
    return (f"PyTorch cannot write {getattr(node.target, '__name__', node.target)} of a size{place_of(node)}: compute sizes with "
            "+, -, * and // alone, such as (T + 1) // 2 in place of math.ceil(T / 2)")


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
            program = torch.export.export(module, inputs, dynamic_shapes=tuple(dict(dims) for _ in inputs))
    except Exception as error:  # PyTorch's own kinds of errors, of the module's, or of Python's
        raise NotExportable(_why_not(module, error, inputs[0].shape[0])) from error
    for node in list(program.graph.nodes):
        _inline(program.graph_module, node)
    return program


def _inline(graph_module, node):
    """Puts what runs under torch.no_grad() or torch.autocast(enabled=False) in the place of the operator that wraps it, where the nodes alone
    can say the same: what leaves no_grad is detached, and without autocast there is no product, or a product of columns and rows as
    one of elements, which no precision rounds. Leaves any other operator as it is: _check_operators refuses those that wrap."""
    kind = str(node.target) if isinstance(node.target, torch._ops.HigherOrderOperator) else ""
    if kind == "wrap_with_set_grad_enabled":
        enabled, part, *given = node.args
    elif kind == "wrap_with_autocast":
        _, _, enabled, _, part, *given = node.args
    else:
        return
    inner = getattr(graph_module, part.target)
    for step in list(inner.graph.nodes):
        _inline(inner, step)
    outputs = inner.graph.output_node().args[0]
    takes_all = all(user.target is operator.getitem and graph_module.graph.output_node() not in user.users for user in node.users)
    gives_nodes = all(isinstance(output, torch.fx.Node) for output in outputs)
    within = [step for step in inner.graph.nodes if step.op not in ("placeholder", "output")]
    if enabled or not takes_all or not gives_nodes or not all(step.op == "call_function" and _is_plain(step) for step in within):
        return
    if kind == "wrap_with_autocast" and not all(_is_of_columns(step) for step in within if _is_product(step)):
        return
    values = dict(zip(inner.graph.find_nodes(op="placeholder"), given))
    leaving = {}
    with graph_module.graph.inserting_before(node):
        for step in within:
            values[step] = graph_module.graph.node_copy(step, values.__getitem__)
            if kind == "wrap_with_autocast" and _is_product(step):
                values[step].target = torch.ops.aten.mul.Tensor
        for output in outputs:
            value = output.meta["val"]
            leaving[output] = values[output]
            if kind == "wrap_with_set_grad_enabled" and output.op != "placeholder" and isinstance(value, torch.Tensor) and value.is_floating_point():
                leaving[output] = graph_module.graph.call_function(torch.ops.aten.detach.default, (values[output],))
                leaving[output].meta = dict(values[output].meta)
    for user in list(node.users):
        user.replace_all_uses_with(leaving[outputs[user.args[1]]])
        graph_module.graph.erase_node(user)
    graph_module.graph.erase_node(node)
    if not part.users:
        graph_module.graph.erase_node(part)
        delattr(graph_module, part.target)
    graph_module.recompile()


def _is_plain(node):
    return isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable or getattr(node.target, "__module__", "") == "_operator"


def _is_product(node):
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name.removeprefix("aten::") in PRODUCTS


def _is_of_columns(node):
    """Is it a matmul of [..., n, 1] and [..., 1, m]?"""
    factors = [factor.meta["val"] for factor in node.args]
    return node.target is torch.ops.aten.matmul.default and min(factor.dim() for factor in factors) >= 2 and factors[0].shape[-1] == 1


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
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._NormBase) and part.momentum is None and part.track_running_stats:
            return f"{name} has a mean over all batches in {path or 'itself'}: give {type(part).__name__} a number as momentum, such as 0.1"
        if torch.nn.parameter.is_lazy(next(part.parameters(recurse=False), None)):
            return f"{name} has no sizes yet in {path or 'itself'}: call the module once with the example before"
    if any(frame.name == "_detect_is_causal_mask" for frame in traceback.extract_tb(error.__traceback__)):
        return (f"{name} gives a transformer of torch.nn a mask{place}, and PyTorch looks at its values: say is_causal=True (of a decoder "
                "tgt_is_causal=True) beside the mask where it hides what comes later, and False where not")
    if "data-dependent" in text:
        return (f"{name} branches on the values of a tensor{place}: use torch.where on whole tensors in place of if, while, "
                ".item(), int() and bool()")
    if re.search(rf"specialized it to be a constant \({samples}\)", text):
        return (f"{name} works for a batch of {samples} alone: take the batch from x.shape[0], or use flatten(1) and "
                "unflatten(1, ...), in place of a number")
    if "Constraints violated" in text:
        limit = re.search(r"Not all values of (\w+) = .* satisfy the generated guard (.*)", text)
        limit = limit and _plain(re.sub(r"L\['\w+'\]\.size\(\)\[0\]", "batch", limit[2])).rstrip(". ")
        return (f"{name} does not take every batch" + (f" ({limit})" if limit else f": {_first_line(text)}") +
                ": no table, no size and no branch may depend on the number of samples")
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


# ---- batches and lengths other than the example's --------------------------------------------------------------------
class _Guard:
    """What PyTorch took for true of the sizes when it chose a path through the module, and where in the user's Python."""

    def __init__(self, expression, place):
        self.symbols, self.place = {symbol.name for symbol in expression.free_symbols}, place
        self.text = PythonPrinter().doprint(expression)
        self._code = compile(self.text, "guard", "eval")

    def holds(self, sizes):
        try:
            return bool(eval(self._code, {"math": math, "torch": torch}, dict(sizes)))
        except Exception:  # such as a remainder of 0
            return False

    def in_words(self, names):
        return _plain(re.sub(r"\b[a-z]+\d+\b", lambda word: names.get(word[0], word[0]), self.text))


def _plain(text):
    """PyTorch's words for a condition on sizes as a user would write them."""
    text = re.sub(r"torch\.sym_float\((\w+)\)", r"\1", text).replace("math.trunc(", "int(")
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.6g}", text)


def _shape_environment(program):
    return next((node.meta["val"].fake_mode.shape_env for node in program.graph.nodes
                 if node.op == "placeholder" and isinstance(node.meta.get("val"), FakeTensor)), None)


def _place_of_guard(guard):
    frame = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    return _user_frame([(frame.filename, frame.lineno)]) if hasattr(frame, "filename") else ""


def _guards(program, known):
    """All that PyTorch took for true of the sizes `known`, those with a line of the user's Python first."""
    environment = _shape_environment(program)
    found = {}
    for guard in environment.guards if environment else ():
        expression = environment.replace(guard.expr)
        if {symbol.name for symbol in expression.free_symbols} <= known:
            made = _Guard(expression, _place_of_guard(guard))
            if made.text not in found or made.place and not found[made.text].place:
                found[made.text] = made
    for size, limits in program.range_constraints.items():
        bounds = ([size <= limits.upper] if limits.upper < LARGEST_SIZE else []) + ([size >= limits.lower] if limits.lower > 2 else [])
        for made in (_Guard(bound, "") for bound in bounds if {symbol.name for symbol in size.free_symbols} <= known):
            found.setdefault(made.text, made)
    return sorted(found.values(), key=lambda guard: not guard.place)


def _is_fixed(size):
    return isinstance(size, int) or size.node.expr.is_number


def _check_lengths_vary(module, program, sequence_dim):
    """Throws where PyTorch has fixed the length of all inputs, and warns where it has fixed that of some."""
    fixed = [node for node in _user_inputs(program) if _is_fixed(node.meta["val"].shape[sequence_dim])]
    if not fixed:
        return
    environment = _shape_environment(program)
    constant = {symbol for symbol, value in environment.replacements.items() if value.is_number} if environment else set()
    place = next(filter(None, (_place_of_guard(guard) for guard in (environment.guards if environment else ())
                               if guard.expr.free_symbols & constant)), "")
    lengths = " and ".join(f"{node.meta['val'].shape[sequence_dim]} of the input {node.name}" for node in fixed)
    problem = f"{type(module).__name__} takes the length {lengths} alone{place}"
    if len(fixed) < len(_user_inputs(program)):
        warnings.warn(problem + ": the lengths of the other inputs vary", stacklevel=3)
        return
    raise NotExportable(problem + ": keep T out of range(), float(), math.log and math.sqrt (write T ** 0.5), write torch.arange(T) / "
                        "(T - 1) in place of torch.linspace(0, 1, T), give a longer example where a part of it has the length 1, or "
                        + WITHOUT_LENGTH)


def _check_sizes(module, program, inputs, sequence_dim):
    """Throws where the program computes something else than the module for another batch or length. PyTorch notes what it took for
    true of the sizes. Most of that is harmless: therefore the module and the program run with sizes for which it does not hold."""
    nodes = _user_inputs(program)
    batch = str(nodes[0].meta["val"].shape[0])
    example = _example_sizes(nodes, inputs)
    guards = _guards(program, set(example))
    tried = _sizes_to_try(guards, batch, example)
    if not tried:
        return
    lengths = [symbol for symbol in example if symbol != batch]
    names = {batch: "batch"} | {symbol: "length" if len(lengths) == 1 else f"length of {_input_with(nodes, symbol)}" for symbol in lengths}
    both = _BothWays(module, program, nodes, inputs, sequence_dim)
    refused = None
    if not both.agree_on(example):
        such = guards[0].in_words(names) + guards[0].place
        warnings.warn(f"{type(module).__name__} and its program differ for the example itself, as by random numbers: whether they do for other "
                      f"sizes, where {such} does not hold, cannot be told", stacklevel=3)
        return
    for sizes in tried:
        found = both.compare(sizes)
        guard = next(guard for guard in guards if not guard.holds(sizes))
        such = ", ".join(f"{names[symbol]} {size}" for symbol, size in sizes.items())
        if found == "other":
            raise NotExportable(
                f"{type(module).__name__} computes something else where {guard.in_words(names)} does not hold{guard.place}, as for {such}, "
                "and the file would have one path alone: write it without a branch on sizes, such as by a mask"
                + (f", or {WITHOUT_LENGTH}" if sequence_dim is not None else ""))
        if found == "unchecked" and refused is None:
            refused = f"{guard.in_words(names)}{guard.place}, and not {such}: {both.problem}"
    if refused:
        warnings.warn(f"{type(module).__name__} in PyTorch takes {refused}; dtrain does not check it, so stage data of such sizes", stacklevel=3)


def _example_sizes(nodes, inputs):
    sizes = {}
    for node, value in zip(nodes, inputs):
        for size, real in zip(node.meta["val"].shape, value.shape):
            if not isinstance(size, int) and size.node.expr.is_Symbol:
                sizes.setdefault(str(size), real)
    return sizes


def _input_with(nodes, symbol):
    return next(node.name for node in nodes if any(str(size) == symbol for size in node.meta["val"].shape))


def _sizes_to_try(guards, batch, example):
    """Sizes for which a guard does not hold: of each guard the smallest ones, and some larger ones."""
    chosen = {}
    for guard in guards:
        batches = BATCHES if batch in guard.symbols else (3,)
        varied = [[symbol for symbol in example if symbol != batch]]
        varied += [[symbol] for symbol in varied[0] if symbol in guard.symbols and len(varied[0]) > 1]
        broken = [sizes for symbols in varied for number in batches for length in (LENGTHS if symbols else (1,))
                  if not guard.holds(sizes := example | {batch: number} | dict.fromkeys(symbols, length))]
        rank, last = 0, 0
        for sizes in sorted(broken, key=lambda sizes: math.prod(sizes.values())):
            numbers = math.prod(sizes.values())
            if rank < 3 or rank < 8 and last * 3 // 2 < numbers < 3 * 4096:
                key = tuple(sizes.items())
                chosen[key] = min(rank, chosen.get(key, rank))
                rank, last = rank + 1, numbers
    order = sorted(chosen, key=lambda key: (chosen[key], math.prod(size for _, size in key)))
    return [dict(key) for key in order[:MOST_SIZES]]


class _WithoutDropout(torch.fx.Interpreter):
    """Runs a program's graph as it is, with every dropout's probability 0."""

    def call_function(self, target, args, kwargs):
        if str(target) in OWN_RANDOM:
            drops = ("p", "dropout", "dropout_p")
            args = tuple(0.0 if argument.name in drops else value for argument, value in zip(target._schema.arguments, args))
            kwargs = {name: 0.0 if name in drops else value for name, value in kwargs.items()}
        return super().call_function(target, args, kwargs)


class _BothWays:
    """A copy of the module beside its program, with the same parameters and inputs of any sizes, drawn from the example's."""

    def __init__(self, module, program, nodes, inputs, sequence_dim):
        self.program, self.nodes, self.inputs, self.sequence_dim = program, nodes, inputs, sequence_dim
        self.various, self.problem = True, ""
        try:
            self.module = copy.deepcopy(module)
        except Exception as error:
            raise NotExportable(f"{type(module).__name__} cannot be copied, which the check of its branches on sizes needs: "
                                f"{_first_line(str(error))}") from error
        # A last layer of zeros would hide what another branch computes.
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.module.parameters():
                if parameter.is_floating_point() and parameter.numel():
                    width = parameter.std(correction=0).item() / 2 or 0.1
                    parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=width)

    def agree_on(self, sizes):
        """Do both take the example's sizes, and give the same? First with more values than an example of zeros has."""
        for self.various in (True, False):
            if self.compare(sizes) == "same" and not self.problem:
                return True
        return False

    def compare(self, sizes):
        """"same", "other", or "unchecked" where the module refuses sizes that the program takes; `problem` has its words."""
        self.problem = ""
        try:
            values = [self._drawn(node, value, sizes) for node, value in zip(self.nodes, self.inputs)]
        except ValueError:  # no such sizes
            return "same"
        state = dict(self.module.named_parameters(remove_duplicate=False)) | dict(self.module.named_buffers(remove_duplicate=False))
        state = self.program.constants | {name: value.detach() for name, value in state.items()}
        given = iter(values)
        held = [next(given) if spec.kind.name == "USER_INPUT" else state[spec.target]
                for spec in self.program.graph_signature.input_specs]
        held = [value.clone() if isinstance(value, torch.Tensor) and spec.kind.name != "PARAMETER" else value
                for value, spec in zip(held, self.program.graph_signature.input_specs)]
        results = self._run(lambda: _WithoutDropout(self.program.graph_module).run(*held))
        if isinstance(results, tuple):
            results = next(value for value in results if isinstance(value, torch.Tensor))
        expected = self._run(lambda: next(value for value in pytree.tree_leaves(self.module(*values)) if isinstance(value, torch.Tensor)))
        if isinstance(expected, Exception):
            self.problem = f"{type(expected).__name__}: {_first_line(str(expected))}"
            return "same" if isinstance(results, Exception) else "unchecked"
        if isinstance(results, Exception) or results.shape != expected.shape:
            return "other"
        results, expected = results.double().nan_to_num(), expected.double().nan_to_num()
        near = 1e-4 * expected.abs().max().item() if expected.numel() else 0
        return "same" if torch.allclose(results, expected, rtol=0, atol=near + 1e-30) else "other"

    @staticmethod
    def _run(function):
        with torch.random.fork_rng(devices=[]), torch.no_grad(), _NoDropout(), _quiet():
            torch.manual_seed(1)
            try:
                return function()
            except Exception as error:  # of the module's, or of an operator's
                return error

    def _drawn(self, node, value, sizes):
        """Samples and positions of the example by chance, as many as the sizes say."""
        generator = torch.Generator().manual_seed(2)
        shape = [size if isinstance(size, int) else
                 int(size.node.expr.xreplace({symbol: sizes[symbol.name] for symbol in size.node.expr.free_symbols}))
                 for size in node.meta["val"].shape]
        if min(shape) < 1:
            raise ValueError("a size below 1")
        for dim in {0, self.sequence_dim} - {None}:
            value = value.index_select(dim, torch.randint(value.shape[dim], (shape[dim],), generator=generator))
        if self.various and value.dtype != torch.bool and value.numel() and bool((value == value.flatten()[0]).all()):
            value = value + torch.randint(2, value.shape, generator=generator).to(value.dtype)
        return value


# ---- what dtrain does not run ----------------------------------------------------------------------------------------
def check_program(program, loss, operators=()):
    """Throws NotExportable at the first node, buffer, size or type of an exported program that dtrain does not train."""
    if program.graph_signature.buffers_to_mutate:
        raise NotExportable("the program is functional: export it with torch.export.export alone, without run_decompositions()")
    symbols = [_batch_symbol(program, node) for node in _user_inputs(program)]
    output = _first_output(program)
    _check_memory(program)
    _check_operators(program, operators)
    _check_writes(program)
    _check_dropped_views(program)
    _check_types(program)
    if loss == "model":
        if output.dim() != 0:
            raise NotExportable(f"with loss='model' the output is the mean loss, a scalar; here it has the shape {_shape(output)}")
        if not output.dtype.is_floating_point:
            raise NotExportable(f"with loss='model' the output is the mean loss; here it is of {output.dtype}")
    elif output.dim() == 0 or not _is_batch(output.shape[0], symbols[0]):
        raise NotExportable(f"the first output must have the batch as its first dim; here its shape is {_shape(output)}")


def _check_memory(program):
    """Tied parameters are one tensor; other memory that a parameter has in common would not follow its updates."""
    signature, owners = program.graph_signature, {}
    for parameter in signature.inputs_to_parameters.values():
        value = program.state_dict[parameter]
        other, others = owners.setdefault(_memory(value), (parameter, value))
        if value.numel() and (value.shape, value.stride(), value.storage_offset()) != (others.shape, others.stride(), others.storage_offset()):
            raise NotExportable(f"the parameters {other} and {parameter} are different views of one tensor: keep one parameter, and make the "
                                "views in forward")
    for buffer in signature.inputs_to_buffers.values():
        value = program.state_dict.get(buffer, program.constants.get(buffer))
        if value.numel() and _memory(value) in owners:
            raise NotExportable(f"the buffer {buffer} is the memory of the parameter {owners[_memory(value)][0]}: register a clone() of it as the "
                                "buffer, or use the parameter in forward")


def _memory(value):
    return value.untyped_storage().data_ptr()


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
            wrapped = next((text for part, text in WRAPPED.items() if part in str(target)), "use plain operators")
            advice = PARAMETRIZED if re.search(r"\bparametrizations\.\w+\.\d", place_of(node)) else wrapped
            raise NotExportable(f"dtrain does not run the operator {target}{place_of(node)}: {advice}")
        if not isinstance(target, torch._ops.OpOverload):
            if (getattr(target, "__module__", None) or "").startswith("torch._functorch"):
                raise NotExportable(f"dtrain does not run torch.vmap and torch.func{place_of(node)}: use operators on the whole batch")
            continue  # Python's arithmetic on sizes
        if target.namespace != "aten" and target.namespace not in operators:
            raise NotExportable(f"the operator {target} is not PyTorch's own{place_of(node)}: use PyTorch's operators, or export "
                                f"with operators=('{target.namespace}',) and train with --plugin")
        name = target._schema.name.removeprefix("aten::")
        if name in SEES_MEMORY:
            raise NotExportable(f"the operator {target} reads a tensor's memory by strides{place_of(node)}, and dtrain lays tensors "
                                "out otherwise than PyTorch: use view, reshape, transpose, narrow or unfold")
        if name in TURNS_IN_PLACE:
            raise NotExportable(f"the operator {target} changes a tensor's shape in place{place_of(node)}: call it without the "
                                "underscore, such as y = y.unsqueeze(1)")
        if any(isinstance(value.meta.get("val"), torch.SymBool) for value in node.all_input_nodes):
            raise NotExportable(f"the operator {target} takes a comparison of sizes as a number{place_of(node)}: compare tensors, such "
                                "as those of torch.arange")
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


def _check_writes(program):
    """No forward pass may write to a parameter. Only batch_norm and its counter may change a buffer, and each buffer once: dtrain does
    both once per step, whatever the micro-batches."""
    signature = program.graph_signature
    named = signature.inputs_to_parameters | signature.inputs_to_buffers
    behind = {node: named.get(node.name) for node in program.graph.nodes if node.op == "placeholder"}
    statistics = set()
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if str(node.target) == "aten.batch_norm.default":  # input, weight, bias, running mean, ...
            mean = node.args[3]
            if mean is not None and mean in statistics:
                raise NotExportable(f"two calls have the running statistics {behind.get(mean) or mean.name}{place_of(node)}: call each "
                                    "BatchNorm module once in forward, and make another one for the second call")
            statistics.add(mean)
        for argument, value in zip(node.target._schema.arguments, node.args):
            name = behind.get(value) if isinstance(value, torch.fx.Node) else None
            if name is None or argument.alias_info is None:
                continue
            if not argument.alias_info.is_write:
                behind[node] = name  # a view of it
            elif name in signature.inputs_to_parameters.values():
                raise NotExportable(f"{node.target} writes to the parameter {name}{place_of(node)}: " + (
                                    "leave max_norm out" if "renorm" in str(node.target) else "compute a new tensor from it"))
            elif not (str(node.target) == "aten.add_.Tensor" and name.split(".")[-1] == "num_batches_tracked"):
                raise NotExportable(f"the buffer {name} changes in the forward pass{place_of(node)}: only BatchNorm's statistics "
                                    "may; make it a parameter, or compute it from the inputs")
            else:
                behind[node] = name


def _check_dropped_views(program):
    """Throws where dropout in place changes memory that is used by another name, too: dtrain's drops in a copy."""
    nodes = list(program.graph.nodes)
    made = {node: index for index, node in enumerate(nodes)}
    memory, tensor = {}, {}  # of a node: the first one whose memory it shares, and the first one that is the same tensor
    for node in nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            schema = get_alias_info(node.target)  # also of results within lists, as those of chunk
            returned = set().union(*(result.alias_set for result in schema.outs))
            for argument, value in zip(schema.args, node.args):
                if isinstance(value, torch.fx.Node) and argument.alias_set & returned:
                    memory[node] = memory.get(value, value)
                    if argument.is_write:
                        tensor[node] = tensor.get(value, value)
        elif node.op == "call_function" and str(getattr(node.target, "__name__", "")) == "getitem" and node.args[0] in memory:
            memory[node] = memory[node.args[0]]
    for node in nodes:
        if node.op != "call_function" or str(node.target) != "aten.dropout_.default":
            continue
        dropped = node.args[0]
        for other in nodes:
            if tensor.get(other, other) == tensor.get(dropped, dropped) or memory.get(other, other) != memory.get(dropped, dropped):
                continue
            if made[other] < made[node] and any(made[user] > made[node] for user in other.users):
                raise NotExportable(f"dropout in place changes what {other.name} shows, too{place_of(node)}: use nn.Dropout(p) and "
                                    "F.dropout without inplace=True")


def _check_types(program):
    for name, value in [*program.state_dict.items(), *program.constants.items()]:
        if isinstance(value, torch.Tensor) and (value.is_complex() or value.is_quantized or value.layout != torch.strided):
            raise NotExportable(f"{name} is of {value.dtype}, {value.layout}: dtrain trains dense numbers that are not complex")
    if not any(value.requires_grad for value in program.parameters()):
        raise NotExportable("the module has no parameter that requires a gradient: there is nothing to train")


# ---- the golden batch ------------------------------------------------------------------------------------------------
class _InDouble(TorchFunctionMode):
    """What asks for float32 gets float64, as dtrain gives it the run's type."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "float":
            return args[0].double()
        wanted = {name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return function(*(torch.float64 if value is torch.float32 else value for value in args), **wanted)


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
        with _NoDropout(), _InDouble(), _quiet():
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
    print(f"{given.out}: {numbers:,} parameters, {nodes} operations; next: ./dtrain --model {given.out} --dataset NAME"
          f"{'' if given.loss == 'cross_entropy' else f' --loss {given.loss}'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
