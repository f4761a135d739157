"""What `dtrain privacy` says beside two independent programs: opacus for Renyi divergences, dp-accounting for distributions of the
privacy loss. Skipped where jobs/setup.sh --for-tests has not installed them.

    agreement.py BINARY [--full]
"""

import itertools
import math
import re
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
try:
    from dp_accounting.pld import privacy_loss_distribution
    from opacus.accountants.analysis import rdp
except ImportError as missing:
    print(f"skipped: {missing}; jobs/setup.sh --for-tests installs it")
    sys.exit(77)

BINARY = sys.argv[1]
ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))  # opacus's own
LARGEST = ORDERS[-1]
TOLERANCE = 1e-3
OF_USE = 20  # an epsilon above protects nothing: dp-accounting rounds it up, and is compared on one side only


def said(rate, noise, steps, delta):
    """Epsilon by Renyi divergences, and from above and below by the distribution of the loss."""
    text = subprocess.run([BINARY, "privacy", "--sample-rate", repr(rate), "--noise", repr(noise), "--steps", str(steps), "--delta",
                           repr(delta)], check=True, text=True, capture_output=True).stdout
    return [float(re.search(pattern, text).group(1)) for pattern in (r"epsilon +([\d.]+) .*rdp", r"([\d.]+) at .*pld", r"at least ([\d.]+)")]


def compare(rate, noise, steps, delta):
    own_rdp, upper, lower = said(rate, noise, steps, delta)
    divergence = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=ORDERS)
    epsilon, order = rdp.get_privacy_spent(orders=ORDERS, rdp=divergence, delta=delta)
    assert own_rdp <= epsilon + 1e-5, ("larger than opacus's", rate, noise, steps, delta, own_rdp, epsilon)
    if order < LARGEST:  # dtrain has larger orders, too
        assert abs(own_rdp - epsilon) < TOLERANCE, (rate, noise, steps, delta, own_rdp, epsilon)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(noise, sampling_prob=rate).self_compose(steps).get_epsilon_for_delta(delta)
    tolerance = TOLERANCE if theirs < OF_USE else math.inf
    assert lower <= theirs + 1e-5 and abs(upper - theirs) < tolerance and abs(lower - theirs) < tolerance, (rate, noise, steps, delta, lower, upper, theirs)
    assert lower <= upper + 1e-5 and upper <= own_rdp + 1e-5, (lower, upper, own_rdp)


def main():
    short = [(0.004266, 1.3, 3516, 1e-5), (0.05, 0.9, 100, 1e-3), (1.0, 4.0, 20, 1e-6), (0.3, 2.0, 60, 1e-5)]
    grid = itertools.product((0.002, 0.02, 0.25, 1.0), (0.7, 1.1, 3.0), (1, 50, 2000), (1e-3, 1e-6))
    for case in grid if "--full" in sys.argv else short:
        compare(*case)
    print("agrees")


if __name__ == "__main__":
    main()
