"""CPU time of one client, and the size of its masked update, in Flower's SecAgg+ (flwr's secaggplus_mod), by its own functions.

    python flower_secure_aggregation.py [VALUES NEIGHBOURS THRESHOLD]    defaults: 222360 60 31; needs `pip install flwr`

All messages are passed by hand, so that nothing of Flower's transport counts. The other clients' keys and shares are made by the same
functions outside the clock. dtrain's side: build/release/perf/secure_aggregation/dtrain_perf_secure_aggregation.
"""

import importlib
import sys
import time

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import Key

# The package gives the function of that name, not the module.
mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")


def main():
    values, neighbours, threshold = (int(word) for word in (sys.argv[1:] + ["222360", "60", "31"][len(sys.argv) - 1:]))
    count = neighbours + 1
    settings = {Key.SAMPLE_NUMBER: count, Key.SHARE_NUMBER: count, Key.THRESHOLD: threshold, Key.CLIPPING_RANGE: 1.0,
                Key.TARGET_RANGE: 1 << 15, Key.MOD_RANGE: 1 << 32, Key.MAX_WEIGHT: 1000.0}
    states, keys, spent = [], {}, {}

    def timed(phase, work, *arguments):
        start = time.process_time()
        result = work(*arguments)
        spent[phase] = time.process_time() - start
        return result

    for number in range(count):
        states.append(mod.SecAggPlusState())
        states[-1].nid = number
        answer = timed("keys", mod._setup, states[-1], settings)
        keys[str(number)] = (answer[Key.PUBLIC_KEY_1], answer[Key.PUBLIC_KEY_2])
    client = count - 1  # the last, whose phase above was timed
    timed("shares", mod._share_keys, states[client], dict(keys))
    # Of the others only what they send to this client: a share of its own stands for theirs, which have the same size.
    share = states[client].sk1_share_dict[client]
    sealed = []
    for state in states[:client]:
        key = mod.generate_shared_key(mod.bytes_to_private_key(state.sk2), mod.bytes_to_public_key(keys[str(client)][1]))
        sealed.append(mod.encrypt(key, mod.share_keys_plaintext_concat(state.nid, client, share, share)))
    update = np.random.default_rng(1).uniform(-1, 1, values).astype(np.float32)
    delivery = {Key.CIPHERTEXT_LIST: sealed, Key.SOURCE_LIST: list(range(client))}
    answer = timed("masked input", mod._collect_masked_vectors, states[client], delivery, 1000, ndarrays_to_parameters([update]))
    timed("unmasking", mod._unmask, states[client], {Key.ACTIVE_NODE_ID_LIST: list(range(count)), Key.DEAD_NODE_ID_LIST: []})
    size = sum(len(piece) for piece in answer[Key.MASKED_PARAMETERS])
    phases = ", ".join(f"{phase} {1000 * seconds:.0f} ms" for phase, seconds in spent.items())
    print(f"Flower, {values} values, {neighbours} neighbours, threshold {threshold}: {1000 * sum(spent.values()):.0f} ms of CPU a client ({phases}); "
          f"masked update {size} bytes, {size / (4 * values):.2f} x 32-bit values")


if __name__ == "__main__":
    main()
