#!/usr/bin/env python3
"""Check a tariff file: print every bad row with its line, change nothing.

Exit code 0: all rows are good. 1: some are bad. 2: the file cannot be read.
"""

import argparse
import csv
import datetime
import re
import sys

COLUMNS = ["lane", "carrier", "valid_from", "valid_to", "price_eur"]
LANE = re.compile(r"[A-Z]{2}[A-Z2-9]{3}-[A-Z]{2}[A-Z2-9]{3}")
CARRIER = re.compile(r"[A-Z]{2,4}")
PRICE = re.compile(r"\d+(\.\d{1,2})?")


def date_of(text):
    """The date of `YYYY-MM-DD`, or None."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def problems(row):
    """What is wrong with one row, in words."""
    if None in row or None in row.values():
        return [f"the row does not have {len(COLUMNS)} values"]
    found = []
    if not LANE.fullmatch(row["lane"]):
        found.append(f"lane {row['lane']!r} is not like DEHAM-SGSIN")
    if not CARRIER.fullmatch(row["carrier"]):
        found.append(f"carrier {row['carrier']!r} is not 2 to 4 capital letters")
    start, end = date_of(row["valid_from"]), date_of(row["valid_to"])
    if start is None or end is None:
        found.append("a date is not YYYY-MM-DD")
    elif end < start:
        found.append("valid_to is before valid_from")
    if not PRICE.fullmatch(row["price_eur"]) or float(row["price_eur"]) == 0:
        found.append(f"price {row['price_eur']!r} is not positive with at most 2 decimals")
    return found


def check(lines, delimiter):
    """Yield (line number, row, problems) for each row."""
    reader = csv.DictReader(lines, delimiter=delimiter)
    if reader.fieldnames != COLUMNS:
        raise ValueError(f"the columns are {reader.fieldnames}, not {COLUMNS}")
    seen = {}
    for row in reader:
        found = problems(row)
        key = (row["lane"], row["carrier"], row["valid_from"])
        if not found and key in seen:
            print(f"note: line {reader.line_num} replaces line {seen[key]}")
        seen[key] = reader.line_num
        yield reader.line_num, row, found


def main():
    """Read the arguments, check the file, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--delimiter", default=",")
    parser.add_argument("--good", help="write the good rows to this file")
    args = parser.parse_args()
    good, n_bad = [], 0
    try:
        with open(args.file, encoding="utf-8-sig", newline="") as lines:
            for line, row, found in check(lines, args.delimiter):
                if found:
                    n_bad += 1
                    print(f"line {line}: {'; '.join(found)}")
                else:
                    good.append(row)
    except UnicodeDecodeError:
        print(f"{args.file}: not UTF-8", file=sys.stderr)
        return 2
    except (OSError, ValueError, csv.Error) as error:
        print(f"{args.file}: {error}", file=sys.stderr)
        return 2
    if args.good:
        with open(args.good, "w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(good)
    print(f"{len(good)} good rows, {n_bad} bad rows")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
