"""What a moment of a block pool's log says in words."""

from kvlab.viz.sheet import width_of


def said(moment):
    """What the last event did."""
    if not moment.event:
        return "Nothing has happened yet: all blocks are free."
    kind, name, *numbers = moment.event
    if kind == "mark":
        return "This comes next; nothing of it has happened yet."
    return _SAID[kind](moment, name, *numbers)


def counted(moment):
    """Blocks, and what is in them -> two lines."""
    owners, stored = moment.counts(), sum(moment.filled().values())
    seen, shared = sum(held(moment).values()), sum(count > 1 for count in owners.values())
    free, total = moment.num_blocks - len(owners), many(moment.num_blocks, "block")
    tokens = f"{many(stored, 'token')} stored"
    if seen > stored:
        tokens += f" for {seen} in the sequences"
    empty = f"{many(moment.waste(), 'held slot')} empty (waste)"
    return f"{total}: {free} free, {len(owners)} held, {shared} of these shared", f"{tokens}, {empty}"


def described(moment):
    """All of it, for those who cannot see it."""
    words = [f"{moment.mark.removesuffix('.')}."] * bool(moment.mark) + [said(moment)]
    words += [f"{line}." for line in counted(moment)]
    for name, tokens in held(moment).items():
        blocks = ", ".join(map(str, moment.tables[name]))
        words.append(f"{name}: {many(tokens, 'token')}, {f'blocks {blocks}' if blocks else 'no block'}.")
    return " ".join(words)


def held(moment):
    """Tokens of each table: no more than its blocks hold, also while it lets go of them -> dict."""
    size = moment.block_size
    return {name: min(moment.lengths[name], len(blocks) * size) for name, blocks in moment.tables.items()}


def inside(moment, name, place):
    """How many tokens of a table lie in its block number ``place``."""
    return min(max(moment.lengths[name] - place * moment.block_size, 0), moment.block_size)


def owners_of(moment, block):
    """Their names, in order."""
    return [name for name, blocks in moment.tables.items() if block in blocks]


def touched(moment):
    """The block that the last event touched, and the one that it was copied from -> (int or None) of each."""
    if not moment.event or moment.event[0] in ("born", "ended", "mark"):
        return None, None
    kind, name, *numbers = moment.event
    if kind == "length":
        last = numbers[0] - 1
        return (moment.tables[name][last // moment.block_size] if numbers[0] else None), None
    return numbers[-1], (numbers[0] if kind == "copied" else None)


def many(count, one):
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def all_of(names):
    """'A, B and C'."""
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last


def clipped(text, room, size, bold=False):
    """As much of a text as has room, or nothing."""
    if width_of(text, size, bold) <= room:
        return text
    while text and width_of(text + "…", size, bold) > room:
        text = text[:-1]
    return text and text + "…"


def wrapped(text, room, size, bold=False):
    """In lines that have room -> list."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if width_of(longer, size, bold) <= room:
            lines[-1] = longer
        else:
            lines.append(clipped(word, room, size, bold))
    return [line for line in lines if line]


def _shared(moment, name, block):
    return f"{name} takes block {block}, too: {all_of(owners_of(moment, block))} share it."


def _copied(moment, name, old, new):
    stays = f" Block {old} stays with {all_of(owners_of(moment, old))}." if moment.counts()[old] else ""
    return f"{name} copies block {old} to block {new}, to write into it.{stays}"


def _length(moment, name, tokens):
    if not tokens:
        return f"{name} holds no token."
    block, slot = touched(moment)[0], (tokens - 1) % moment.block_size
    return f"{name} holds {many(tokens, 'token')}; the last is in block {block}, slot {slot}."


_SAID = {
    "born": lambda moment, name: f"{name} begins, without a block.",
    "allocated": lambda moment, name, block: f"{name} takes block {block}, which was free.",
    "shared": _shared,
    "copied": _copied,
    "left": lambda moment, name, block: (
        f"{name} lets go of block {block}; it stays with {all_of(owners_of(moment, block))}."
    ),
    "freed": lambda moment, name, block: (
        f"{name} lets go of block {block}. That was its last owner: the block is free."
    ),
    "length": _length,
    "ended": lambda moment, name: f"{name} has ended.",
}
