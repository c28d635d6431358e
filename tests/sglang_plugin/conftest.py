"""The kernels run on the CPU, statement by statement, in Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read where a kernel is defined, so before the plugin is imported
