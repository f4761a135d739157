"""The networks of the comparison that read text, written as PyTorch users write them; names as in dtrain's checkpoints."""

import math
import random

import torch
from torch import nn
from torch.nn import functional as F


class Nbow(nn.Module):
    """The mean of a text's word vectors, then one linear layer. `bag`: nn.EmbeddingBag instead of nn.Embedding."""

    def __init__(self, vocabulary, classes=2, width=300, bag=False):
        super().__init__()
        self.bag = bag
        kind = nn.EmbeddingBag if bag else nn.Embedding
        self.embedding = kind(vocabulary, width, padding_idx=0, **({"mode": "mean"} if bag else {}))
        self.fc = nn.Linear(width, classes)

    def forward(self, ids):  # [n, T] -> [n, classes]
        if self.bag:
            return self.fc(self.embedding(ids))
        real = (ids != 0).unsqueeze(2)
        return self.fc((self.embedding(ids) * real).sum(1) / real.sum(1).clamp(min=1))


class WordLstm(nn.Module):
    def __init__(self, vocabulary, dropout, embedding=256, hidden=512):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.rnn = nn.LSTM(embedding, hidden, 2, dropout=dropout)
        self.dropout = nn.Dropout(dropout)


class Decoder(WordLstm):
    def __init__(self, vocabulary, dropout):
        super().__init__(vocabulary, dropout)
        self.fc_out = nn.Linear(self.rnn.hidden_size, vocabulary)


class Seq2Seq(nn.Module):
    """Encoder and decoder of two LSTM layers. The decoder reads its own word or the target's: a coin decides per word or per
    batch, or `coin` is "never", and all words are the target's (teacher forcing alone)."""

    def __init__(self, source_vocabulary, target_vocabulary, dropout=0.5, coin="word"):
        super().__init__()
        self.coin = coin
        self.encoder = WordLstm(source_vocabulary, dropout)
        self.decoder = Decoder(target_vocabulary, dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.08, 0.08)

    def forward(self, source, target):  # [S, n], [T, n] -> [T - 1, n, vocabulary]
        encoder, decoder = self.encoder, self.decoder
        _, state = encoder.rnn(encoder.dropout(encoder.embedding(source)))
        if self.coin == "never" or (self.coin == "batch" and random.random() < 0.5):
            outputs, _ = decoder.rnn(decoder.dropout(decoder.embedding(target[:-1])), state)
            return decoder.fc_out(outputs)
        logits, word = [], target[0]
        for t in range(1, len(target)):
            outputs, state = decoder.rnn(decoder.dropout(decoder.embedding(word)).unsqueeze(0), state)
            logits.append(decoder.fc_out(outputs.squeeze(0)))
            forced = self.coin == "word" and random.random() < 0.5
            word = target[t] if forced else logits[-1].argmax(1)
        return torch.stack(logits)


class ForcedSeq2Seq(Seq2Seq):
    """Teacher forcing alone and its mean loss: a network without control flow, which can be exported."""

    def __init__(self, source_vocabulary, target_vocabulary):
        super().__init__(source_vocabulary, target_vocabulary, coin="never")

    def forward(self, source, target):  # [n, S], [n, T] -> []
        logits = super().forward(source.t(), target.t())
        return F.cross_entropy(logits.flatten(0, 1), target.t()[1:].flatten(), ignore_index=0)


class Attention(nn.Module):
    def __init__(self, width, heads, dropout, attention_dropout):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.attention_dropout = attention_dropout
        self.heads = heads

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attention_dropout, is_causal=True)
        return self.dropout(self.c_proj(y.transpose(1, 2).reshape(n, t, c)))


class Mlp(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, width, heads, dropout, attention_dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout, attention_dropout)
        self.mlp = Mlp(width, dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """GPT-2's layers at the size of one text read letter by letter: 6 layers, 6 heads, 384."""

    def __init__(self, vocabulary, block=256, layers=6, heads=6, width=384, dropout=0.2, attention_dropout=0.0):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(block, width), "drop": nn.Dropout(dropout),
            "h": nn.ModuleList(Block(width, heads, dropout, attention_dropout) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width)})
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if "c_proj" in name else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):  # [n, T] -> [n, T, vocabulary]
        parts = self.transformer
        x = parts.drop(parts.wte(ids) + parts.wpe.weight[:ids.shape[1]])
        for block in parts.h:
            x = block(x)
        return F.linear(parts.ln_f(x), parts.wte.weight)


# dtrain's default recipes; gpt's batch is 8 blocks in the comparison, for both sides.
RECIPES = {"nbow": {"batch": 64, "optimizer": "adam", "clip": 0.0},
           "seq2seq": {"batch": 128, "optimizer": "adam", "clip": 1.0},
           "gpt": {"batch": 8, "optimizer": "adamw", "clip": 1.0}}


def make_network(model, text, style, coin=None):
    """The same initial weights on every rank. `style`: tuned or tutorial. `coin`: another one of seq2seq than the style's."""
    torch.manual_seed(1)
    tuned = style == "tuned"
    if model == "nbow":
        return Nbow(text.vocabulary, text.classes, bag=tuned)
    if model == "seq2seq":
        return Seq2Seq(text.vocabulary, text.target_vocabulary, coin=coin or ("batch" if tuned else "word"))
    return Gpt(text.vocabulary, attention_dropout=0.0 if tuned else 0.2)


def make_optimizer(model, network, fused):
    if RECIPES[model]["optimizer"] == "adam":
        return torch.optim.Adam(network.parameters(), lr=1e-3, fused=fused)
    groups = [{"params": [p for p in network.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in network.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=fused)


def loss_of(model, network, batch):
    """The mean over samples or target words of one batch from staged_text.py."""
    if model == "nbow":
        return F.cross_entropy(network(batch[0]), batch[1])
    if model == "seq2seq":
        source, target = batch
        logits = network(source, target)
        return F.cross_entropy(logits.flatten(0, 1), target[1:].flatten(), ignore_index=0)
    return F.cross_entropy(network(batch[0]).flatten(0, 1), batch[1].flatten())
