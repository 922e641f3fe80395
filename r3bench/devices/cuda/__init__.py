"""The CUDA device: runs kernels on an NVIDIA GPU, in a process that may be lost with its context at any time.

``device.py`` is the device; it never touches CUDA itself. ``supply.py`` keeps its worker alive and gives it what it
needs, ``process.py`` is this end of the worker process, ``wire.py`` what travels between them, ``outcome.py`` what an
error of the driver means. ``worker.py`` is that process: ``space.py`` maps memory where it was recorded and takes
access to it away, ``units.py`` holds copies of units and their recorded contents, ``launches.py`` loads, launches and
times, ``driver.py`` is how they call CUDA. ``placement.py`` decides where buffers go; ``service.cu`` (made into
``service.ptx``) copies and compares on the GPU. ``sanitizer.py`` runs one launch under compute-sanitizer and
``profiler.py`` one under ncu, in the process that ``alone.py`` is (``watched.py``). ``nvml.py`` asks the management
library, which needs no context; ``survey.py`` says from that whether there is a GPU to use.
"""
