"""What the compiler makes of the kernels: nothing spills, loads are wide and early, matrices multiply.

Each claim has an edit of the kernel's source that makes it false, so that the readings are known to see it.
"""

import pytest

from kvlab.kernels import backend
from kvlab.kernels.compiled import TARGETS, Case, Compiled, read_out
from kvlab.kernels.triton_launch import tiling

pytestmark = pytest.mark.skipif(not backend.installed(), reason="Triton is not installed")

KIB = 2**10
SHARED = {"sm_80": 163 * KIB, "sm_90": 227 * KIB, "sm_100": 227 * KIB, "gfx942": 64 * KIB}  # of a program
MLA = {"group": 128, "key_dim": 576, "value_dim": 512, "latent": True}
SAME_TURN = (
    "slots = (pages.to",
    "pages = tl.load(table + tokens // BLOCK, mask=there)\n        slots = (pages.to",
)
ONE_NUMBER_ASIDE = ("+ FIRST + columns", "+ FIRST + 1 + columns")
SUMMED = (
    'tl.dot(a, b, input_precision="ieee")',
    "tl.sum(a[:, :, None].to(tl.float32) * b[None, :, :].to(tl.float32), axis=1)",
)
ROUNDED = (', input_precision="ieee"', "")

CASES = {target: Case(target) for target in TARGETS}
CASES |= {f"{stages} stages": Case(stages=stages) for stages in (1, 2, 3, 4)}
CASES |= {f"look-up in the same turn, {n} stages": Case(stages=n, edit=SAME_TURN) for n in (3, 4)}
CASES |= {f"{width} wide": Case(key_dim=width, value_dim=width) for width in (64, 80, 96, 192, 256)}
CASES |= {
    f"{stored}, a scale for {scales}": Case(stored=stored, scales=scales)
    for stored in ("int8", "float8_e4m3fn")
    for scales in ("head", "each")
}
CASES |= {f"MLA, {target}": Case(target, **MLA) for target in ("sm_80", "sm_90", "gfx942")}
CASES |= {
    "prefill": Case(new_tokens=64),
    "prefill, gfx942": Case("gfx942", new_tokens=64),
    "64 wide, gfx942": Case("gfx942", key_dim=64, value_dim=64),
    "float16": Case(dtype="float16"),
    "float32": Case(dtype="float32"),
    "float32, rounded": Case(dtype="float32", edit=ROUNDED),
    "aside": Case(edit=ONE_NUMBER_ASIDE),
    "aside, gfx942": Case("gfx942", edit=ONE_NUMBER_ASIDE),
    "summed": Case(key_dim=16, value_dim=16, edit=SUMMED),
    "merge": Case(kernel="merge"),
    "merge, gfx942": Case("gfx942", kernel="merge"),
}
USED = [name for name, case in CASES.items() if case.edit is None]


@pytest.fixture(scope="module")
def made():
    """{name: Compiled}, in one process."""
    cases = dict.fromkeys(CASES.values())
    return dict(zip(cases, read_out(list(cases)), strict=True)).__getitem__


def loads(compiled):
    """(those to shared memory that are not waited for, and how many of them are 128 bits wide)."""
    return compiled.count("LDGSTS"), sum(
        n for name, n in compiled.instructions.items() if name.startswith("LDGSTS") and name.endswith(".128")
    )


def tile(case):
    return tiling(case.group * case.new_tokens, case.key_dim, case.value_dim, case.latent, 2)


@pytest.mark.parametrize("name", USED)
def test_nothing_spills_and_it_fits_the_gpu(made, name):
    compiled = made(CASES[name])
    assert compiled.spilled == 0
    assert 0 < compiled.shared <= SHARED[CASES[name].target]
    assert 0 < compiled.registers <= (512 if CASES[name].target == "gfx942" else 255)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_keys_and_values_come_128_bits_at_a_time_and_are_not_waited_for(made, target):
    case = CASES[target]
    sizes = tile(case)
    of_a_turn = 2 * sizes.tokens * 128 * 2 // (16 * 32 * sizes.warps)  # keys and values, 16 bytes a thread
    assert of_a_turn == 16
    assert loads(made(case)) == (sizes.stages * of_a_turn, sizes.stages * of_a_turn)


def test_on_amd_they_come_128_bits_at_a_time(made):
    compiled = made(CASES["gfx942"])
    sizes = tiling(4, 128, 128, False, 2, amd=True)
    of_a_turn = 2 * sizes.tokens * 128 * 2 // (16 * 64 * sizes.warps)
    assert compiled.count("global_load_dwordx4") >= sizes.stages * of_a_turn == 16
    assert compiled.count("global_load_ushort", "global_load_dwordx2") == 0


def test_numbers_aside_of_16_bytes_lose_the_wide_loads(made):
    assert loads(made(CASES["aside"])) == (0, 0)
    assert made(CASES["aside"]).spilled > 0
    assert made(CASES["aside, gfx942"]).count("global_load_dwordx4") == 0


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_both_products_use_as_many_matrix_instructions_as_a_tile_needs(made, target):
    sizes = tile(CASES[target])
    # One of m16n8k16 multiplies 16 x 16 with 16 x 8 numbers: rows x width with width x tokens, then weights.
    scores = sizes.rows // 16 * (sizes.tokens // 8) * (128 // 16)
    sums = sizes.rows // 16 * (128 // 8) * (sizes.tokens // 16)
    assert (scores + sums) // sizes.warps == 32
    assert made(CASES[target]).count("HMMA.16816.F32.BF16") == 32


def test_on_amd_both_products_use_matrix_instructions(made):
    assert made(CASES["gfx942"]).count("v_mfma_f32_16x16x16_bf16") >= 16


def test_float16_multiplies_as_quickly(made):
    assert made(CASES["float16"]).count("HMMA.16816.F32") == 32


def test_prefill_uses_hoppers_own_instructions(made):
    assert made(CASES["prefill"]).count("HGMMA") > 0 and made(CASES["prefill"]).count("HMMA") == 0


def test_sums_of_products_use_none(made):
    assert made(CASES["summed"]).count("HMMA", "HGMMA") == 0


def test_shared_memory_grows_with_the_stages(made):
    shared = [made(CASES[f"{stages} stages"]).shared for stages in (1, 2, 3, 4)]
    tile_bytes = 2 * tile(Case()).tokens * 128 * 2
    assert [b - a for a, b in zip(shared[1:], shared[2:], strict=False)] == [tile_bytes, tile_bytes]
    assert shared[0] < shared[1]


def test_a_look_up_in_the_same_turn_takes_a_stage(made):
    three, four = (made(CASES[f"look-up in the same turn, {n} stages"]) for n in (3, 4))
    assert (three.shared, three.instructions) == (four.shared, four.instructions)
    assert three.shared < made(CASES["3 stages"]).shared


def test_float32_is_not_rounded_to_tf32(made):
    def rounded(name):
        return [i for i in made(CASES[name]).instructions if i.startswith("HMMA") and "TF32" in i]

    assert rounded("float32") == [] and rounded("float32, rounded") != []


@pytest.mark.parametrize("name", [name for name in USED if "scale for" in name])
def test_8_bits_are_read_in_wide_loads_and_multiplied_as_matrices(made, name):
    compiled = made(CASES[name])
    assert compiled.count("HMMA.16816.F32.BF16") == 32
    assert compiled.count("LDGSTS.E.64", "LDGSTS.E.BYPASS.128") >= 36
    assert compiled.count("LDG.E.U8", "LDGSTS.E.U8") == 0


def test_counting_is_by_beginnings():
    compiled = Compiled(1, 0, 2, {"LDG.E": 3, "LDG.E.128": 4, "LDS": 5})
    assert compiled.count("LDG") == 7 and compiled.count("LDG.E.128", "LDS") == 9


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("sm_13"), "target is 'sm_13'; known: sm_80, sm_90, sm_100, gfx942"),
        (Case(dtype="float64"), "dtype is 'float64'; known: float16"),
        (Case(stored="int4"), "stored is 'int4'; known: float16"),
        (Case(kernel="split"), "kernel is 'split'; known: attend_part, merge"),
        (Case(edit=("no such line", "")), "source has 0 times what is to be exchanged: 'no such line'"),
        (Case(edit=("tl.load", "tl.store")), r"source has \d\d times what is to be exchanged: 'tl.load'"),
        (
            Case("sm_80", stored="float8_e4m3fn", scales="head"),
            "(?s)compiler failed: .*sm_80.*fp8e4nv not supported in this architecture",
        ),
    ],
)
def test_what_cannot_be_compiled_is_said(case, message):
    with pytest.raises(ValueError, match=message):
        read_out([case])


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr("kvlab.kernels.compiled.installed", lambda: False)
    with pytest.raises(ImportError, match="Triton is not installed: pip install"):
        read_out([Case()])
