"""The CPU device: runs a kernel's blocks over the processor's cores, in a process that may crash or hang.

``device.py`` is the device; ``memory.py`` and ``arena.py`` place units in shared memory against guard pages (as far as
``available.py`` finds room); ``process.py`` is the device's end of the processes, ``forkserver.py`` and ``worker.py``
are those processes, ``wire.py`` is what travels between them; ``driver.c`` runs blocks on threads and ``blocks.c`` the
threads of a block (``sources.py`` compiles them), ``native.py`` is how the worker calls them; ``elf.py``,
``provided.py`` and ``limits.py`` say which objects and launches are let in, and ``faults.py`` what went wrong.
"""
