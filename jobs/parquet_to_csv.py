"""Writes Parquet files as CSV tables that `dtrain stage` takes. Needs pyarrow: python3 -m pip install pyarrow

    python3 jobs/parquet_to_csv.py patients.parquet patients.csv
    python3 jobs/parquet_to_csv.py parts/ tables/ --ignore notes,scan    # each parts/NAME.parquet becomes tables/NAME.csv

Numbers, booleans, text, dates and times are kept, and a value that is not there becomes an empty cell. A column of another
type is refused by its name. Rows are read in pieces, so that a file may be larger than the memory.
Exit codes: 0 done, 1 the output cannot be written, 2 usage, 3 the data.
"""

import argparse
import os
import sys
from pathlib import Path

ROWS = 1 << 16  # read at a time


class Refused(Exception):
    """One sentence and its exit code."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def import_pyarrow():
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise Refused(2, f"this script needs pyarrow, which is not here ({error}); install it with python3 -m pip install pyarrow") from error
    return pyarrow


def type_in_csv(pa, kind):
    """The type as which a column of type `kind` is written, or None for one that a cell cannot hold."""
    types = pa.types
    if types.is_dictionary(kind):
        return type_in_csv(pa, kind.value_type)
    if types.is_float16(kind):
        return pa.float32()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        return pa.string()
    if types.is_timestamp(kind):  # finer than stage reads dates, and the same for all
        return pa.timestamp("us", kind.tz)
    plain = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_date)
    return kind if any(is_kind(kind) for is_kind in plain) else None


def columns_of(pa, schema, file, ignored):
    """The columns to write, with the types that they get."""
    unknown = [name for name in ignored if name not in schema.names]
    if unknown:
        raise Refused(2, f"--ignore {unknown[0]}: {file} has no such column; it has {', '.join(schema.names)}")
    fields = []
    for field in schema:
        if field.name in ignored:
            continue
        if schema.names.count(field.name) > 1:
            raise Refused(3, f"{file}: has the column {field.name} twice; rename one of them")
        kind = type_in_csv(pa, field.type)
        if kind is None:
            raise Refused(3, f"{file}: has the column {field.name} of type {field.type}, which a table cannot hold; "
                             f"leave it out with --ignore {field.name}, or write it as numbers, text or dates")
        fields.append(pa.field(field.name, kind))
    if not fields:
        raise Refused(2, f"--ignore leaves no column of {file}; leave fewer out")
    return pa.schema(fields)


def convert(pa, source, target, ignored):
    """One file. The table gets its name when it is whole."""
    aside = target.with_name(target.name + ".partial")
    try:
        with pa.parquet.ParquetFile(source) as file:
            schema = columns_of(pa, file.schema_arrow, source, ignored)
            if file.metadata.num_rows == 0:
                raise Refused(3, f"{source}: holds no rows; give at least one")
            with pa.csv.CSVWriter(aside, schema) as out:
                for batch in file.iter_batches(batch_size=ROWS, columns=schema.names):
                    out.write(pa.Table.from_batches([batch]).cast(schema, safe=False))
        os.replace(aside, target)
        return schema
    except pa.ArrowException as error:
        raise Refused(3, f"{source}: cannot be read as Parquet ({str(error).splitlines()[0]}); write it again") from error
    finally:
        aside.unlink(missing_ok=True)


def pairs_of(source, target):
    """Each Parquet file and the table that it becomes."""
    if not source.exists():
        raise Refused(3, f"{source}: there is no such file or folder; check the path")
    if source.is_file():
        return [(source, target)]
    files = sorted(source.glob("*.parquet"))
    if not files:
        raise Refused(3, f"{source}: holds no .parquet file; name the file itself")
    target.mkdir(parents=True, exist_ok=True)
    return [(file, target / (file.stem + ".csv")) for file in files]


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, metavar="FROM", help="a Parquet file, or a folder of them")
    parser.add_argument("target", type=Path, metavar="TO", help="the CSV file, or a folder for them")
    parser.add_argument("--ignore", default="", metavar="COLS", help="columns to leave out, separated by commas")
    given = parser.parse_args(words)
    ignored = [name for name in given.ignore.split(",") if name]
    try:
        pa = import_pyarrow()
        for source, target in pairs_of(given.source, given.target):
            schema = convert(pa, source, target, ignored)
            print(f"{target}: {len(schema)} columns of {source}")
    except Refused as refusal:
        print(f"parquet_to_csv: {refusal}", file=sys.stderr)
        return refusal.code
    except OSError as error:
        print(f"parquet_to_csv: {given.target}: cannot be written ({error.strerror}); give another place", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
