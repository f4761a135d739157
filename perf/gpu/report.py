"""The tables of speed.md."""

import statistics

import arithmetic
from runs import median_and_range

NONE = "-"  # no figure


def table(heads, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def rate(entry, side):
    """Median and range of all rounds."""
    figures = entry["figures"].get(side)
    if not figures:
        return NONE
    step_s = figures["step_s"]
    units = figures["per_s"] * statistics.median(step_s)
    return f"{figures['per_s']:,.0f} ({units / max(step_s):,.0f} to {units / min(step_s):,.0f})"


def milliseconds(seconds):
    return median_and_range([1e3 * value for value in seconds], 3 if statistics.median(seconds) < 0.01 else 1)


def faster(entry, side, than):
    """How many times, round by round."""
    figures = entry["figures"]
    if side not in figures or than not in figures:
        return NONE
    pairs = zip(figures[side]["step_s"], figures[than]["step_s"])
    return median_and_range([theirs / ours for ours, theirs in pairs])


PYTORCH = ["eager", "torch.compile", "reduce-overhead", "eager, resident", "torch.compile, resident", "reduce-overhead, resident"]


def beside_pytorch(entries, units):
    own = [side for side in ("dtrain, fused", "dtrain, own", "dtrain, own, no graphs") if any(side in entry["figures"] for entry in entries)]
    heads = ["model", "batch", "precision", *(f"{side}, {units}/s" for side in own), *PYTORCH, "fused over eager: median (range)", "over torch.compile", "over reduce-overhead"]
    return table(heads, [[entry["model"], str(entry["batch"]), entry["precision"],
                          *(rate(entry, side) for side in [*own, *PYTORCH]),
                          *(faster(entry, "dtrain, fused", than) for than in PYTORCH[:3])] for entry in entries])


def images(entries, _):
    return ("## Images/s of training\n\nPyTorch's first two columns copy each batch from pinned memory, and dtrain, which also loads "
            "and normalises it, is compared with these; with `resident` the batches lie on the device already.\n\n"
            + beside_pytorch(entries, "images"))


def text(entries, gpu):
    def share(entry, side):
        figures, peak = entry["figures"].get(side), arithmetic.peak_flops(gpu, entry["precision"])
        if not figures or not peak:
            return NONE if not figures else ""
        return f"{100 * figures['per_s'] * arithmetic.gpt_flops_per_token(entry['sizes']) / peak:.1f} %"
    sides = ["dtrain, fused", "dtrain, own", *PYTORCH[:3]]
    shares = table(["model", "precision", "parameters", "FLOPs per token", *sides],
                   [[entry["model"], entry["precision"], f"{arithmetic.gpt_parameters(entry['sizes']):,}",
                     f"{arithmetic.gpt_flops_per_token(entry['sizes']):,}", *(share(entry, side) for side in sides)]
                    for entry in entries])
    return ("## Tokens/s of training\n\nColumns as above; the batch is in blocks of text.\n\n" + beside_pytorch(entries, "tokens")
            + "\n\nShare of the GPU's peak: tokens/s x (6 N + 12 L H Q T) / peak, of PaLM (Chowdhery et al. 2022, appendix B). Peaks of "
            "dense products by NVIDIA's datasheets of H100 and H200 (SXM): bf16 989e12, fp32 67e12; empty for other GPUs.\n\n" + shares)


def fastest_on_cpu(entry):
    cpu = [side for side in entry["figures"] if side.startswith("CPU")]
    return min(cpu, key=lambda side: statistics.median(entry["figures"][side]["step_s"]), default=None)


def study(entries, _):
    speeds, transfers = [], []
    for entry in entries:
        best = fastest_on_cpu(entry)
        row, epochs = [entry["model"], str(entry["batch"]), best or NONE], []
        for side in (best, "device"):
            figures = entry["figures"].get(side)
            row += [milliseconds(figures["step_s"]), rate(entry, side)] if figures else [NONE, NONE]
            step_s = statistics.median(figures["step_s"]) if figures else None
            epochs.append(f"{entry['steps_per_epoch'] * step_s:.2f}" if figures else NONE)
        speeds.append([*row, faster(entry, "device", best), str(entry["steps_per_epoch"]), *epochs])
        transfers.append(transfer_row(entry))
    return ("## The study's models on all CPU cores and on the device\n\nfp32, the study's batches; on the CPU the faster of one rank "
            "with all threads and of several ranks (ranks x threads of each). The time per epoch is computed: steps per epoch x median "
            "time of a step.\n\n"
            + table(["model", "batch", "on the CPU", "CPU, ms per step", "CPU, samples/s", "device, ms per step", "device, samples/s",
                     "device over CPU: median (range)", "steps per epoch", "CPU, s per epoch (computed)",
                     "device, s per epoch (computed)"], speeds)
            + "\n\n### What a batch takes to get to the device\n\nBytes are those of its arrays; the copies are PyTorch's, of as many "
            "bytes, one batch at a time.\n\n"
            + table(["model", "bytes per step", "of these", "bytes per epoch", "from pinned memory, ms", "from pageable memory, ms",
                     "pageable, of the device's step", "as dtrain notes it, ms"], transfers))


def transfer_row(entry):
    total, copies = sum(entry["bytes"].values()), entry["copies_s"]
    times = [milliseconds(copies[kind]) if copies else NONE for kind in ("pinned", "pageable")]
    device, noted = entry["figures"].get("device"), entry["noted_transfer_s"]
    share = NONE
    if copies and device:
        share = f"{100 * statistics.median(copies['pageable']) / statistics.median(device['step_s']):.1f} %"
    return [entry["model"], f"{total:,}", ", ".join(f"{what} {size:,}" for what, size in entry["bytes"].items()),
            f"{total * entry['steps_per_epoch']:,}", *times, share, milliseconds(noted) if any(noted) else "not noted"]


def loader(entries, _):
    rows = [[row["memory"], str(row["batch"]), f"{row['per_s']:,.0f} ({row['least_per_s']:,.0f} to {row['most_per_s']:,.0f})"]
            for entry in entries for row in entry.get("rows", [])]
    return ("## The loader alone\n\nImages of CIFAR-10's shape, as bytes, handed out in the caller's thread.\n\n"
            + table(["from", "batch", "images/s: median (range)"], rows))


def links(entries, _):
    title = "## Bus bandwidth of collectives\n\n"
    rows = [[row["operation"], row["algorithm"], str(row["ranks"]), f"{row['bytes']:,}", f"{1e6 * row['median_s']:.1f}",
             f"{1e-9 * row['bus_bytes_per_s']:.2f}"] for entry in entries for row in entry.get("rows", [])]
    if not rows:
        return title + " ".join(entry.get("note", "") for entry in entries)
    return (title + f"Of `dtrain topology --benchmark`, devices of the ranks: {', '.join(entries[0]['devices'])}.\n\n"
            + table(["collective", "algorithm", "ranks", "bytes", "median us", "bus GB/s"], rows))


PAGES = {"images": images, "text": text, "study": study, "loader": loader, "links": links}


def markdown(cases, results, head, gpu):
    """All that there is; of `cases` those without a figure are named."""
    pages = [head]
    for kind, page in PAGES.items():
        kept = [results.of(case) for case in cases if case.kind == kind]
        whole = [entry for entry in kept if entry and "case" not in entry["errors"]]  # that one has nothing but its error
        if whole:
            pages.append(page(whole, gpu))
    failed = [[case.name, what, words.splitlines()[-1].replace("|", "/")] for case in cases if results.of(case)
              for what, words in results.of(case)["errors"].items()]
    if failed:
        pages.append("## What failed\n\nspeed.json has all that was said.\n\n" + table(["case", "what", "its last words"], failed))
    missing = [case.name for case in cases if results.of(case) is None]
    if missing:
        pages.append(f"## Not measured yet\n\n{', '.join(missing)}")
    return "\n\n".join(pages) + "\n"
