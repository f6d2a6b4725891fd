"""What notebooks share: live experiments, problems, races; at most a module a paper.

Importing it settles the threads of torch and BLAS, see :mod:`labkit.threads`: small
tensors are what most of the notebooks compute on.
"""

from labkit.threads import set_threads

set_threads()
