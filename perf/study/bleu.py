"""BLEU of a seq2seq checkpoint on Multi30k's test_2016, by sacrebleu, without case.

`dtrain generate CHECKPOINT --translate` translates the German sentences; the English ones are the references. Case is left
out because the word tokeniser is lower-case; sacrebleu's own tokenisation (13a) is applied to both sides, and its signature
is printed with the score.
"""

import argparse
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent


def lines_of(folder, name):
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            return data.decode().splitlines()
    sys.exit(f"bleu: {folder}/{name} is missing; data/fetch.sh multi30k gets it")


def main():
    parser = argparse.ArgumentParser(prog="perf/bleu.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--raw", type=Path, default=TOP / "data/raw/multi30k", help="folder with test_2016_flickr.de and .en")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--dtrain", default=str(TOP / "dtrain"))
    arguments = parser.parse_args()
    try:
        import sacrebleu
    except ImportError:
        sys.exit("bleu: sacrebleu is missing; jobs/setup.sh --with-tools installs it")
    folder = next((path.parent for path in sorted(arguments.raw.rglob("test_2016_flickr.de*"))), arguments.raw)
    german, english = lines_of(folder, "test_2016_flickr.de"), lines_of(folder, "test_2016_flickr.en")
    with tempfile.NamedTemporaryFile("w", suffix=".de", encoding="utf-8") as source:
        source.write("\n".join(german) + "\n")
        source.flush()
        done = subprocess.run([arguments.dtrain, "generate", arguments.checkpoint, "--translate", source.name,
                               "--beam", str(arguments.beam)], check=True, text=True, stdout=subprocess.PIPE)
    said = done.stdout.splitlines()
    assert len(said) == len(german), (len(said), len(german))
    metric = sacrebleu.BLEU(lowercase=True)
    print(f"beam {arguments.beam}: {metric.corpus_score(said, [english])}")
    print(f"signature: {metric.get_signature()}")
    for i in range(3):
        print(f"  {german[i]}\n    reference: {english[i]}\n    dtrain:    {said[i]}")


if __name__ == "__main__":
    main()
