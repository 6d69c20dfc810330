"""The control plane that `testbed run` started, by its own programs."""

import contextlib
import os
import socket
import subprocess
import tempfile

from tools import DEPLOY, ROOT, run

STATE = os.environ.get("OOOI_TESTBED")
KUSTOMIZE = DEPLOY / "kustomize"
OOOI = ROOT / "target/debug/oooi"


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


def free_address():
    """An address on loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:{1}".format(*listener.getsockname())


@contextlib.contextmanager
def manager():
    """A manager that works on the control plane, by the address of its metrics. What fails meanwhile shows its log."""
    address = free_address()
    command = [OOOI, "manager", "--image=localhost/oooi:dev", "--pod-namespace=oooi-system", "--metrics-secure=false"]
    command += [f"--metrics-bind-address={address}", f"--health-probe-bind-address={free_address()}"]
    environment = {**os.environ, "KUBECONFIG": f"{STATE}/kubeconfig"}
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
            try:
                yield address
            except AssertionError as error:
                log.seek(0)
                raise AssertionError(f"{error}:\n{log.read()}") from None
            finally:
                process.terminate()
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    log.seek(0)
                    raise AssertionError(f"the manager did not end when it was told to:\n{log.read()}") from None
