"""What latent attention keeps of a token, and what it makes of it."""

from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREY, ORANGE, PALE

LEFT, WIDE, HIGH = 150, 600, 26  # where the bars begin, how long the longest is, how thick all are


def latent_anatomy(config):
    """A token's vector, what is cached of it, and all heads' keys and values; lengths to scale -> Picture.

    config: a model's, with a latent.
    """
    return anatomy(config).picture()


def anatomy(config):
    """The same -> Sheet."""
    if config.latent is None:
        raise ValueError("this config has no latent: draw that of a model with latent attention, as tiny-mla")
    heads, rank, rope_dim = config.num_heads, config.latent.rank, config.latent.rope_dim
    key_dim, value_dim, kept = config.head_dim, config.latent.value_dim, rank + rope_dim
    whole = heads * (key_dim + value_dim)
    scale = WIDE / max(config.hidden_size, kept, whole)  # pixels a number
    sheet = Sheet(
        LEFT + WIDE + 20,
        206,
        f"One token in one layer. Its vector of {config.hidden_size} numbers becomes a latent of {rank} and "
        f"a rotated key of {rope_dim}: {kept} numbers, which are cached. From them {heads} heads' keys of "
        f"{key_dim} and values of {value_dim} can be made, {whole} numbers, which are not.",
    )

    def row(y, name, count, words):
        sheet.text(LEFT - 12, y + 11, name, anchor="end", bold=True)
        sheet.text(LEFT - 12, y + 26, f"{count} numbers", anchor="end", size=11)
        sheet.text(LEFT, y + HIGH + 16, words, size=11.5)

    row(12, "the token's vector", config.hidden_size, "comes in, and is gone after the layer")
    sheet.rect(LEFT, 12, config.hidden_size * scale, HIGH, GREY)
    row(78, "cached", kept, f"a latent of {rank}, and one rotated key of {rope_dim} for all heads (hatched)")
    sheet.rect(LEFT, 78, rank * scale, HIGH, BLUE)
    sheet.rect(LEFT + rank * scale, 78, rope_dim * scale, HIGH, ORANGE, pattern="/")
    words = f"can be made of it, and are not kept: {heads} keys of {key_dim}, {heads} values of {value_dim}"
    row(144, "keys and values", whole, words)
    for head in range(heads):
        left = LEFT + head * (key_dim + value_dim) * scale
        own, shared, value = (size * scale for size in (key_dim - rope_dim, rope_dim, value_dim))
        sheet.rect(left, 144, own, HIGH, PALE, stroke=GREY)
        sheet.rect(left + own, 144, shared, HIGH, ORANGE, pattern="/", stroke=GREY)
        sheet.rect(left + own + shared, 144, value, HIGH, PALE, stroke=GREY)
        if min(own, value) > width_of(f"k{heads}", 11):
            sheet.text(left + own / 2, 161, f"k{head}", anchor="middle", size=11)
            sheet.text(left + own + shared + value / 2, 161, f"v{head}", anchor="middle", size=11)
    return sheet
