"""Imports Triton to interpret, with a GPU or without, before torch or transformers import it to compile."""

import os

asked = os.environ.get("TRITON_INTERPRET")
os.environ["TRITON_INTERPRET"] = "1"
import kvlab.kernels.language  # noqa: E402, F401

if asked is None:  # what the tests start decides for itself
    del os.environ["TRITON_INTERPRET"]
