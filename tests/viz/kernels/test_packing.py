"""Rows of a product: every query head of every new token has one, and the others are masked."""

import pytest

from kvlab.viz.kernels import packing, packing_sheet
from tests.viz.sheets import faults, shown, tips

CASES = [(4, 1, 16), (1, 1, 16), (16, 1, 16), (4, 3, 16), (8, 5, 16), (5, 3, 16), (32, 1, 32), (64, 1, 64)]
CASES += [(3, 20, 64), (2, 8, 32)]


def named(match):
    """'token 2, head 1' -> (2, 1); 'query head 3' -> (0, 3)."""
    return int(match["token"] or 0), int(match["head"])


@pytest.mark.parametrize(("group", "new_tokens", "rows"), CASES)
def test_every_head_of_every_token_has_one_row_and_the_rest_is_masked(group, new_tokens, rows):
    sheet = packing_sheet(group, new_tokens, rows)
    assert faults(sheet) == [] and sheet.width == 780
    name = r"(?:token (?P<token>\d+), head|query head) (?P<head>\d+)$"
    queries, scores = tips(sheet, rf"row \d+: {name}"), tips(sheet, f"scores of {name}")
    wanted = [(token, head) for token in range(new_tokens) for head in range(group)]
    assert [named(match) for _, match in queries] == [named(match) for _, match in scores] == wanted
    (high,) = {round(box.height, 6) for box, _ in queries + scores}
    assert (
        [box.y for box, _ in queries] == [box.y for box, _ in scores] == sorted(box.y for box, _ in queries)
    )
    masked = tips(sheet, r"(\d+) masked rows?$")
    padding = -(group * new_tokens) % rows
    assert sum(box.height for box, _ in masked) == pytest.approx(2 * padding * high)  # queries, and scores
    assert {int(match[1]) for _, match in masked} == ({padding} if padding else set())
    for token, head in wanted:  # those whose label is written have it at their row
        words = f"token {token}, head {head}" if new_tokens > 1 else f"query head {head}"
        for text in sheet.texts():
            if text.text == words:
                box = queries[token * group + head][0]
                assert text.x < box.x and box.y - 4 <= text.y - 4 <= box.y + max(box.height, 9)


def test_rows_are_labelled():
    assert [t.text for t in packing_sheet(4).texts() if t.anchor == "end"] == [
        f"query head {n}" for n in range(4)
    ]
    labels = [text.text for text in packing_sheet(4, 3).texts() if text.anchor == "end"]
    assert labels == [f"token {token}, head {head}" for token in range(3) for head in range(4)]
    assert "token 7, head 0" in shown(packing_sheet(8, 8, 64))


def test_the_keys_are_read_once_for_each_tile_of_rows():
    said = (
        "4 query heads of one KV head, 1 new token: 4 of 16 rows used. The keys are read once. With a "
        "program for each query head they would be read 4 times."
    )
    assert packing_sheet(4).title == packing(4).alt == said
    assert "12 of 16 rows used" in packing_sheet(4, 3).title and "read once." in packing_sheet(4, 3).title
    many = packing_sheet(8, 5)
    assert "40 of 48 rows used" in many.title and "read 3 times, once for each tile of 16" in many.title
    assert len(tips(many, "keys of a tile")) == 3
    assert "would" not in packing_sheet(1).title


def test_of_many_tiles_the_first_and_the_last_are_drawn():
    sheet = packing_sheet(8, 100, 64)
    assert faults(sheet) == [] and "… 11 tiles more …" in shown(sheet)
    rows = [int(match[1]) for _, match in tips(sheet, r"row \d+: token (\d+)")]
    assert min(rows) == 0 and max(rows) == 99 and len(rows) == 64 + 800 - 12 * 64
    assert sheet.height < 800


@pytest.mark.parametrize(
    ("setting", "wrong"), [((0,), "group is 0"), ((4, 0), "new_tokens is 0"), ((4, 1, 0), "rows is 0")]
)
def test_rows_that_cannot_be_are_refused(setting, wrong):
    with pytest.raises(ValueError, match=wrong):
        packing(*setting)
