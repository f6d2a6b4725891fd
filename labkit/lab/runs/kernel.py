"""The kernel of runs: ipykernel in the same Python that runs labkit."""

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from traitlets import default


class ThisPython(AsyncKernelManager):
    """Start ``python3`` from this interpreter.

    A kernel of that name which the user has installed elsewhere would come first
    otherwise, and with it another set of packages.
    """

    @default("kernel_spec_manager")
    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        # without folders to search there is only ipykernel's own description left
        return KernelSpecManager(kernel_dirs=[])
