"""Which slips in the tagged lines of a room its quick tests find.

    cd TREE; PYTHONPATH=TREE nice -n 10 python -B FOLDER/mutants.py rls --every 4

runs on the source tree in which it is started, and may itself lie elsewhere. In each
function of a paper's room with equation tags it makes the mutants of the tagged
statements, as `labkit.lab.exercises.mutants` does, and for each one runs the room's
quick tests that call this function until one fails. It writes ``mutants_<room>.csv``
into the current folder, or where ``--out`` says. With ``--every n`` only each nth
mutant is tried, by a hash of its text, and after ``--minutes`` no further one is.

    cd NEW; PYTHONPATH=NEW python -B tests/golden/mutants.py rls \\
        --against tests/golden/mutants_rls.csv --out /tmp

tries on another tree those mutants that died and whose statement still stands in a
function of the same name, wherever the function lies and whatever its variables are
called now. It prints those that live now, for which it ends with 1, and the functions
whose statements are not found. Changed lines have new mutants: of these each nth is
tried too, and those that live are printed for a reader to judge.

One process collects the tests; each mutant runs in a fork of it, in which the code of
the function is exchanged. Before that, the tests run once without a mutant, so that
it is known which tests fail anyway, how long each takes, and which functions it calls.
Tests on real data, of several processes, of compiling, and those that take more than
``--slow`` seconds are left out, and so is what checks numbers of before.
"""

import argparse
import ast
import builtins
import csv
import gc
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import textwrap
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType

HEAD = ("function", "tag", "kind", "change", "before", "after", "outcome", "test")
NOT_QUICK = ("distributed", "workers", "kills", "soak", "compile", "mnist")
NOT_QUICK = (*NOT_QUICK, "images", "sklearn", "cuts", "odd", "door", "citizen")
MORE_TESTS = {"rls": ("optimisers",), "hessian_free": ("optimisers",)}


def outermost(tree):
    """Yield the name and node of each function that lies in no other function."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def statements(node):
    """Yield the statements below a node, in the order of the text."""
    for name in ("body", "handlers", "orelse", "finalbody"):
        for inner in getattr(node, name, None) or []:
            if isinstance(inner, ast.stmt):
                yield inner
            yield from statements(inner)


def own_text(statement):
    """Return a simple statement in normal form; of another one only its kind."""
    if hasattr(statement, "body"):
        return type(statement).__name__
    return ast.unparse(statement)


def mutants_of(path, room):
    """Yield a row of HEAD without its end, and the text of the mutant."""
    from labkit.lab.exercises.mutants import mutants
    from labkit.lab.panels.lines.source import tags_of_line

    source = path.read_text("utf-8")
    lines = source.splitlines()
    for name, node in outermost(ast.parse(source)):
        first = node.lineno - 1
        text = textwrap.dedent("\n".join(lines[first : node.end_lineno])) + "\n"
        tags = {tag for line in text.splitlines() for tag in tags_of_line(line)}
        try:
            made = list(mutants(text, tags)) if tags else []
        except LookupError:  # only the heads of loops and conditions are tagged
            made = []
        plain = ast.parse(text).body[0]
        for mutant in made:
            try:
                changed = ast.parse(mutant.text).body[0]
            except SyntaxError:  # the minus of a starred part
                continue
            pairs = zip(statements(plain), statements(changed), strict=True)
            old, new = next((a, b) for a, b in pairs if own_text(a) != own_text(b))
            here = text.splitlines()[old.lineno - 1 : old.end_lineno]
            found = [tag for line in here for tag in tags_of_line(line)]
            row = {
                "function": f"{room}.{path.stem}:{name}",
                "tag": " ".join(dict.fromkeys(found)),
                "kind": mutant.kind,
                "change": mutant.change,
                "before": own_text(old),
                "after": own_text(new),
            }
            yield row, mutant.text


def unchanged(path, name, room):
    """Return a row for a function without a mutant, which must live."""
    return dict.fromkeys(HEAD, "") | {"function": f"{room}.{path.stem}:{name}"}


def mutated(path, name, text):
    """Return the module of a file with a mutant in the place of a function."""
    tree = ast.parse(path.read_text("utf-8"))
    if text is None:
        return tree
    target, changed = dict(outermost(tree))[name], ast.parse(text).body[0]
    keep_lines(target, changed)
    target.body = changed.body
    return tree


def keep_lines(old, new):
    """Give each statement of a function the lines of the same one before."""
    for before, after in zip(statements(old), statements(new), strict=True):
        for node in ast.walk(after):
            if hasattr(node, "lineno"):
                node.lineno, node.end_lineno = before.lineno, before.end_lineno
                node.col_offset, node.end_col_offset = 0, 1


def code_of(tree, path, name):
    """Compile a module and return the code of one of its functions."""
    ast.fix_missing_locations(tree)
    parts = [compile(tree, str(path), "exec")]
    while parts:
        code = parts.pop()
        if code.co_qualname == name:
            return code
        parts += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise LookupError(f"{path} has no code of {name}")


def exchange(path, name, code):
    """Have all functions of this name in this file run other code."""
    found = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_qualname == name
        and Path(each.__code__.co_filename) == path
    ]
    for function in found:
        function.__code__ = code
    return len(found)


def names_in(path):
    """Return the names of the tagged functions of a file."""
    from labkit.lab.panels.lines.source import tags_of_line

    source = path.read_text("utf-8")
    lines = source.splitlines()
    return [
        name
        for name, node in outermost(ast.parse(source))
        if any(tags_of_line(x) for x in lines[node.lineno - 1 : node.end_lineno])
    ]


def note_calls(path, name):
    """Have a function enter its name in `builtins.called_now` whenever it is called."""
    tree = ast.parse(path.read_text("utf-8"))
    target = dict(outermost(tree))[name]
    line = ast.parse(f"called_now.add({f'{path.stem}:{name}'!r})").body[0]
    for node in ast.walk(line):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = target.body[0].lineno
    target.body.insert(0, line)
    exchange(path, name, code_of(tree, path, name))


def in_child(work, seconds):
    """Run ``work`` in a fork; return what it returns, or None if it ran out of time."""
    with tempfile.NamedTemporaryFile("r") as file:
        child = os.fork()
        if not child:
            try:
                null = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(int(12 * seconds))  # if it waits and does not compute
                Path(file.name).write_text(json.dumps(work()))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        text = file.read()
        return json.loads(text) if text else None


def too_long(*_):
    raise TimeoutError("a quick test ends sooner")


class Runner:
    """A pytest plugin that runs the collected tests once for each mutant."""

    def __init__(self, options, files):
        self.options, self.files = options, files
        self.failed = None

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = f"{report.nodeid} ({report.when})"

    def run(self, items, until_failure=True):
        """Run tests; return what became of each: seconds, calls, failure.

        Where all are run, one that takes far too long is stopped, and so fails.
        """
        done = []
        limit = 0 if until_failure else 3 + 3 * self.options.slow
        signal.signal(signal.SIGVTALRM, too_long)
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.failed, start = None, time.process_time()
            builtins.called_now.clear()
            hook = item.config.hook
            signal.setitimer(signal.ITIMER_VIRTUAL, limit)
            hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds = time.process_time() - start
            done.append(
                (item.nodeid, seconds, sorted(builtins.called_now), self.failed)
            )
            if self.failed and until_failure:
                break
        return done

    def pytest_runtestloop(self, session):
        builtins.called_now = set()
        options = self.options
        items = [i for i in session.items if not left_out(i)]
        by_file = {}
        for item in items:
            by_file.setdefault(item.path, []).append(item)
        kept, calls, seconds = {}, {}, {}

        def first():
            for path in self.files:
                for name in names_in(path):
                    note_calls(path, name)
            return self.run(group, until_failure=False)

        for path, group in by_file.items():
            for nodeid, took, called, failed in in_child(first, 600) or []:
                if failed:
                    print("fails anyway:", failed)
                elif took <= options.slow:
                    kept[nodeid], seconds[nodeid] = True, took
                    calls[nodeid] = set(called)
            print(f"{path.name}: {len(group)} tests", flush=True)
        items = [item for item in items if item.nodeid in kept]
        print(f"{len(items)} tests, {sum(seconds.values()):.0f} s", flush=True)
        self.try_mutants(items, calls, seconds)
        return True

    def try_mutants(self, items, calls, seconds):
        options, end = self.options, time.time() + 60 * self.options.minutes
        wanted, tried, killers = self.wanted(), 0, Counter()
        target = Path(options.out) / f"mutants_{options.room}.csv"
        with target.open("w", newline="") as file:
            rows = csv.DictWriter(file, HEAD)
            rows.writeheader()
            for path, row, text in wanted:
                if time.time() > end:
                    print("out of time")
                    break
                name = row["function"].partition(":")[2]
                key = f"{path.stem}:{name}"
                own = [item for item in items if key in calls[item.nodeid]]
                own.sort(
                    key=lambda item: (
                        -killers[key, item.nodeid],
                        -killers[item.nodeid],
                        seconds[item.nodeid],
                    )
                )

                limit = 10 + 3 * sum(seconds[item.nodeid] for item in own)
                work = partial(self.outcome, path, name, text, own)
                found = in_child(work, min(limit, 60)) if own else ""
                row["test"] = "out of time" if found is None else found
                row["outcome"] = "lived" if found == "" else "died"
                if found:
                    test = found.rpartition(" (")[0]
                    killers[key, test] += 1
                    killers[test] += 1
                rows.writerow(row)
                file.flush()
                tried += 1
                if tried % 20 == 0:
                    print(f"{tried} of {len(wanted)}", flush=True)
        report(target, options.against)

    def outcome(self, path, name, text, items):
        """Return which test fails with a mutant, or nothing."""
        code = code_of(mutated(path, name, text), path, name)
        if not exchange(path, name, code):
            return "no such function (import)"
        return self.run(items)[-1][3] or ""

    def wanted(self):
        """Return the mutants to try, by their hash."""
        options, found = self.options, {}
        if options.control:
            names = ((p, n) for p in self.files for n in names_in(p))
            return [(p, unchanged(p, n, options.room), None) for p, n in names]
        old = {}
        if options.against:
            old = {normal(row): row["outcome"] for row in read(options.against)}
        for path in self.files:
            for row, text in mutants_of(path, options.room):
                line = "|".join(row.values())
                sign = hashlib.sha256(line.encode()).hexdigest()
                sampled = not int(sign, 16) % options.every
                if (old.get(normal(row)) or (sampled and "died")) == "died":
                    found[sign] = path, row, text
        print(f"{len(found)} mutants")
        return [found[sign] for sign in sorted(found)]


def left_out(item):
    marks = {mark.name for mark in item.iter_markers()}
    file = item.path.stem
    return bool(marks & {"real_data", "long", "browser"}) or any(
        word in file for word in NOT_QUICK
    )


def read(path):
    """Return the rows of a table of mutants."""
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def normal(row):
    """Return what makes two mutants the same, whatever their variables are called."""
    names = {}
    trees = [ast.parse(textwrap.dedent(row[side])) for side in ("before", "after")]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Name) and node.id != "torch":
            node.id = names.setdefault(node.id, f"v{len(names)}")
    function = row["function"].partition(":")[2]
    return (function, *map(ast.dump, trees))


def report(found, against):
    """Print how many died, and against an older table which live now."""
    rows = read(found)
    print(dict(Counter(row["outcome"] for row in rows)))
    if not against:
        return
    died = {normal(row): row for row in read(against) if row["outcome"] == "died"}
    now = {normal(row): row for row in rows}
    alive = [now[k] for k in died if k in now and now[k]["outcome"] == "lived"]
    new = [row for key, row in now.items() if key not in died]
    new = [row for row in new if row["outcome"] == "lived"]
    for words, rows in (("LIVES NOW:", alive), ("NEW, AND LIVES:", new)):
        for row in rows:
            print(words, *(row[name] for name in HEAD[:6]), sep="\n    ")
    gone = Counter(row["function"] for key, row in died.items() if key not in now)
    print(f"{len(died)} died before, {len(died) - sum(gone.values())} of them stand")
    print("their statements are not found:", dict(gone))
    report.failed = bool(alive)


report.failed = False


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("room")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--slow", type=float, default=2.0)
    parser.add_argument("--out", default=".")
    parser.add_argument("--against")
    parser.add_argument("--control", action="store_true", help="no mutants: all live")
    parser.add_argument("--count", action="store_true", help="count mutants only")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    top = Path.cwd()
    files = sorted((top / "labkit" / options.room).glob("*.py"))
    runner = Runner(options, files)
    if options.count:
        runner.wanted()
        return
    for path in files:
        importlib.import_module(
            f"labkit.{options.room}.{path.stem}".removesuffix(".__init__")
        )
    import pytest

    import labkit

    assert Path(labkit.__file__).is_relative_to(top), labkit.__file__
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    places = [f"labkit/{options.room}", f"tests/{options.room}"]
    places += [f"tests/{name}" for name in MORE_TESTS.get(options.room, ())]
    places = [place for place in places if Path(place).is_dir()]
    given = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
    given += ["--hypothesis-seed=0", *places]
    pytest.main(given, plugins=[runner])
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
