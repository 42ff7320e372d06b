"""A field that a configuration leaves out: transformers reads its class's default; so must we, or refuse."""

import contextlib

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvlab.memory import FAMILIES, ModelSpec
from tests.reference.shrunk import cases

pytestmark = pytest.mark.filterwarnings("ignore")
CLASS = {"kimi_k2": "deepseek_v3", "minimax_m3": "minimax_m3_vl_text"}
# Text parts that transformers has no class of their own for, and a family that it does not have.
WITHOUT = {"minimax_m3_vl_text", "nemotron-nas", "qwen2_5_vl", "qwen2_vl", "step3p7"}


def of_class(family, config):
    """A configuration with what its class makes of it, defaults and all -> dict."""
    asked = {name: value for name, value in config.items() if name != "model_type"}
    written = CONFIG_MAPPING[CLASS.get(family, family)](**asked).to_dict()
    written.pop("per_layer_config", None)  # says again, by number, what other fields say
    if "sliding_window_size" in config:
        written["sliding_window"] -= 1  # MiMo's, which transformers counts without the token itself
    return config | written | {"model_type": family}


def bases(family):
    """Configurations to leave a field out of: the class's own defaults, and the small ones of ours."""
    with contextlib.suppress(Exception):  # a class that wants to be told more
        yield of_class(family, {})
    yield from (case for case in cases().values() if case["model_type"] == family)


def read(config):
    """What decides bytes, None where it is refused. Unknown is an answer for the rest."""
    try:
        spec = ModelSpec.from_config(config)
    except ValueError:
        return None
    return spec.layers, spec.query_heads


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - WITHOUT))
def test_a_field_that_is_left_out_is_the_default_of_its_class_or_refused(family):
    compared = 0
    for base in bases(family):
        for left_out in {*base} - {"model_type"}:
            # A list of types decides alone where it stands; without it the fields behind it do.
            for gone in ({left_out}, {left_out, "layer_types"}):
                config = {name: value for name, value in base.items() if name not in gone}
                ours = read(config)
                try:
                    theirs = of_class(family, config)
                except Exception:  # refused there
                    continue
                if ours is None or read(theirs) is None:
                    continue
                assert ours == read(theirs), left_out
                compared += 1
    assert compared


def test_null_is_none_where_the_default_is_another():
    assert transformers.MistralConfig().sliding_window == 4096
    assert ModelSpec.from_config(cases()["mistral"] | {"sliding_window": None}).kinds() == {"full": 4}
