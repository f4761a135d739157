"""Text to stage: other alphabets' bytes, empty documents, and sizes that make no sense."""

import staged
from case import STAGE, Family

FAMILY = Family("text")
SENTENCES = [f"{i} the quick brown fox number {i} jumps over the lazy dog" for i in range(30)]


def written(**files):
    """prepare: files below in/, by their path, of bytes or text."""
    def prepare(folder, given):
        for name, content in files["of"].items():
            path = folder / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return prepare


def texts(count):
    """check: so many texts were staged, none of them empty."""
    def check(folder, given, output):
        lengths = [end - begin for begin, end in staged.spans(folder)]
        return "" if len(lengths) == count and min(lengths) > 0 else f"{len(lengths)} texts instead of {count}"
    return check


def news(rows):
    return written(of={"train.csv": rows})


ROWS = "".join(f'{1 + i % 3},"{SENTENCES[i]}"\n' for i in range(30))
FAMILY.add("as it should be", news(ROWS), *STAGE, "in", code=0, check=texts(30))
NEWS = {
    "Latin-1": ROWS.replace("quick", "qüick").encode("latin-1"), "an empty document": ROWS + '2,"  "\n', "a class of text": ROWS + 'two,"a b c d"\n',
    "a class beyond 64 bits": ROWS + '99999999999999999999999,"a b c d"\n', "a field too many": ROWS + '2,"a b c d",more,fields\n',
    "an open quote": ROWS + '2,"never closed\n', "a zero byte": ROWS + '2,"a b\0 c d"\n', "a class of control characters": ROWS + '\x1b[2J,"a b c d"\n',
    "one class only": "".join(f'1,"{text}"\n' for text in SENTENCES), "overlong UTF-8": ROWS.encode() + b'2,"a \xc0\xaf b c"\n',
    "half a letter": ROWS.encode() + b'2,"a b c \xe2\x82"\n', "a surrogate": ROWS.encode() + b'2,"a \xed\xa0\x80 b c"\n',
}
for name, rows in NEWS.items():
    FAMILY.add(f"news with {name}", news(rows), *STAGE, "in", "--format", "text_csv", code={0, 3} if name == "a zero byte" else 3,
               check=texts(31),
               quick=name == "Latin-1")
FAMILY.add("news whose classes.txt is Latin-1", written(of={"train.csv": ROWS, "classes.txt": "für\nzwei\ndrei\n".encode("latin-1")}),
           *STAGE, "in", code={0, 3}, check=texts(30))
FAMILY.add("news whose classes.txt has control characters", written(of={"train.csv": ROWS, "classes.txt": "a\x1b[2J\nb\nc\n"}),
           *STAGE, "in", code={0, 3}, check=texts(30))
FAMILY.add("news with fewer names than classes", written(of={"train.csv": ROWS, "classes.txt": "a\nb\n"}), *STAGE, "in", code=3)


def reviews(extra):
    files = {f"{split}/{kind}/{i}_{7 if kind == 'pos' else 2}.txt": SENTENCES[i] for split in ("train", "test") for kind in ("pos", "neg")
             for i in range(12)}
    return written(of={**files, **extra})


FAMILY.add("reviews as they should be", reviews({}), *STAGE, "in", code=0)
for name, content in {"Latin-1": "caf\xe9 au lait".encode("latin-1"), "empty": b"", "binary": bytes(range(256)) * 4}.items():
    FAMILY.add(f"a review that is {name}", reviews({"train/pos/99_8.txt": content}), *STAGE, "in", code={0, 3} if name == "empty" else 3,
               check=texts(48))
FAMILY.add("reviews of one class", written(of={f"train/pos/{i}_9.txt": SENTENCES[i] for i in range(20)}), *STAGE, "in", code=3)

PAIRS = {f"train.{language}": "\n".join(SENTENCES) + "\n" for language in ("de", "en")}
FAMILY.add("pairs as they should be", written(of=PAIRS), *STAGE, "in", "--min-frequency", "1", code=0)
for name, change in {"fewer lines": {"train.de": "\n".join(SENTENCES[:-1]) + "\n"}, "Latin-1": {"train.de": "für\n".encode("latin-1") * 30},
                     "empty lines": {"train.de": "\n" * 30}, "nothing": {"train.de": "", "train.en": ""}}.items():
    FAMILY.add(f"pairs with {name}", written(of={**PAIRS, **change}), *STAGE, "in", "--format", "parallel", code=3)
for name, languages in {"an unknown language": "fr-en", "a path": "../x-en", "no dash": "de", "control characters": "\x1b[2J-en"}.items():
    FAMILY.add(f"pairs in {name}", written(of=PAIRS), *STAGE, "in", "--format", "parallel", "--languages", languages, code={2, 3},
               quick=name == "control characters")

RUNNING = " ".join(SENTENCES) * 40


def one_id_per_letter(letters):
    """check: so many different tokens, characters that a terminal would obey among them."""
    def check(folder, given, output):
        found = len(set(staged.array(folder, "tokens").tolist()))
        return "" if found == letters else f"{found} different tokens instead of {letters}"
    return check


FAMILY.add("running text as it should be", written(of={"a.txt": RUNNING}), *STAGE, "in", "--format", "text", "--max-length", "16", code=0)
for name, content in {"Latin-1": RUNNING.replace("quick", "qüick").encode("latin-1"), "binary": bytes(range(256)) * 100, "nothing": b"", "one letter": b"a",
                      "zeros": b"\0" * 10_000, "control characters": b"\x1b[2J\x07" * 3000}.items():
    FAMILY.add(f"running text of {name}", written(of={"a.txt": content}), *STAGE, "in", "--format", "text", "--max-length", "16",
               code={0, 3} if name in ("control characters", "zeros") else 3, check=one_id_per_letter(5))
for name, words, code in (("huge blocks", ("--max-length", "2147483647"), {2, 3}), ("no length", ("--max-length", "0"), 2),
                          ("a negative length", ("--max-length", "-5"), 2), ("a huge vocabulary", ("--vocab-size", "2147483647"), {0, 2, 3}),
                          ("a vocabulary of 1", ("--vocab-size", "1"), {0, 2, 3}), ("an unknown tokenizer", ("--tokenizer", "magic"), 2),
                          ("a tokenizer of control characters", ("--tokenizer", "\x1b[2J"), 2)):
    FAMILY.add(f"running text with {name}", written(of={"a.txt": RUNNING}), *STAGE, "in", "--format", "text", *words, code=code)
FAMILY.add("a huge vocabulary of pieces", written(of={"a.txt": RUNNING}), *STAGE, "in", "--format", "text", "--tokenizer", "sentencepiece",
           "--vocab-size", "2147483647", "--max-length", "16", code={2, 3})
