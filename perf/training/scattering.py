"""Features of digits that are computed from each image alone, by filters that no data chose: the wavelet scattering transform of Bruna and
Mallat 2013 (two scales, eight angles), normalised over groups of channels of the image itself, as Tramer and Boneh 2021 use it before a
linear layer ("Differentially Private Learning Needs Better Features").

    scattering.py MNIST-FOLDER OUT.npz     x_train, x_val, x_test [n, 3969] float32 and y_*: the last 5,000 training images validate
"""

import gzip
import math
import pathlib
import sys

import numpy as np
import torch

SCALES, ANGLES, SIZE, BORDER, GROUPS = 2, 8, 28, 4, 27
PADDED = SIZE + 2 * BORDER  # 36: all its halves and quarters are whole
VALIDATION = 5000


def gabor(size, sigma, theta, frequency, slant):
    """Complex [size, size], periodic, of sum 1 for frequency 0."""
    turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    curve = turn @ np.diag([1, slant * slant]) @ turn.T / (2 * sigma * sigma)
    values = np.zeros((size, size), complex)
    for shift in np.ndindex(5, 5):
        y, x = np.mgrid[0:size, 0:size] + (np.array(shift) - 2)[:, None, None] * size
        values += np.exp(-(curve[0, 0] * x * x + 2 * curve[0, 1] * x * y + curve[1, 1] * y * y)
                         + 1j * frequency * (x * math.cos(theta) + y * math.sin(theta)))
    return values / (2 * math.pi * sigma * sigma / slant)


def filters():
    """In the Fourier domain: the wavelets [scale][angle] and the low-pass, float32."""
    wavelets = []
    for scale in range(SCALES):
        sigma, frequency, slant = 0.8 * 2**scale, 3 / 4 * math.pi / 2**scale, 4 / ANGLES
        row = []
        for angle in range(ANGLES):
            theta = (int(ANGLES - ANGLES / 2 - 1) - angle) * math.pi / ANGLES
            wave, bump = gabor(PADDED, sigma, theta, frequency, slant), gabor(PADDED, sigma, theta, 0, slant)
            row.append(np.fft.fft2(wave - wave.sum() / bump.sum() * bump).real)
        wavelets.append(torch.tensor(np.array(row), dtype=torch.float32))
    low = np.fft.fft2(gabor(PADDED, 0.8 * 2**(SCALES - 1), 0, 0, 1)).real
    return wavelets, torch.tensor(low, dtype=torch.float32)


def folded(spectrum, by):
    """The spectrum of every by-th sample of an image: the mean over its periods."""
    size = spectrum.shape[-1] // by
    return spectrum.unflatten(-1, (by, size)).unflatten(-3, (by, size)).mean(dim=(-4, -2))


def features(images, wavelets, low):
    """[n, 28, 28] in [0, 1] -> [n, 3969]."""
    spectrum = torch.fft.fft2(torch.nn.functional.pad(images[:, None], (BORDER,) * 4, mode="reflect"))[:, 0]

    def smoothed(of, resolution):  # to one value for each 4 x 4 pixels, without the border
        kernel = folded(low, 2**resolution) * 4**resolution
        return torch.fft.ifft2(folded(of * kernel, 2**(SCALES - resolution))).real[..., 1:-1, 1:-1]

    parts = [smoothed(spectrum[:, None], 0)]
    first = torch.fft.fft2(torch.fft.ifft2(spectrum[:, None] * wavelets[0]).abs())
    parts.append(smoothed(first, 0))
    coarse = torch.fft.fft2(torch.fft.ifft2(folded(spectrum[:, None] * wavelets[1], 2)).abs())
    parts.append(smoothed(coarse, 1))
    second = torch.fft.fft2(torch.fft.ifft2(folded(first[:, :, None] * wavelets[1], 2)).abs())
    parts.append(smoothed(second, 1).flatten(1, 2))
    return torch.nn.functional.group_norm(torch.cat(parts, 1), GROUPS).flatten(1)


def read(path):
    with gzip.open(path) as file:
        data = file.read()
    dims = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape([int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)])


def main():
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    wavelets, low = filters()
    found = {}
    for split, name in (("train", "train"), ("test", "t10k")):
        images = torch.from_numpy(read(folder / f"{name}-images-idx3-ubyte.gz").copy())
        rows = torch.cat([features(part.float() / 255, wavelets, low) for part in images.split(250)]).numpy()
        targets = read(folder / f"{name}-labels-idx1-ubyte.gz").astype(np.int64)
        cut = len(rows) - VALIDATION if split == "train" else len(rows)
        found |= {f"x_{split}": rows[:cut], f"y_{split}": targets[:cut]}
        if split == "train":
            found |= {"x_val": rows[cut:], "y_val": targets[cut:]}
    np.savez(out, **found)


if __name__ == "__main__":
    main()
