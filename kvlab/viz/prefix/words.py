"""What a moment of a radix tree says in words."""

from kvlab.viz.blocks.words import all_of, many


def kinds(run):
    """What each block of a run is -> list of the looks' names."""
    if "evicted" in run.marks:
        return ["evicted"] * len(run.blocks)
    rest = "found" if "found" in run.marks else "locked" if run.locks else "kept"
    return [rest] * (len(run.blocks) - run.new) + ["new"] * run.new


def text_of(words):
    """Tokens' texts on one line; of nothing but spaces, a dot."""
    return " ".join("".join(words).replace("\n", " ↵ ").split()) or "·" * bool(words)


def short(words, most=60):
    text = text_of(words)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def block_words(run, place):
    """What stands in one of a run's blocks."""
    size = len(run.tokens) // len(run.blocks)
    return text_of(run.words[place * size : (place + 1) * size])


def tag(run):
    """What happened to a run, and whether its last block is the next to go."""
    marks = [mark for mark in run.marks if mark != "new"] + ["new"] * bool(run.new)
    return ", ".join(marks + ["end goes next"] * run.next)


def lockers(run):
    """Who has it locked: names, and how many others."""
    return list(run.locked), run.locks - len(run.locked)


def users(run):
    """'locked by A, B and 2 others'."""
    names, others = lockers(run)
    names = [str(name) for name in names] + [many(others, "other")] * bool(others)
    return f"locked by {all_of(names)}" if names else "locked by nobody"


def of_run(run):
    """A run's numbers, and what happened to it."""
    said = [users(run), many(run.hits, "hit"), f"last use {run.used}"]
    said += [f"priority {run.priority:g}"] * bool(run.priority)
    return "; ".join(said + [tag(run)] * bool(tag(run)))


def root_name(run):
    return "root" if run.namespace is None else f"root of namespace {run.namespace!r}"


def counted(moment):
    """The pool's blocks."""
    total = moment.free + moment.held + moment.kept
    return f"{many(total, 'block')}: {moment.held} held, {moment.kept} kept, {moment.free} free"


def so_far(moment):
    """What all operations found, and evicted."""
    share = f" ({moment.found / moment.asked:.0%})" if moment.asked else ""
    found = f"{moment.found:,} of {many(moment.asked, 'token')} found so far{share}"
    return f"{found}, {many(moment.evicted, 'block')} evicted"


def depths(runs):
    """How far below its root each run is."""
    found = []
    for run in runs:
        found.append(0 if run.parent is None else found[run.parent] + 1)
    return found


def described(moment):
    """All of it, for those who cannot see it."""
    said = [moment.said, f"{counted(moment)}.", f"{so_far(moment)}."]
    for run, depth in zip(moment.runs, depths(moment.runs), strict=True):
        if run.blocks:
            blocks = f"{'block' if len(run.blocks) == 1 else 'blocks'} {', '.join(map(str, run.blocks))}"
            said.append(f"Level {depth}: “{short(run.words)}”, {blocks}; {of_run(run)}.")
        elif run.namespace is not None:
            said.append(f"{root_name(run)[:1].upper()}{root_name(run)[1:]}.")
    for each in moment.beside:
        blocks = ", ".join(map(str, each.blocks))
        said.append(f"Outside the tree {each.name} has “{short(each.words)}” in {blocks}.")
    return " ".join(said)
