"""What the compiler makes of the kernels, read without a GPU: registers, memory, instructions.

Triton brings compilers and disassemblers for GPUs that are not here. A process either interprets or compiles,
so this is done in another one.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kvlab.kernels.backend import INSTALL, installed

TARGETS = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "gfx942": "gfx942"}  # A100, H100, B200, MI300X
TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "int8": "i8",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
KERNELS = "attend_part", "merge"


class Case(NamedTuple):
    """A kernel to compile; sizes of tiles are those that it would be started with."""

    target: str = "sm_90"  # of TARGETS
    dtype: str = "bfloat16"  # of queries, as in torch
    stored: str | None = None  # of pages, where it is another one
    scales: str | None = None  # "head" or "each" token and head
    group: int = 4  # query heads of a KV head
    new_tokens: int = 1
    key_dim: int = 128
    value_dim: int = 128
    latent: bool = False  # are the values the keys' first columns?
    block_size: int = 16
    stages: int | None = None  # of the pipeline, in place of the usual number
    edit: tuple[str, str] | None = None  # lines of the kernel's source, and what to put in their place
    kernel: str = "attend_part"  # of KERNELS; "merge": of as many parts as there may be


@dataclass(frozen=True)
class Compiled:
    """What was made of a case. Bytes are of a program, registers of a thread."""

    registers: int
    spilled: int  # bytes of a thread that found no register
    shared: int  # bytes of a multiprocessor's own memory
    instructions: dict  # {machine instruction: how many of them the code has}

    def count(self, *beginnings):
        """Instructions whose names start so -> int."""
        return sum(n for name, n in self.instructions.items() if name.startswith(beginnings))


def read_out(cases):
    """Compile cases, about a second each -> [Compiled].

    ValueError for a name that is not known, for an edit of lines that the source has not, and with the
    compiler's words and the case where it fails; ImportError where Triton is missing.
    """
    if not installed():
        raise ImportError(f"Triton is not installed: {INSTALL}")
    for case in cases:
        _check(case)
    asked = json.dumps([case._asdict() for case in cases])
    done = subprocess.run(
        [sys.executable, "-m", "kvlab.kernels.compiled"],
        input=asked,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"TRITON_INTERPRET": "0"},
    )
    if done.returncode:
        raise ValueError(f"the compiler failed: {done.stderr.strip()[-2000:]}")
    return [Compiled(**fields) for fields in json.loads(done.stdout)]


def _check(case):
    for name, known in (("target", TARGETS), ("dtype", TYPES), ("stored", TYPES), ("kernel", KERNELS)):
        given = getattr(case, name)
        if given not in known and not (name == "stored" and given is None):
            raise ValueError(f"{name} is {given!r}; known: {', '.join(known)}")
    if case.edit is not None and (times := _source().count(case.edit[0])) != 1:
        raise ValueError(f"the kernel's source has {times} times what is to be exchanged: {case.edit[0]!r}")


def _source():
    return Path(__file__).with_name("triton_attention.py").read_text(encoding="utf-8")


def _main():
    cases = [Case(**fields) for fields in json.load(sys.stdin)]
    made = []
    for case in cases:
        try:
            made.append(_compile(case))
        except Exception as error:
            sys.exit(f"{case}: {error}")
    print(json.dumps(made))


def _compile(case):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, number = _kernel(case), TARGETS[case.target]
    amd = not isinstance(number, int)
    arguments, options = _merge(case) if case.kernel == "merge" else _attend_part(case, amd)
    types = {name: kind for name, kind in arguments.items() if isinstance(kind, str)}
    constants = {name: value for name, value in arguments.items() if name not in types}
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    aligned = [n for n, kind in enumerate(signature.values()) if kind[0] == "*" and kind != "*i32"]
    source = ASTSource(kernel, signature, constants, {(n,): [["tt.divisibility", 16]] for n in aligned})
    target = GPUTarget("hip", number, 64) if amd else GPUTarget("cuda", number, 32)
    done = triton.compile(source, target, options)
    return (_amd(done) if amd else _nvidia(done, case.kernel)) | {"shared": done.metadata.shared}


def _attend_part(case, amd):
    """{argument: type, or value where it is a constant}, and the compiler's options."""
    import torch

    from kvlab.kernels.triton_launch import tiling

    itemsize = getattr(torch, case.dtype).itemsize
    sizes = tiling(case.group * case.new_tokens, case.key_dim, case.value_dim, case.latent, itemsize, amd)
    pages, scale = f"*{TYPES[case.stored or case.dtype]}", "*fp32" if case.scales else None
    types = dict.fromkeys(("tables", "contexts", "counts", "starts"), "*i32")
    types |= dict.fromkeys(("table_width", "row_tiles", "share", "window"), "i32")
    types |= {"q": f"*{TYPES[case.dtype]}", "k_pages": pages, "v_pages": None if case.latent else pages}
    types |= {"k_scale": scale, "v_scale": scale, "parts": "*fp32", "logs": "*fp32", "scale": "fp32"}
    constants = {
        "GROUP": case.group,
        "ROWS": sizes.rows,
        "KEY_DIM": case.key_dim,
        "VALUE_DIM": case.value_dim,
        "BLOCK": case.block_size,
        "TILE": sizes.tokens,
        "K_EACH": case.scales == "each",
        "V_EACH": case.scales == "each",
        "INTERPRETED": False,
    }
    return types | constants, {"num_warps": sizes.warps, "num_stages": case.stages or sizes.stages}


def _merge(case):
    from kvlab.kernels.splits import MOST
    from kvlab.kernels.triton_attention import padded
    from kvlab.kernels.triton_launch import MERGED_COLUMNS

    types = {"parts": "*fp32", "logs": "*fp32", "sinks": "*fp32", "out": f"*{TYPES[case.dtype]}"}
    columns = min(padded(case.value_dim), MERGED_COLUMNS)
    constants = {"VALUE_DIM": case.value_dim, "COLUMNS": columns, "SPLITS": MOST}
    return types | {"splits": "i32", "num_heads": "i32"} | constants, {}


def _kernel(case):
    """Of the attention kernel's source, with some lines exchanged."""
    from kvlab.kernels import triton_attention

    if case.edit is None:
        return getattr(triton_attention, case.kernel)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "edited_kernel.py")
        file.write_text(_source().replace(*case.edit), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("edited_kernel", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, case.kernel)


def _nvidia(done, kernel):
    import triton

    tools = Path(triton.__path__[0], "backends", "nvidia", "bin")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(done.asm["cubin"])
        usage = _output(tools / "cuobjdump", "--dump-resource-usage", file)
        code = _output(tools / "nvdisasm", "-c", "-ndf", file)  # the code alone, its jumps not analysed
    registers, stack = map(int, re.search(rf"{kernel}:\s+REG:(\d+) STACK:(\d+)", usage).groups())
    names = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@\S+\s+)?([A-Z][A-Z0-9_.]*)", code, re.MULTILINE)
    return {"registers": registers, "spilled": stack, "instructions": Counter(names)}


def _amd(done):
    code = done.asm["amdgcn"]
    used = {name: int(n) for name, n in re.findall(r"\.(vgpr_count|[sv]gpr_spill_count):\s+(\d+)", code)}
    names = re.findall(r"^\s+([a-z]+_[a-z0-9_]+)\s", code, re.MULTILINE)
    spilled = 4 * (used["vgpr_spill_count"] + used["sgpr_spill_count"])
    return {"registers": used["vgpr_count"], "spilled": spilled, "instructions": Counter(names)}


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    _main()
