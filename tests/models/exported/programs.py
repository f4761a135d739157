"""Seventeen programs that were not written for dtrain: plain PyTorch modules, torchvision's, and Hugging Face's from small
configurations, each of a size that trains in seconds on one core.

    programs.py FOLDER [NAME...]     exports them, those of torchvision and transformers where these are installed
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

TOP = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TOP / "jobs"), str(TOP / "perf" / "peers")]
from export_model import export_model  # noqa: E402
import networks  # noqa: E402
import text_networks  # noqa: E402

WORDS = 40  # of each text's vocabulary
LENGTH = 12  # tokens of a text, and of a language model's block
CLASSES = {"image": 10, "text": 10}


class LstmClassifier(nn.Module):
    """Two layers of LSTM in both directions over a text; the mean over real words decides."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 10, 2, batch_first=True, dropout=dropout, bidirectional=True)
        self.output = nn.Linear(20, CLASSES["text"])

    def forward(self, ids):  # [N, T] -> [N, classes]
        real = (ids != 0).unsqueeze(2)
        states, _ = self.lstm(self.embedding(ids))
        return self.output((states * real).sum(1) / real.sum(1).clamp(min=1))


class SequenceAutoencoder(nn.Module):
    """An encoder reads the whole block, a decoder starts from its state and reads it again (Dai and Le, 2015)."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 12)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.LSTM(12, 16, 2, batch_first=True, dropout=dropout)
        self.decoder = nn.LSTM(12, 16, 2, batch_first=True, dropout=dropout)
        self.fc_out = nn.Linear(16, WORDS)

    def forward(self, ids):  # [N, T] -> [N, T, words]
        embedded = self.dropout(self.embedding(ids))
        return self.fc_out(self.decoder(embedded, self.encoder(embedded)[1])[0])


class Translator(nn.Module):
    """An encoder reads the source, a decoder starts from its state and is given the target's words; the mean over texts of the mean
    loss of their real words, so that the loss of a batch is that of its samples."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, 12, padding_idx=0), nn.Embedding(WORDS, 12, padding_idx=0)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.LSTM(12, 16, 2, batch_first=True, dropout=dropout)
        self.decoder = nn.LSTM(12, 16, 2, batch_first=True, dropout=dropout)
        self.fc_out = nn.Linear(16, WORDS)

    def forward(self, source, target):  # [N, S], [N, T] -> []
        _, state = self.encoder(self.dropout(self.source(source)))
        logits = self.fc_out(self.decoder(self.dropout(self.target(target[:, :-1])), state)[0])
        next_words = target[:, 1:]
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), next_words, ignore_index=0, reduction="none")  # [N, T - 1]
        return (losses.sum(1) / (next_words != 0).sum(1).clamp(min=1)).mean()


class OwnLoss(nn.Module):
    """A small network that takes the targets and returns its own loss."""

    def __init__(self):
        super().__init__()
        self.network = networks.Cnn()

    def forward(self, images, targets):  # [N, 3, 32, 32], [N] -> []
        return nn.functional.cross_entropy(self.network(images), targets, label_smoothing=0.1)


def torchvision_resnet18():
    from torchvision.models import resnet18
    return resnet18(num_classes=CLASSES["image"])


def torchvision_mobilenet_v2(dropout=0.2):
    from torchvision.models import mobilenet_v2
    return mobilenet_v2(num_classes=CLASSES["image"], width_mult=0.25, dropout=dropout)


def torchvision_vit(dropout=0.1):
    from torchvision.models import VisionTransformer
    return VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=24, mlp_dim=48,
                             dropout=dropout, attention_dropout=dropout, num_classes=CLASSES["image"])


def hugging_face_distilbert(dropout=0.1):
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    class Classifier(DistilBertForSequenceClassification):
        def forward(self, ids):  # [N, T] -> [N, classes]; a subclass keeps the names of the state_dict
            return super().forward(input_ids=ids, attention_mask=(ids != 0).long()).logits

    return Classifier(DistilBertConfig(vocab_size=WORDS, max_position_embeddings=64, n_layers=2, n_heads=2, dim=24,
                                       hidden_dim=48, num_labels=CLASSES["text"], dropout=dropout, attention_dropout=dropout,
                                       seq_classif_dropout=dropout))


def hugging_face_gpt2(dropout=0.1):
    from transformers import GPT2Config, GPT2LMHeadModel

    class LanguageModel(GPT2LMHeadModel):
        def forward(self, ids):  # [N, T] -> [N, T, words]
            return super().forward(input_ids=ids, use_cache=False).logits

    return LanguageModel(GPT2Config(vocab_size=WORDS, n_positions=32, n_layer=2, n_head=2, n_embd=24, resid_pdrop=dropout,
                                    embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=0, eos_token_id=0))


def gpt(dropout=0.1):
    return text_networks.Gpt(WORDS, block=LENGTH, layers=2, heads=2, width=24, dropout=dropout, attention_dropout=dropout)


def vgg11(dropout=0.5):
    network = networks.Vgg11(width=4, hidden=32)
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.p = dropout
    return network


@dataclass(frozen=True)
class Program:
    make: Any  # a function that returns the module; `dropout` is its only argument, where it has one
    data: str  # image, text, blocks or pairs
    dropout: bool = False
    loss: str = "cross_entropy"
    needs: str = ""  # a package for tests
    shape: tuple = (3, 32, 32)
    ci: bool = False  # tested with every build
    tensor: str = ""  # what dtrain says of its cut over the tensor axis, where it has one


PROGRAMS = {
    "mlp": Program(lambda: networks.Mlp(3 * 32 * 32), "image", ci=True),
    "cnn": Program(networks.Cnn, "image"),
    "vgg11": Program(vgg11, "image", dropout=True),
    "resnet18": Program(lambda: networks.ResNet18(width=8), "image", ci=True),
    "conv_autoencoder": Program(networks.ConvAutoencoder, "image", loss="mse"),  # against its own input
    "nbow": Program(lambda: text_networks.Nbow(WORDS, CLASSES["text"], 16), "text"),
    "embedding_bag": Program(lambda: text_networks.Nbow(WORDS, CLASSES["text"], 16, bag=True), "text"),
    "seq2seq": Program(Translator, "pairs", dropout=True, loss="model"),
    "sequence_autoencoder": Program(SequenceAutoencoder, "blocks", dropout=True),
    "gpt": Program(gpt, "blocks", dropout=True, ci=True, tensor="2 attentions are cut by heads"),
    "lstm_classifier": Program(LstmClassifier, "text", dropout=True),
    "own_loss": Program(OwnLoss, "image", loss="model"),
    "torchvision_resnet18": Program(torchvision_resnet18, "image", needs="torchvision"),
    "torchvision_mobilenet_v2": Program(torchvision_mobilenet_v2, "image", dropout=True, needs="torchvision"),
    "torchvision_vit": Program(torchvision_vit, "image", dropout=True, needs="torchvision", tensor="2 attentions are cut by heads"),
    "hugging_face_distilbert": Program(hugging_face_distilbert, "text", dropout=True, needs="transformers", tensor="2 attentions are cut by heads"),
    "hugging_face_gpt2": Program(hugging_face_gpt2, "blocks", dropout=True, needs="transformers", tensor="2 attentions are cut by heads"),
}


def installed(program):
    return not program.needs or importlib.util.find_spec(program.needs) is not None


def make(program, dropout=True):
    """The module with the same initial weights each time; `dropout` False: with the probability 0."""
    torch.manual_seed(1)
    return program.make(dropout=0.0) if program.dropout and not dropout else program.make()


def example(program, samples=4):
    """Inputs as the program takes them, of a fixed seed."""
    generator = torch.Generator().manual_seed(2)
    if program.data == "image":
        images = torch.randn((samples, *program.shape), generator=generator)
        if program.loss == "model":
            return images, torch.randint(CLASSES["image"], (samples,), generator=generator)
        return (images,)
    ids = torch.randint(4, WORDS, (samples, LENGTH), generator=generator)
    if program.data == "pairs":
        return ids, torch.randint(4, WORDS, (samples, LENGTH), generator=generator)
    if program.data == "text":
        ids[1, LENGTH - 3:] = 0  # padding
    return (ids,)


def export(program, path, dropout=True):
    module = make(program, dropout)
    inputs = example(program)
    return module, export_model(module, inputs, path, loss=program.loss, target=inputs[0] if program.loss == "mse" else None,
                                sequence_dim=1 if program.data in ("text", "pairs") else None)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or PROGRAMS:
        if not installed(PROGRAMS[name]):
            print(f"{name}: not exported, since {PROGRAMS[name].needs} is not installed")
            continue
        export(PROGRAMS[name], folder / f"{name}.pt2")
        print(f"{name}: {(folder / f'{name}.pt2').stat().st_size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
