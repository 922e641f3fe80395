"""``r3bench export``: the ledgers of a run as one xarray Dataset in Zarr."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "write every evaluation, program and step of a search as one xarray Dataset in Zarr"
    parser = commands.add_parser("export", help=text, description=text)
    parser.add_argument("place", type=Path, metavar="LEDGER|FOLDER", help="a ledger, or a folder of a run's report")
    parser.add_argument("target", type=Path, metavar="RUN.zarr", help="the store to write, or RUN.zarr.zip")
    parser.set_defaults(run=export)


def export(arguments: argparse.Namespace) -> int:
    """Gather the ledgers of the place and write them."""
    from r3bench.errors import LedgerError
    from r3bench.export import export as write
    from r3bench.report.words import counted

    place = arguments.place
    if not place.exists():
        raise LedgerError(f"{place} is not there; name a ledger, or the folder of a run's report")
    ledgers = [place] if place.is_file() else sorted((*place.glob("*.jsonl"), *place.glob("ledger/*.jsonl")))
    if not ledgers:
        raise LedgerError(f"{place} holds no ledger; name the folder of a search's report, with its ledger/ inside")
    write(ledgers, arguments.target)
    store = repr(str(arguments.target))
    opened = f"zarr.storage.ZipStore({store})" if arguments.target.suffix == ".zip" else store
    print(f"{arguments.target}: {counted(len(ledgers), 'ledger')}; xarray.open_zarr({opened}) reads it")
    return 0
