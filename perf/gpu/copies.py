"""Seconds that copies of a batch's arrays to the device take, from pinned memory and from pageable, by PyTorch alone.

    python perf/gpu/copies.py --device cuda --bytes 1572864 1024

Prints one line of JSON: for each kind of memory the seconds of the copies that were timed, of all arrays together.
"""

import argparse
import json
import time

import torch

COPIES = 30


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(host, there, device):
    """Of each copy but the first ones."""
    found = []
    for _ in range(COPIES + 3):
        wait(device)
        start = time.perf_counter()
        for source, target in zip(host, there):
            target.copy_(source, non_blocking=True)
        wait(device)
        found.append(time.perf_counter() - start)
    return found[3:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--bytes", type=int, nargs="+", required=True, help="of each array")
    arguments = parser.parse_args()
    device = arguments.device
    pageable = [torch.randint(0, 255, (size,), dtype=torch.uint8) for size in arguments.bytes]
    pinned = [array.pin_memory() if device == "cuda" else array.clone() for array in pageable]
    there = [torch.empty_like(array, device=device) for array in pageable]
    print(json.dumps({"pinned": seconds_of(pinned, there, device), "pageable": seconds_of(pageable, there, device)}))


if __name__ == "__main__":
    main()
