"""What the tests of deploy/ share: the programs of the testbed, and manifests as Python values."""

import functools
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

try:
    import yaml
except ModuleNotFoundError:
    sys.exit("PyYAML is missing: run `testbed/packages deploy`, and these tests by /usr/bin/python3")

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/oooi"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def testbed():
    """The folder of the testbed; what is missing is said by whoever builds it."""
    where = subprocess.run([ROOT / "testbed/build", "--where"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(where.stdout.strip())


def run(program, *arguments, ok=True, text=None, environment=None):
    """Runs a program of the testbed. `ok` is whether it has to succeed; None: either way."""
    done = subprocess.run(
        [testbed() / "bin" / program, *map(str, arguments)],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if ok is not None and (done.returncode == 0) != ok:
        words = " ".join(map(str, [program, *arguments]))
        raise AssertionError(f"`{words}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def until(what, condition):
    """Waits for a condition, and says what is missing."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain waited until {what}")
        time.sleep(0.3)


def fetch(url):
    """The page at an address; empty while nobody serves it."""
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return page.read().decode()
    except OSError:
        return ""


def documents(text):
    """The documents of a YAML text."""
    return [document for document in yaml.load_all(text, LOADER) if document]


def by_name(objects):
    """Objects by kind, namespace and name. None may be there twice."""
    named = {}
    for item in objects:
        metadata = item["metadata"]
        key = (item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"])
        if key in named:
            raise AssertionError(f"{key} is rendered twice")
        named[key] = item
    return named


def kustomized(folder):
    """What an overlay renders."""
    return documents(run("kubectl", "kustomize", folder).stdout)


def templated(*options, namespace="oooi-system"):
    """What the chart renders."""
    return documents(run("helm", "template", "oooi", CHART, "--namespace", namespace, *options).stdout)


def version():
    """The version of the workspace."""
    lines = (ROOT / "Cargo.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def last_release(checkout=ROOT):
    """The tag before this commit. Until there is one: what is committed, as against what is in the checkout."""
    # A tag of this very commit names what is to be tested. The first commit of all has none before it.
    command = ["git", "describe", "--tags", "--abbrev=0", "HEAD^"]
    described = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "HEAD"
