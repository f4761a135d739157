"""Trained models of text write and translate; what cannot be begun is refused in one sentence."""

import json
import random
import sys
import tempfile
from pathlib import Path

from dtrain_run import refused, run


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        small = [word for option in ("layers=2", "heads=2", "width=32", "block=64", "dropout=0")
                 for word in ("--model-option", option)]
        run(binary, 2, "--model", "gpt", *small, "--global-batch", 32, "--limit-steps", 40, "--name", "gpt", "--quiet", cwd=folder)
        gpt = "runs/gpt/checkpoints/best"

        def written(*options, tokens=90):  # beyond the block of 64
            said = run(binary, 1, "generate", gpt, "--prompt", "w5 w6", "--max-tokens", tokens, *options, cwd=folder).stdout
            assert said.startswith("w5 w6 "), said
            return said.split()

        likeliest = written("--temperature", 0)
        assert len(likeliest) == 92 and likeliest == written("--temperature", 0, "--seed", 2), likeliest
        assert likeliest == written("--top-k", 1) and likeliest[:12] == written("--temperature", 0, tokens=10)
        chosen = written("--seed", 1)
        assert chosen == written("--seed", 1) != written("--seed", 2)
        assert likeliest == written("--top-p", 1e-6, "--seed", 7) and chosen == written("--seed", 1, "--top-p", 1, "--temperature", 1)
        others = [written("--seed", 1, *options) for options in (["--top-p", 0.5], ["--temperature", 0.5], ["--top-k", 5])]
        assert all(one != other for n, one in enumerate([*others, likeliest]) for other in [chosen, *others[:n]]), others
        for ranks, mesh in (2, "data=2"), (2, "pipe=2"), (2, "tensor=2"), (8, "data=2,pipe=2,tensor=2"):
            said = run(binary, ranks, "generate", gpt, "--prompt", "w5 w6", "--max-tokens", 90, "--mesh", mesh, cwd=folder).stdout
            assert said.split() == written("--seed", 1), (mesh, said)
        refused(binary, 3, 2, ["2 heads", "tensor"], "generate", gpt, "--prompt", "w5", "--mesh", "tensor=3", cwd=folder)
        refused(binary, 4, 2, ["pipe"], "generate", gpt, "--prompt", "w5", "--mesh", "pipe=3", cwd=folder)

        # More positions than the training's blocks have: no word is written from one that nothing has trained.
        run(binary, 1, "stage", "short", "--format", "synthetic", "--task", "language_modelling", "--samples", 100, "--max-length", 16, cwd=folder)
        told = []
        for block in (16, 64):
            run(binary, 1, "--model", "gpt", *small, "--model-option", f"block={block}", "--dataset", "short", "--global-batch", 32, "--limit-steps", 20,
                "--name", f"block-{block}", "--quiet", cwd=folder)
            told.append(run(binary, 1, "generate", f"runs/block-{block}", "--prompt", "w5 w6", "--max-tokens", 60, cwd=folder).stdout)
        assert told[0] == told[1], told
        long = ["generate", "runs/block-64", "--max-tokens", 5, "--prompt"]  # as long a prompt as the model can read
        assert len(run(binary, 1, *long, " ".join(["w5"] * 64), cwd=folder).stdout.split()) == 69

        refused(binary, 1, 2, ["--prompt", "zebra"], "generate", gpt, "--prompt", "w5 zebra", cwd=folder)
        refused(binary, 1, 2, ["--prompt", "65", "64"], "generate", gpt, "--prompt", " ".join(["w5"] * 65), cwd=folder)
        (folder / "x.txt").write_text("w5\n")
        refused(binary, 1, 2, ["--beam", "is for --translate"], "generate", gpt, "--prompt", "x", "--beam", 4, cwd=folder)
        for option in (["--max-tokens", 5], ["--temperature", 0.5], ["--seed", 3], ["--top-k", 2]):
            refused(binary, 1, 2, [option[0], "leave it out"], "generate", gpt, "--translate", "x.txt", *option, cwd=folder)
        refused(binary, 1, 2, ["--translate", "gpt"], "generate", gpt, "--translate", "x.txt", cwd=folder)
        refused(binary, 1, 2, ["--prompt", "--translate"], "generate", gpt, cwd=folder)
        for tokens in (0, -1, 2147483648, 1.5):
            refused(binary, 1, 2, ["--max-tokens", str(tokens)], "generate", gpt, "--prompt", "w5", "--max-tokens", tokens, cwd=folder)
        refused(binary, 1, 2, ["--temperature"], "generate", gpt, "--prompt", "w5", "--temperature", -1, cwd=folder)
        refused(binary, 1, 2, ["--top-p"], "generate", gpt, "--prompt", "w5", "--top-p", 2, cwd=folder)
        refused(binary, 1, 4, ["nowhere"], "generate", "nowhere", "--prompt", "w5", cwd=folder)

        run(binary, 1, "evaluate", gpt, "--predictions", "words.h5", cwd=folder)
        refused(binary, 2, 2, ["--predictions", "tensor"], "evaluate", gpt, "--predictions", "part.h5", "--mesh", "tensor=2", cwd=folder)

        # A vocabulary of the same size that means other words: its dataset.json says so.
        run(binary, 1, "stage", "chain", "--format", "synthetic", "--task", "language_modelling", "--samples", 100, cwd=folder)
        facts = folder / "data/staged/chain/dataset.json"
        run(binary, 1, "generate", gpt, "--prompt", "w5", "--dataset", "chain", "--max-tokens", 3, cwd=folder)
        whole = json.loads(facts.read_text())
        whole["splits"].pop("test", None)
        facts.write_text(json.dumps(whole))
        refused(binary, 1, 3, ["no samples in the split test", "--split train or validation"], "evaluate", "runs/gpt", "--dataset", "chain", cwd=folder)
        facts.write_text(facts.read_text().replace('"w9"', '"v9"'))
        refused(binary, 1, 4, ["vocabulary", "chain"], "generate", gpt, "--prompt", "w5", "--dataset", "chain", cwd=folder)

        run(binary, 2, "--model", "seq2seq", "--model-option", "embedding=32", "--model-option", "hidden=96",
            "--model-option", "dropout=0", "--epochs", 3, "--learning-rate", 5e-3, "--name", "seq2seq", "--quiet",
            "--checkpoint-every", "1epochs", "--keep", 9, cwd=folder)
        seq2seq = "runs/seq2seq/checkpoints/best"
        (folder / "lines.txt").write_text("w5 w6 w7\nw4\nw8 w9\n")
        for beam in (1, 3):
            lines = run(binary, 1, "generate", seq2seq, "--translate", "lines.txt", "--beam", beam, cwd=folder).stdout.splitlines()
            assert len(lines) == 3 and all(word.startswith("w") for line in lines for word in line.split()), lines
            assert len(lines[1].split()) <= len(lines[0].split()), lines  # order kept
            for mesh in "data=2", "pipe=2", "tensor=2":
                on_mesh = run(binary, 2, "generate", seq2seq, "--translate", "lines.txt", "--beam", beam, "--mesh", mesh, cwd=folder)
                assert on_mesh.stdout.splitlines() == lines, (mesh, on_mesh.stdout)
        # Half-trained, it is unsure of its words: the likeliest first word is often not that of the likeliest line.
        draw = random.Random(1)
        (folder / "many.txt").write_text("".join(" ".join(f"w{draw.randrange(4, 30)}" for _ in range(draw.randrange(1, 9))) + "\n" for _ in range(40)))
        unsure = sorted((folder / "runs/seq2seq/checkpoints").glob("step-*"))[0]
        found = [run(binary, 1, "generate", unsure, "--translate", "many.txt", "--beam", beam, cwd=folder).stdout.splitlines() for beam in (1, 3, 5)]
        assert all(len(lines) == 40 for lines in found) and len({tuple(lines) for lines in found}) == 3, found
        # As long as the longest sentence of the training.
        run(binary, 1, "stage", "long", "--format", "synthetic", "--task", "translation", "--samples", 40, "--vocab-size", 20, "--max-length", 130,
            cwd=folder)
        run(binary, 1, "--model", "seq2seq", "--model-option", "embedding=8", "--model-option", "hidden=8", "--dataset", "long", "--limit-steps", 1,
            "--name", "long", "--quiet", cwd=folder)
        for beam in (1, 2):
            endless = run(binary, 1, "generate", "runs/long", "--translate", "lines.txt", "--beam", beam, cwd=folder).stdout.splitlines()
            assert max(len(line.split()) for line in endless) == 130, endless
        refused(binary, 1, 2, ["--prompt", "seq2seq"], "generate", seq2seq, "--prompt", "w5", cwd=folder)
        refused(binary, 1, 2, ["--beam"], "generate", seq2seq, "--translate", "lines.txt", "--beam", 0, cwd=folder)
        refused(binary, 1, 3, ["nothing.txt"], "generate", seq2seq, "--translate", "nothing.txt", cwd=folder)
        (folder / "empty.txt").write_text("w5\n\nw6\n")
        refused(binary, 1, 3, ["empty.txt", "line 2"], "generate", seq2seq, "--translate", "empty.txt", cwd=folder)
        (folder / "latin.txt").write_bytes(b"w5\nw6 \xe4\n")
        refused(binary, 1, 3, ["latin.txt", "line 2"], "generate", seq2seq, "--translate", "latin.txt", cwd=folder)

        run(binary, 1, "--model", "mlp", "--limit-steps", 1, "--name", "mlp", "--quiet", cwd=folder)
        refused(binary, 1, 2, ["text"], "generate", "runs/mlp/checkpoints/best", "--prompt", "w5", cwd=folder)


main()
