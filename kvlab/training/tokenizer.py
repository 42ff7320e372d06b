"""The tiny models' tokenizer: byte-pair encoding trained on the corpus, so small that it can be printed.

All 256 bytes are in the vocabulary, so any text at all can be encoded. ``<bos>`` opens every text, always at
position 0; ``<eos>`` closes a work.
"""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from kvlab.training.corpus import texts
from kvlab.training.variants import VOCAB_SIZE

SPECIALS = ["<bos>", "<eos>"]


def train_tokenizer():
    """Train on the training works -> ``tokenizers.Tokenizer``, in seconds."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    return tokenizer
