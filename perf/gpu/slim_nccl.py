"""A copy of NCCL's library that has code for one kind of GPU only, and packs into a fifteenth: for a machine that has an older NCCL.

    slim_nccl.py libnccl.so.2 OUT ARCHITECTURE      such as 90

The code for other architectures, and what the device linker has left, is overwritten with zeros, so that the file keeps its layout. Sections and
entries as in CUDA's "fatbinary" container: a header of 16 bytes (magic 0xba55ed50), then entries with a header each. Exit code 2: it has no code
for that architecture.
"""

import struct
import subprocess
import sys
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER_BYTES = 16
ARCHITECTURE_AT = 28  # in an entry's header


def sections(path):
    """(offset, bytes) in the file by name."""
    found = {}
    for line in subprocess.run(["readelf", "--section-headers", "--wide", path], check=True, capture_output=True, text=True).stdout.splitlines():
        words = line.partition("]")[2].split()
        if len(words) > 4 and words[1] == "PROGBITS":
            found[words[0]] = int(words[3], 16), int(words[4], 16)
    return found


def keep_only(data, begin, size, architecture):
    """Zeros over the code of other architectures in data[begin, begin + size). The bytes that stay."""
    kept, end = 0, begin + size
    at = data.find(MAGIC, begin, end)
    while at >= 0:
        container_end = at + HEADER_BYTES + struct.unpack_from("<Q", data, at + 8)[0]
        entry = at + HEADER_BYTES
        while entry < container_end:
            header, code = struct.unpack_from("<IQ", data, entry + 4)
            if header == 0:
                break
            if struct.unpack_from("<I", data, entry + ARCHITECTURE_AT)[0] == architecture:
                kept += code
            else:
                data[entry + header:entry + header + code] = bytes(code)
            entry += header + code
        at = data.find(MAGIC, container_end, end)
    return kept


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, target, architecture = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    data = bytearray(source.read_bytes())
    found = sections(source)
    if "__nv_relfatbin" in found:  # what was linked: nothing loads it
        begin, size = found["__nv_relfatbin"]
        data[begin:begin + size] = bytes(size)
    kept = keep_only(data, *found.get(".nv_fatbin", (0, 0)), architecture)
    if kept == 0:
        print(f"slim_nccl: {source.name} has no code for sm_{architecture}", file=sys.stderr)
        return 2
    target.write_bytes(data)
    print(f"{target}: {kept / 2**20:.0f} MiB of code for sm_{architecture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
