"""What the compiler makes of the attention kernel, read without a GPU: registers, memory, instructions.

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

TARGETS = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "gfx942": "gfx942"}  # A100, H100, B200, MI300X
TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "int8": "i8",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


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
    """Compile cases, about a second each -> [Compiled]. ValueError with the compiler's words if it fails."""
    for case in cases:
        if case.target not in TARGETS:
            raise ValueError(f"target is {case.target!r}; known: {', '.join(TARGETS)}")
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


def _main():
    cases = [Case(**fields) for fields in json.load(sys.stdin)]
    print(json.dumps([_compile(case) for case in cases]))


def _compile(case):
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kvlab.kernels.triton_launch import tiling

    kernel = _kernel(case.edit)
    dtype, stored = TYPES[case.dtype], TYPES[case.stored or case.dtype]
    itemsize = getattr(torch, case.dtype).itemsize
    number = TARGETS[case.target]
    amd = not isinstance(number, int)
    sizes = tiling(case.group * case.new_tokens, case.key_dim, case.value_dim, case.latent, itemsize, amd)
    pages, scale = f"*{stored}", "*fp32" if case.scales else None
    types = dict.fromkeys(("tables", "contexts", "counts", "starts"), "*i32")
    types |= {"q": f"*{dtype}", "k_pages": pages, "v_pages": None if case.latent else pages}
    types |= {"k_scale": scale, "v_scale": scale, "parts": "*fp32", "logs": "*fp32", "scale": "fp32"}
    types |= dict.fromkeys(("table_width", "row_tiles", "share", "window"), "i32")
    constants = {name: None for name, kind in types.items() if kind is None} | {
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
    signature = {name: types.get(name) or "constexpr" for name in kernel.arg_names}
    aligned = [n for n, kind in enumerate(signature.values()) if kind[0] == "*" and kind != "*i32"]
    source = ASTSource(kernel, signature, constants, {(n,): [["tt.divisibility", 16]] for n in aligned})
    target = GPUTarget("hip", number, 64) if amd else GPUTarget("cuda", number, 32)
    stages = case.stages or sizes.stages
    done = triton.compile(source, target, {"num_warps": sizes.warps, "num_stages": stages})
    return (_amd(done) if amd else _nvidia(done)) | {"shared": done.metadata.shared}


def _kernel(edit):
    """The attention kernel, with some lines of its source exchanged."""
    from kvlab.kernels import triton_attention

    if edit is None:
        return triton_attention.attend_part
    old, new = edit
    source = Path(triton_attention.__file__).read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise ValueError(
            f"the kernel's source has {source.count(old)} times what is to be exchanged: {old!r}"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "edited_kernel.py")
        file.write_text(source.replace(old, new), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("edited_kernel", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.attend_part


def _nvidia(done):
    import triton

    tools = Path(triton.__path__[0], "backends", "nvidia", "bin")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(done.asm["cubin"])
        usage = _output(tools / "cuobjdump", "--dump-resource-usage", file)
        code = _output(tools / "nvdisasm", "-c", file)
    registers, stack = map(int, re.search(r"attend_part:\s+REG:(\d+) STACK:(\d+)", usage).groups())
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
