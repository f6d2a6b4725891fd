"""The kernel of runs, ipykernel in the same Python, and how often a run is saved."""

import sys
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from papermill.engines import NBClientEngine, NotebookExecutionManager
from traitlets import default

SAVED = 5  # seconds between two savings of a notebook that is executed


class ThisPython(AsyncKernelManager):
    """Start ``python3`` from this interpreter.

    A kernel of that name which the user has installed elsewhere would come first
    otherwise, and with it another set of packages.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if sys.platform == "linux":
            # without ports, which others may take before the kernel has started
            self.transport = "ipc"
            self.ip = f"@{self.session.session}"

    @default("kernel_spec_manager")
    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        # without folders to search there is only ipykernel's own description left
        return KernelSpecManager(kernel_dirs=[])


class SavedNowAndThen(NBClientEngine):
    """Execute as papermill does, and save the notebook every `SAVED` seconds at most.

    Papermill saves at the beginning and at the end of every cell, and writes all
    figures anew each time.  A run that is killed loses the outputs of its last seconds.
    """

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, **kwargs: Any
    ) -> None:
        """Execute the cells; the notebook is saved once more when they have ended."""
        save = nb_man.save

        def now_and_then(**_: Any) -> None:
            if (nb_man.now() - nb_man.last_save_time).total_seconds() >= SAVED:
                save()

        nb_man.save = now_and_then
        try:
            super().execute_managed_notebook(nb_man, kernel_name, **kwargs)
        finally:
            nb_man.save = save
