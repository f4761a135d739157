// Exists so that the precompiled header of <torch/torch.h> is built once and shared by every target.
