"""The study: the paper's tables on our own datasets.

    python benchmarks/paper/study.py table1 DATASET ... --data-root FOLDER
    python benchmarks/paper/study.py table2 DATASET ... --data-root FOLDER [--limit SECONDS] [--at-once] [--time]
    python benchmarks/paper/study.py questions DATASET ... --data-root FOLDER [--ask pool,kept] [--limit SECONDS]
    python benchmarks/paper/study.py table3 DATASET ... --data-root FOLDER [--tools ours,pecos]

FOLDER holds a folder of files, or a store, per dataset; debian-depends is embedded. A run whose result is stored is not
repeated without --again. Table 2 and the questions are searches of many runs: with --limit they stop after that time,
and the same command resumes them. ``tables.py`` prints the tables of the stored results.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import tables
from dataset import DATASETS, OURS, Dataset, work_folder
from matrices import checksums, export
from peers import all_peers, run_peer
from results import save_table1

from owlmine.errors import OwlmineError

HERE = Path(__file__).parent


def table1(arguments: argparse.Namespace) -> None:
    """Sizes and checksums of each dataset."""
    for name in arguments.datasets:
        store = Dataset.named(name).open(arguments.data_root)
        save_table1(name, store, checksums(store))
    print(tables.table1())


def table2(arguments: argparse.Namespace) -> None:
    """Mining against negative sampling, each method at its own rates."""
    from comparing import stop_after
    from table2 import in_parts, part_folder, settings_of, time_steps
    from table2 import table2 as compare_methods

    datasets = _checked_for_table2(arguments)
    began = time.monotonic()
    # With --at-once the parts stop themselves, and their runs are collected afterwards.
    if arguments.limit and not arguments.at_once:
        stop_after(arguments.limit)
    for dataset in datasets:
        name, work = dataset.name, work_folder(arguments.work) / "table2" / dataset.name
        options = dataset.table2 | {"device": arguments.device}
        store = dataset.open(arguments.data_root)
        if arguments.time:
            time_steps(store, name)
        elif arguments.method:
            own = options | {"methods": arguments.method}
            compare_methods(store, name, own, work=part_folder(work, arguments.method), keep=False)
        else:
            if arguments.at_once:
                command = _part_command(arguments, name, seconds_gone=time.monotonic() - began)
                in_parts(name, options, command, work=work)
            settings = None if arguments.settings is None else settings_of(arguments.settings)
            print(compare_methods(store, name, options, work=work, settings=settings))


def _checked_for_table2(arguments: argparse.Namespace) -> list[Dataset]:
    from owlmine.compare.methods import METHODS

    if arguments.method and arguments.method not in METHODS:
        raise OwlmineError(f"--method names {arguments.method!r}; wanted one of {', '.join(METHODS)}")
    datasets = [Dataset.named(name) for name in arguments.datasets]
    for dataset in datasets:
        if not dataset.table2:
            raise OwlmineError(f"{dataset.name}: has no Table 2")
    return datasets


def _part_command(arguments: argparse.Namespace, name: str, *, seconds_gone: float) -> list[str]:
    """The same on one dataset, still without its --method, in what is left of --limit."""
    command = [sys.executable, str(HERE / "study.py"), "table2", name, "--device", arguments.device]
    if arguments.data_root is not None:
        command += ["--data-root", str(arguments.data_root)]
    if arguments.work is not None:
        command += ["--work", str(arguments.work)]
    if arguments.limit:
        command += ["--limit", str(max(arguments.limit - seconds_gone, 1.0))]
    return command


def questions(arguments: argparse.Namespace) -> None:
    """What the paper leaves open: pool sizes, weights, surrogates and more."""
    from comparing import stop_after
    from questions import QUESTIONS, ask, time_steps

    if arguments.limit:
        stop_after(arguments.limit)
    for name in arguments.datasets:
        dataset = Dataset.named(name)
        options = dict(dataset.questions)
        own = options.pop("asked", [])
        if not own:
            raise OwlmineError(f"{name}: has no questions")
        store = dataset.open(arguments.data_root)
        for asked in arguments.ask.split(",") if arguments.ask else own:
            if asked not in QUESTIONS:
                raise OwlmineError(f"--ask names {asked!r}; wanted some of {', '.join(QUESTIONS)}")
            if arguments.time:
                print(time_steps(store, name, QUESTIONS[asked]), flush=True)
                continue
            work = work_folder(arguments.work) / "questions" / f"{name}-{asked}"
            print(ask(store, name, QUESTIONS[asked], options | {"device": arguments.device}, work=work), flush=True)


def table3(arguments: argparse.Namespace) -> None:
    """One tool at a time on one dataset at a time."""
    for name in arguments.datasets:
        dataset = Dataset.named(name)
        for tool in _chosen_tools(dataset, arguments.tools):
            if tool in OURS:
                _ours(name, tool, arguments)
            else:
                _peer(dataset, tool, arguments)
    print(tables.table3())


def _chosen_tools(dataset: Dataset, asked: str | None) -> list[str]:
    known = [*OURS, *all_peers()]
    if asked is None:
        return dataset.tools
    tools = asked.split(",")
    for tool in tools:
        if tool not in known:
            raise OwlmineError(f"--tools names {tool!r}; wanted some of {', '.join(known)}")
    return tools


def _ours(name: str, tool: str, arguments: argparse.Namespace) -> None:
    """In a process of its own, for its peak of memory."""
    command = [sys.executable, str(HERE / "ours.py"), name, "--tool", tool, "--device", arguments.device]
    if arguments.data_root is not None:
        command += ["--data-root", str(arguments.data_root)]
    if arguments.again:
        command.append("--again")
    if (status := subprocess.run(command, check=False).returncode) != 0:
        raise OwlmineError(f"{' '.join(command)}\nended with status {status}")


def _peer(dataset: Dataset, tool: str, arguments: argparse.Namespace) -> None:
    work = work_folder(arguments.work)
    folder = work / "matrices" / dataset.name
    store = dataset.open(arguments.data_root)
    sums = export(store, folder)
    save_table1(dataset.name, store, sums)
    result = run_peer(all_peers()[tool], dataset.name, store, (folder, sums), work, again=arguments.again)
    print(f"{dataset.name}, {tool}: {'stored before' if result is None else result['figures']}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for verb in (table1, table2, questions, table3):
        one = verbs.add_parser(verb.__name__, help=verb.__doc__)
        one.set_defaults(verb=verb)
        one.add_argument("datasets", nargs="+", metavar="DATASET", choices=DATASETS, help=", ".join(DATASETS))
        one.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
        if verb is not table1:
            one.add_argument("--work", type=Path, help="folder for files between calls (default: the cache)")
        if verb in (table2, questions):
            one.add_argument("--device", default="auto", choices=["cpu", "cuda", "auto"])
            one.add_argument("--limit", type=float, help="stop after this many seconds; the same command resumes")
        if verb is table2:
            how = one.add_mutually_exclusive_group()
            how.add_argument("--at-once", action="store_true", help="run one process per method")
            how.add_argument("--method", help="run this method alone, and store its runs without a table")
            how.add_argument("--time", action="store_true", help="time the steps of stored results, alone")
            how.add_argument("--settings", type=Path, help="take settings from these stored results, without a search")
        if verb is questions:
            one.add_argument("--ask", help="separated by commas (default: all of the dataset's)")
            one.add_argument("--time", action="store_true", help="time the steps of stored results, alone")
        if verb is table3:
            one.add_argument("--tools", help="separated by commas (default: all of the dataset's)")
            one.add_argument("--device", default="cpu", choices=["cpu", "cuda", "auto"], help="for ours")
            one.add_argument("--again", action="store_true", help="run again even if the result is stored")
    return parser


def main() -> None:
    arguments = _parser().parse_args()
    try:
        arguments.verb(arguments)
    except OwlmineError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
