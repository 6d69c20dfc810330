"""What the benchmarks share: contenders that are ended for certain, CPU time, memory, namespaces, tables, results.

Machines are noisy. So every figure is a median over rounds in which all contenders were asked in turn, with its spread,
and the first figure is CPU time for each operation: it says what a server costs, whoever else runs beside it. Compare
ratios within one run; figures of another machine or hour say nothing.
"""

import glob
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import plot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


class Failed(Exception):
    """The run cannot go on; the message says why and what to do."""


def output(command):
    """What a command prints, both ways; for asking after a version."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


def version(command, pattern=r"(\d+(?:\.\d+)+)"):
    """The first thing in a program's words that looks like a version."""
    try:
        found = re.search(pattern, output(command))
    except FileNotFoundError as error:
        raise Failed(f"'{command[0]}' is not installed: run `testbed/packages clients bench`") from error
    return found.group(1) if found else "?"


def machine():
    """Where this ran."""
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*:\s*(.*)", file.read())
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
    }


class Processes:
    """Everything that a run starts; all of it ends with the run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.running = []
        self.namespaces = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "delete", namespace], check=False)

    def write(self, path, text):
        """A file in the run's folder."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def namespace(self, name):
        """A network namespace of this run's own, with loopback up."""
        name = f"bench{os.getpid()}-{name}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.namespaces.append(name)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        return name

    def spawn(self, name, command, core=None, namespace=None, **environment):
        """Starts a process; what it says is in the folder under its name."""
        pinned = ["taskset", "-c", str(core)] if core is not None else []
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*inside, *first(), *pinned, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )
        self.running.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def until(self, what, condition, seconds=60):
        """Waits for a condition, and says what did not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"waited {seconds} s in vain: {what}; see {self.folder}")
            time.sleep(0.02)

    def end(self, *processes):
        """Ends these processes, or all."""
        ending = list(processes) or self.running
        for process in ending:
            process.terminate()
        for process in ending:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = [process for process in self.running if process not in ending]


def first():
    """What goes before a command so that a neighbour's work does not decide the outcome: all contenders get it."""
    return ["nice", "-n", "-10"] if os.geteuid() == 0 else []


def on_control_plane(testbed, program, *arguments):
    """What a program found on a test control plane of its own: the line of JSON that it prints."""
    command = [*first(), testbed, "run", "--", program, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{program.name} {' '.join(map(str, arguments))}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def tree(pid):
    """A process and all below it."""
    pids = [pid]
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                for child in file.read().split():
                    pids += tree(int(child))
        except FileNotFoundError:
            pass
    return pids


def cpu_micros(pid):
    """Time on a core of all threads of a process and of those below it, by the scheduler's own count."""
    total = 0
    for one in tree(pid):
        for path in glob.glob(f"/proc/{one}/task/*/schedstat"):
            try:
                with open(path) as file:
                    total += int(file.read().split()[0])
            except FileNotFoundError:
                pass
    return total / 1000


def memory_mib(pid):
    """Proportional memory of a process and of those below it: what is shared counts once."""
    total = 0
    for one in tree(pid):
        with open(f"/proc/{one}/smaps_rollup") as file:
            total += int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M).group(1))
    return total / 1024


def median(values):
    values = sorted(value for value in values if value is not None)
    if not values:
        return None
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def summary(values):
    """Median and spread of a figure over the rounds."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"median": median(values), "least": min(values), "most": max(values)}


def summaries(rounds):
    """{contender: [figures of a round]} to {contender: {figure: summary}}."""
    names = {figure for figures in rounds.values() for one in figures for figure in one}
    return {
        contender: {name: summary([one.get(name) for one in figures]) for name in sorted(names)}
        for contender, figures in rounds.items()
    }


def shown(value, digits):
    return "–" if value is None else f"{value:,.{digits}f}"


def cell(summarised, digits):
    """`12.3 (11.8–14.0)`: the median and the spread."""
    if summarised is None:
        return "–"
    middle = shown(summarised["median"], digits)
    if summarised["least"] == summarised["most"]:
        return middle
    return f"{middle} ({shown(summarised['least'], digits)}–{shown(summarised['most'], digits)})"


def middle(figures, contender, figure):
    """The median of a figure, if it was measured."""
    found = figures.get(contender, {}).get(figure)
    return found["median"] if found else None


def ratio(figures, figure, contender, others):
    """A contender's figure over the least of some others."""
    values = [figures[other][figure]["median"] for other in others if other in figures and figures[other].get(figure)]
    own = figures.get(contender, {}).get(figure)
    return own["median"] / min(values) if own and values and min(values) else None


def table(columns, figures):
    """A table in Markdown: `columns` are (title, figure, digits)."""
    lines = ["| | " + " | ".join(title for title, _, _ in columns) + " |", "|" + "---|" * (len(columns) + 1)]
    for contender, row in figures.items():
        cells = [cell(row.get(figure), digits) for _, figure, digits in columns]
        lines.append(f"| {contender} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def goals(rows):
    """What was aimed at, and what came of it: rows of (goal, measured, limit, digits). A limit that is to be reached
    rather than kept is a text, such as ">=2"."""
    lines = ["| goal | measured | |", "|---|---|---|"]
    for goal, measured, limit, digits in rows:
        if measured is None:
            verdict = "not measured"
        elif isinstance(limit, str):
            least = float(limit.removeprefix(">="))
            verdict = "held" if measured >= least else f"missed by {1 - measured / least:.0%}"
        else:
            verdict = "held" if measured <= limit else missed(measured, limit)
        lines.append(f"| {goal} | {shown(measured, digits)} | {verdict} |")
    return "\n".join(lines)


def missed(measured, limit):
    return f"missed by {measured / limit - 1:.0%}" if limit else "missed"


def publish(name, title, result, text):
    """Writes bench/results/NAME.json, its plot, and the part of docs/performance.md that is NAME's."""
    result = {"schemaVersion": 1, "name": name, "machine": machine(), **result}
    (HERE / "results").mkdir(exist_ok=True)
    path = HERE / "results" / f"{name}.json"
    path.write_text(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    plot.of_result(name, result)
    where = result["machine"]
    versions = ", ".join(f"{peer} {number}" for peer, number in sorted(result["versions"].items()))
    facts = (
        f"{where['cores']} cores of {where['cpu']}, Linux {where['kernel']}, load {where['load']} at the end of the run"
        f"{'; ' + versions if versions else ''}. {result['rounds']} round{'s' if result['rounds'] > 1 else ''}; medians, and the spread in parentheses."
    )
    replace_part(ROOT / "docs/performance.md", name, f"## {title}\n\n{facts}\n\n{text}\n")
    print(f"\n{facts}\n\n{text}\n\nwritten: {path.relative_to(ROOT)}, docs/performance.md")


def replace_part(page, name, text):
    """Replaces what stands between the marks of a part, and nothing else."""
    begin, end = f"<!-- bench {name} -->", f"<!-- end {name} -->"
    whole = page.read_text()
    if begin not in whole or end not in whole:
        raise Failed(f"{page} has no place for {name}: it needs {begin} and {end}")
    before, rest = whole.split(begin, 1)
    after = rest.split(end, 1)[1]
    page.write_text(f"{before}{begin}\n{text}{end}{after}")


def run(main):
    """Runs a benchmark's main and says in one line why it failed."""
    try:
        main()
    except Failed as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
