"""The control plane that `testbed run` started, by its own programs."""

import os

from tools import DEPLOY, run

STATE = os.environ.get("OOOI_TESTBED")
KUSTOMIZE = DEPLOY / "kustomize"


def is_there():
    """Refuses to go on without one."""
    if not STATE:
        raise AssertionError("OOOI_TESTBED is not set: run `make test-deploy`")


def kubectl(*arguments, **options):
    """kubectl, with warnings as errors."""
    environment = {"KUBECONFIG": f"{STATE}/kubeconfig"}
    return run("kubectl", "--warnings-as-errors", *arguments, environment=environment, **options)


def apply(*arguments, **options):
    """Server-side apply."""
    return kubectl("apply", "--server-side", *arguments, **options)


def define(*paths):
    """Applies definitions, and waits until they are served."""
    apply(*(word for path in paths for word in ("-f", path)))
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")


def prepare_namespace():
    """The namespace as deploy/kustomize has it, for those that bring none."""
    apply("-f", KUSTOMIZE / "base/namespace.yaml")
